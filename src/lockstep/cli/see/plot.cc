// lockstep plot: curves of one or several runs, in the terminal or as a picture.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/see/svg.h"
#include "lockstep/terminal/curve.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

struct AxisName {
  const char* name;
  see::Axis axis;
  const char* label;
};
constexpr AxisName kAxes[] = {{"step", see::Axis::step, "step"},
                              {"tokens", see::Axis::tokens, "tokens"},
                              {"time", see::Axis::time, "seconds since the first step"}};

const AxisName& axis_of(const std::string& word) {
  for (const AxisName& one : kAxes) {
    if (word == one.name) return one;
  }
  throw base::ConfigError(109, fmt::format("--x {}: expected step, tokens or time", base::quoted(word)));
}

// With the nearest name where none of the runs has the metric.
void check_metric(const std::vector<see::RunLog>& runs, const std::string& metric) {
  std::vector<std::string> known;
  for (const see::RunLog& run : runs) {
    if (const std::string word = run.rows().last_word(metric); !word.empty() && !run.rows().find(metric))
      throw base::ConfigError(109, fmt::format("--metric {}: {} has no number of it, only {}",
                                               base::quoted(metric), run.folder(), word));
    for (const std::string& name : run.rows().names()) {
      if (name == metric) return;
      if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
    }
  }
  if (known.empty())
    throw base::ConfigError(109, fmt::format("{} has no metrics yet", runs.front().folder()));
  const std::string near = base::nearest_word(metric, known);
  throw base::ConfigError(
      109, fmt::format("--metric {}: no run here has it; {}", base::quoted(metric),
                       near.empty() ? "they have " + base::join(known, ", ") : "did you mean " + near + "?"));
}

see::Panel panel_of(const std::vector<see::RunLog>& runs, const std::string& metric, see::Axis axis,
                    double smooth) {
  see::Panel panel{.title = metric, .series = {}, .faint = {}};
  for (const see::RunLog& run : runs) {
    see::Series series = see::series_of(run, metric, axis);
    if (series.points.empty()) continue;
    if (runs.size() > 1) {  // runs of one name in two folders
      const auto same = [&](const see::RunLog& other) {
        return &other != &run && other.name() == run.name();
      };
      if (std::any_of(runs.begin(), runs.end(), same)) series.name = run.folder();
    }
    if (smooth > 0) {
      panel.faint.push_back(series);
      series.points = see::smoothed(series.points, smooth);
    }
    panel.series.push_back(std::move(series));
  }
  return panel;
}

// A curve of equal steps along x: the last value of each column.
void draw_in_terminal(const see::Panel& panel, bool log_y) {
  const terminal::Terminal screen = terminal::terminal_of(STDOUT_FILENO);
  const size_t width = std::clamp<size_t>(screen.width - 1, 30, 100), columns = 2 * width;
  for (const see::Series& series : panel.series) {
    const double first = series.points.front().x, last = series.points.back().x;
    std::vector<double> values(std::min(columns, series.points.size()), std::nan(""));
    for (const see::Point& point : series.points) {
      const double share = last > first ? (point.x - first) / (last - first) : 0;
      const auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
      values[at] = log_y ? std::log10(point.y) : point.y;
    }
    print("{}  {}{}, last {:.5g}\n{}\n", series.name, log_y ? "log10 of " : "", panel.title,
          series.points.back().y,
          terminal::draw_curve(values, {.width = width,
                                        .first = static_cast<int64_t>(first),
                                        .last = static_cast<int64_t>(last),
                                        .unicode = screen.unicode}));
  }
}

}  // namespace

int plot_command(Arguments& arguments) {
  std::vector<std::string> folders, metrics;
  std::string out, x = "step";
  double smooth = 0;
  int64_t width = 800, height = 300;
  see::SvgStyle style;
  arguments.rest("RUN", folders, "run folders, or names of runs in runs/");
  arguments.option("--metric", metrics, "what to draw, with commas or several times; default: loss");
  arguments.option("--x", x, "over what: step (default), tokens, time");
  arguments.option("--smooth", smooth,
                   "exponential mean, 0 to 0.999; what it was made from is drawn faintly");
  arguments.flag("--log-x", style.log_x, "logarithmic x axis (in a picture)");
  arguments.flag("--log-y", style.log_y, "logarithmic y axis");
  arguments.option("--out", out, "an SVG file, - for standard output; default: draw in the terminal");
  arguments.option("--width", width, "of the picture, in pixels");
  arguments.option("--height", height, "of each metric in the picture, in pixels");
  arguments.flag("--dark", style.dark, "light lines on a dark picture");
  arguments.example("lockstep plot runs/first", "its loss, here");
  arguments.example("lockstep plot runs/* --metric loss,grad_norm --smooth 0.9 --out curves.svg",
                    "all runs in one picture, two metrics");
  arguments.example("lockstep plot runs/a runs/b --x tokens --log-y --out compare.svg",
                    "compare by tokens seen");
  if (!arguments.parse()) return 0;
  if (folders.empty()) throw base::ConfigError(109, "plot needs a run folder: lockstep plot runs/first");
  if (!(smooth >= 0 && smooth < 1))
    throw base::ConfigError(109, "--smooth: expected a number from 0 to below 1");
  if (width < 200 || width > 10000 || height < 100 || height > 10000)
    throw base::ConfigError(109, "--width and --height: expected 200 and 100 to 10000 pixels");
  std::vector<std::string> wanted;
  for (const std::string& words : metrics) {
    std::istringstream list(words);
    for (std::string one; std::getline(list, one, ',');) {
      if (!one.empty()) wanted.push_back(one);
    }
  }
  if (wanted.empty()) wanted = {"loss"};

  std::vector<see::RunLog> runs;
  for (const std::string& folder : run_folders_named(folders)) {
    runs.emplace_back(folder);
    runs.back().poll();
  }
  const AxisName& axis = axis_of(x);
  std::vector<see::Panel> panels;
  for (const std::string& metric : wanted) {
    check_metric(runs, metric);
    panels.push_back(panel_of(runs, metric, axis.axis, smooth));
  }
  if (out.empty()) {
    for (const see::Panel& panel : panels) draw_in_terminal(panel, style.log_y);
    return 0;
  }
  style.width = static_cast<int>(width), style.panel_height = static_cast<int>(height);
  style.x_label = axis.label;
  style.source = "lockstep plot " + base::join(arguments.words(), " ");
  const std::string picture = see::draw_svg(panels, style);
  if (out == "-") {
    print("{}", picture);
  } else {
    base::write_file_durable(out, picture);
    remark("wrote {}\n", out);
  }
  return 0;
}

}  // namespace lockstep::cli
