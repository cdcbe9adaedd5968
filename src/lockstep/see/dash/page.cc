#include "lockstep/see/dash/page.h"

namespace lockstep::see {

namespace {

struct Bytes {
  std::string_view name, text;
};
#include "lockstep_dash_page.inc"  // made by CMake: constexpr Bytes kFiles[]

std::string_view type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

}  // namespace

const std::vector<PageFile>& page_files() {
  static const std::vector<PageFile> files = [] {
    std::vector<PageFile> all;
    for (const Bytes& file : kFiles) all.push_back({file.name, type_of(file.name), file.text});
    return all;
  }();
  return files;
}

const PageFile* find_page_file(std::string_view path) {
  if (path == "/") path = "/index.html";
  for (const PageFile& file : page_files()) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace lockstep::see
