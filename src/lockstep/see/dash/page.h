// The dashboard's page: its files, as they are in see/dash/page/, inside the program.
#pragma once

#include <string_view>
#include <vector>

namespace lockstep::see {

struct PageFile {
  std::string_view path;  // "/dash.css"
  std::string_view type;  // "text/css; charset=utf-8"
  std::string_view text;
};
const std::vector<PageFile>& page_files();
const PageFile* find_page_file(std::string_view path);  // null: no such file; "/" is index.html

}  // namespace lockstep::see
