// Curves as an SVG picture that stands on its own: for papers, notebooks and web pages.
//
//     const std::string picture = draw_svg({{.title = "loss", .series = {...}}}, {.x_label = "step"});
//
// Panels stand one below the other over a shared x axis. Colours are those of Okabe and Ito, which people who
// see few colours can tell apart; after eight runs the lines are dashed.
#pragma once

#include <string>
#include <vector>

#include "lockstep/see/series.h"

namespace lockstep::see {

struct Panel {
  std::string title;  // the metric
  std::vector<Series> series;
  std::vector<Series> faint;  // the same before smoothing, drawn behind in the same colours; may be empty
};

struct SvgStyle {
  int width = 800, panel_height = 300;  // pixels
  std::string x_label = "step";
  bool log_x = false, log_y = false;  // values that are not above 0 are left out
  bool dark = false;
  std::string source = {};  // said in the picture's <desc>: how to make it again
};

std::string draw_svg(const std::vector<Panel>& panels, const SvgStyle& style);

}  // namespace lockstep::see
