#include "lockstep/data/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split_list(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return {path};  // a name may hold commas
  std::vector<std::string> parts;
  for (size_t from = 0; from <= path.size();) {
    const size_t comma = std::min(path.find(',', from), path.size());
    if (comma > from) parts.push_back(path.substr(from, comma - from));
    from = comma + 1;
  }
  return parts;
}

bool is_excluded(const std::string& file, const FileQuery& query) {
  std::error_code ignored;
  return std::any_of(query.excluded.begin(), query.excluded.end(),
                     [&](const std::string& other) { return fs::equivalent(file, other, ignored); });
}

void add_folder(const fs::path& folder, const FileQuery& query, std::vector<std::string>& files) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::path& file = it->path();
    std::error_code vanished;
    const bool wanted = file.filename().native().front() != '.' && file.native().ends_with(query.extension);
    if (!wanted) continue;
    if (it->is_symlink(vanished) && !it->exists(vanished)) {  // training on the rest would go unnoticed
      throw base::DataError(
          202, fmt::format("{} ({}) is a link to nothing: mend or remove it", file.native(), query.key));
    }
    if (it->is_regular_file(vanished) && !is_excluded(file, query)) found.push_back(file);
  }
  if (error) {
    throw base::IoError(202, fmt::format("the folder {} ({}) cannot be read: {}; check its permissions",
                                         folder.native(), query.key, error.message()));
  }
  if (found.empty()) {
    throw base::DataError(
        203, fmt::format("the folder {} ({}) holds no {}; name a folder of data files", folder.native(),
                         query.key, query.extension.empty() ? "file" : "*" + query.extension + " file"));
  }
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

}  // namespace

std::vector<std::string> find_files(const FileQuery& query) {
  const std::vector<std::string> parts = split_list(query.path);
  if (parts.empty()) {
    throw base::ConfigError(
        201, fmt::format("{} names no file; set it to a file, a folder or a list with commas", query.key));
  }
  std::vector<std::string> files;
  for (const std::string& part : parts) {
    std::error_code error;
    const fs::file_status status = fs::status(part, error);
    if (fs::is_directory(status)) {
      add_folder(part, query, files);
    } else if (fs::is_regular_file(status)) {
      files.push_back(part);
    } else {
      const std::string why = error ? error.message() : "it is neither a regular file nor a folder";
      throw base::DataError(202, fmt::format("{} ({}) cannot be read: {}", part, query.key, why));
    }
  }
  return files;
}

}  // namespace lockstep::data
