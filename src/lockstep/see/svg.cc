#include "lockstep/see/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/see/ticks.h"

namespace lockstep::see {

namespace {

constexpr const char* kColours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                    "#E69F00", "#56B4E9", "#8A6FB0", "#777777"};
constexpr size_t kColourCount = std::size(kColours);
constexpr const char* kDashes[] = {"", "6 3", "2 2", "8 3 2 3"};
constexpr double kLeft = 64, kRight = 16, kTop = 30, kBottom = 22, kFoot = 26, kLegendLine = 18,
                 kMargin = 6;    // between the lowest and highest values and the ends of the axis
constexpr double kLetter = 6.6;  // the width of one, about, at 12 pixels

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// From numbers to pixels along one axis.
struct Scale {
  double low = std::numeric_limits<double>::infinity(), high = -low, from = 0, to = 1;
  bool logarithmic = false;

  bool takes(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
  void include(double value) {
    if (takes(value)) low = std::min(low, value), high = std::max(high, value);
  }
  bool empty() const { return !(low <= high); }
  double place(double value) const {
    if (!(high > low)) return (from + to) / 2;
    const double share =
        logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  }
  std::vector<Tick> marks(int wanted) const {
    return logarithmic ? log_ticks(low, high, wanted) : ticks(low, high, wanted);
  }
};

struct Names {  // of all runs, in one order for every panel
  std::vector<std::string> all;
  size_t index(const std::string& name) {
    const auto found = std::find(all.begin(), all.end(), name);
    if (found != all.end()) return static_cast<size_t>(found - all.begin());
    all.push_back(name);
    return all.size() - 1;
  }
};

std::string path_of(const Series& series, const Scale& x, const Scale& y, double width) {
  std::vector<Point> drawn;
  for (const Point& point : series.points) {
    if (x.takes(point.x) && y.takes(point.y)) drawn.push_back({x.place(point.x), y.place(point.y)});
  }
  drawn = thinned(drawn, static_cast<size_t>(width) * 4);
  std::string path;
  for (size_t i = 0; i < drawn.size(); ++i)
    path += fmt::format("{}{:.1f},{:.1f}", i == 0 ? "M" : "L", drawn[i].x, drawn[i].y);
  if (drawn.size() == 1) path += "h0.1";  // a dot
  return path;
}

// The colour and dashes of the run with this number.
std::string stroke_of(size_t index) {
  const char* dash = kDashes[(index / kColourCount) % std::size(kDashes)];
  return fmt::format(" stroke=\"{}\"{}", kColours[index % kColourCount],
                     *dash == '\0' ? "" : fmt::format(" stroke-dasharray=\"{}\"", dash));
}

// The picture as it grows.
class Picture {
 public:
  Picture(const std::vector<Panel>& panels, const SvgStyle& style) : style_(style) {
    x_.from = kLeft, x_.to = style.width - kRight, x_.logarithmic = style.log_x;
    for (const Panel& panel : panels) {
      for (const Series& series : panel.series) {
        names_.index(series.name);
        for (const Point& point : series.points) x_.include(point.x);
      }
    }
    draw_legend();
    const double top = 8 + legend_height_, step = style.panel_height;
    for (size_t p = 0; p < panels.size(); ++p) draw_panel(panels[p], top + step * static_cast<double>(p));
    height_ = top + step * static_cast<double>(panels.size()) + kFoot;
  }

  std::string text() const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" viewBox=\"0 0 {0} "
        "{1:.0f}\" "
        "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"{2}\" role=\"img\">\n"
        "<desc>{3}</desc>\n<rect width=\"100%\" height=\"100%\" fill=\"{4}\"/>\n{5}"
        "<text x=\"{6:.1f}\" y=\"{7:.1f}\" text-anchor=\"middle\">{8}</text>\n</svg>\n",
        style_.width, height_, ink(), escaped(style_.source), style_.dark ? "#16181c" : "#ffffff", body_,
        (x_.from + x_.to) / 2, height_ - 8, escaped(style_.x_label));
  }

 private:
  const char* ink() const { return style_.dark ? "#dddddd" : "#222222"; }
  const char* grid() const { return style_.dark ? "#33363c" : "#e4e4e4"; }
  double inner() const { return x_.to - x_.from; }

  // In as many lines as the names need; none for a single run.
  void draw_legend() {
    if (names_.all.size() < 2) return;
    double at = kLeft, above = 0;
    for (size_t i = 0; i < names_.all.size(); ++i) {
      const double needed = 30 + kLetter * static_cast<double>(names_.all[i].size());
      if (at > kLeft && at + needed > x_.to) at = kLeft, above += kLegendLine;
      body_ += fmt::format(
          "<path d=\"M{:.1f},{:.1f}h20\" stroke-width=\"2.5\"{}/><text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
          at, above + 14, stroke_of(i), at + 26, above + 18, escaped(names_.all[i]));
      at += needed + 12;
    }
    legend_height_ = above + kLegendLine;
  }

  void draw_panel(const Panel& panel, double above) {
    const double below = above + style_.panel_height;
    Scale y{.from = below - kBottom - kMargin, .to = above + kTop + kMargin, .logarithmic = style_.log_y};
    for (const Series& series : panel.series) {
      for (const Point& point : series.points) y.include(point.y);
    }
    body_ += fmt::format("<text x=\"{}\" y=\"{:.1f}\" font-weight=\"bold\">{}</text>\n", kLeft,
                         above + kTop - 10, escaped(panel.title));
    if (x_.empty() || y.empty()) {
      body_ +=
          fmt::format("<text x=\"{}\" y=\"{:.1f}\">nothing to draw</text>\n", kLeft, (above + below) / 2);
      return;
    }
    draw_axes(y);
    // What smoothing took away may be far outside.
    body_ += fmt::format(
        "<clipPath id=\"panel{0}\"><rect x=\"{1}\" y=\"{2:.1f}\" width=\"{3}\" "
        "height=\"{4:.1f}\"/></clipPath>\n"
        "<g clip-path=\"url(#panel{0})\">\n",
        panels_, kLeft, y.to - kMargin, inner(), y.from - y.to + 2 * kMargin);
    ++panels_;
    for (const Series& series : panel.faint)
      draw_line(series, y, " stroke-width=\"1\" stroke-opacity=\"0.3\"");
    for (const Series& series : panel.series) draw_line(series, y, " stroke-width=\"1.6\"");
    body_ += "</g>\n";
  }

  void draw_axes(const Scale& y) {
    for (const Tick& tick : y.marks(std::max(2, style_.panel_height / 55))) {
      const double place = y.place(tick.at);
      body_ += fmt::format(
          "<path d=\"M{},{:.1f}h{}\" stroke=\"{}\"/><text x=\"{}\" y=\"{:.1f}\" "
          "text-anchor=\"end\">{}</text>\n",
          kLeft, place, inner(), grid(), kLeft - 6, place + 4, tick.label);
    }
    for (const Tick& tick : x_.marks(std::max(2, static_cast<int>(inner() / 90)))) {
      body_ += fmt::format(
          "<path d=\"M{0:.1f},{1:.1f}V{2:.1f}\" stroke=\"{3}\"/><text x=\"{0:.1f}\" y=\"{4:.1f}\" "
          "text-anchor=\"middle\">{5}</text>\n",
          x_.place(tick.at), y.to - kMargin, y.from + kMargin, grid(), y.from + kMargin + 16, tick.label);
    }
    body_ += fmt::format("<path d=\"M{},{:.1f}V{:.1f}H{}\" fill=\"none\" stroke=\"{}\"/>\n", kLeft,
                         y.to - kMargin, y.from + kMargin, x_.to, ink());
  }

  void draw_line(const Series& series, const Scale& y, const char* look) {
    const std::string path = path_of(series, x_, y, inner());
    if (path.empty()) return;
    body_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke-linecap=\"round\"{}{}/>\n", path,
                         stroke_of(names_.index(series.name)), look);
  }

  const SvgStyle& style_;
  Names names_;
  Scale x_;
  std::string body_;
  double legend_height_ = 0, height_ = 0;
  int panels_ = 0;
};

}  // namespace

std::string draw_svg(const std::vector<Panel>& panels, const SvgStyle& style) {
  return Picture(panels, style).text();
}

}  // namespace lockstep::see
