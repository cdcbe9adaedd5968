#include "lockstep/data/formats/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/formats/saved_folder.h"
#include "lockstep/recipe/path_list.h"
#include "lockstep/store/local.h"
#include "lockstep/store/remote_file.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 1'000'000;

std::string real_path(const fs::path& path) {
  if (store::is_uri(path.native())) return path.native();
  std::error_code ignored;
  const fs::path found = fs::canonical(path, ignored);
  return found.empty() ? path.string() : found.string();
}

// The files of one query, collected part by part.
class Search {
 public:
  explicit Search(const FileQuery& query) : query_(query) {
    for (const std::string& file : query.excluded) excluded_.insert(real_path(file));
  }

  void add(const std::string& written) {
    if (store::is_uri(written)) return add_fetched(written);
    const std::string part = recipe::with_home(written);
    walked_.clear();
    std::error_code error;
    const fs::file_status status = fs::status(part, error);
    if (const auto bin = megatron_file(part)) return found_.files.push_back(*bin);
    if (fs::is_directory(status)) return add_folder(part);
    if (fs::is_regular_file(status)) return found_.files.push_back(part);
    if (!fs::exists(status) && recipe::is_pattern(part)) return add_matches(part);
    refuse(part, error ? error.message() : "it is neither a regular file nor a folder");
  }

  FoundFiles take() { return std::move(found_); }

 private:
  [[noreturn]] void refuse(const std::string& part, const std::string& why) const {
    std::error_code ignored;
    const bool missing = fs::path(part).is_relative() && !fs::exists(part, ignored);
    throw base::DataError(
        202,
        fmt::format("{} ({}) cannot be read: {}{}", part, query_.key, why,
                    missing ? fmt::format(" in {}; paths in a recipe are looked up next to the recipe first",
                                          fs::current_path(ignored).string())
                            : ""));
  }

  bool is_excluded(const fs::path& file) const {
    return !excluded_.empty() && excluded_.contains(real_path(file));
  }

  bool is_wanted(const std::string& name) const {
    return query_.extensions.empty() ||
           std::any_of(query_.extensions.begin(), query_.extensions.end(),
                       [&](const std::string& end) { return name.ends_with(end); });
  }

  void add_matches(const std::string& pattern) {
    const std::vector<std::string> matches = recipe::matches_of(pattern);
    if (matches.empty()) refuse(pattern, "no file matches");
    std::vector<std::string> files;
    for (const std::string& path : matches) {
      std::error_code error;
      const fs::file_status status = fs::status(path, error);
      if (fs::is_directory(status)) {
        walk(path, files);
      } else if (!fs::is_regular_file(status)) {
        refuse(path, error ? error.message() : "it is neither a regular file nor a folder");
      } else if (!is_excluded(path) && !belongs_to_another(path)) {
        files.push_back(path);
      }
    }
    take_sorted(std::move(files), "the pattern " + pattern);
  }

  // From an object store, by way of the cache.
  void add_fetched(const std::string& uri) {
    walked_.clear();
    if (query_.remote != FileQuery::Remote::fetched && add_uris(uri)) return;
    const store::Local local = store::fetch(uri);
    if (local.is_folder) return add_folder(local.path);
    if (!local.path.empty()) return found_.files.push_back(local.path);
    std::vector<std::string> files;
    for (const std::string& file : local.files) {
      if (!is_excluded(file) && !belongs_to_another(file)) files.push_back(file);
    }
    take_sorted(std::move(files), "the pattern " + uri);
  }

  // Whether it stays in its store for now.
  bool add_uris(const std::string& text) {
    const store::Listed listed = store::list_of(text);
    int64_t bytes = 0;
    for (const store::Object& object : listed.objects) {
      if (is_part_of_several(object.key)) return false;
      bytes += object.size;
    }
    if (query_.remote == FileQuery::Remote::streamed && bytes <= store::largest_fetched()) return false;
    std::vector<std::string> files;
    const std::string query = listed.uri.query.empty() ? "" : "?" + listed.uri.query;
    for (const store::Object& object : listed.objects) {
      const std::string uri = listed.uri.shown(object.key) + query;
      if (!is_wanted(object.key)) {
        found_.left_out.push_back(listed.uri.shown(object.key));
      } else if (!excluded_.contains(uri)) {
        files.push_back(uri);
        found_.objects.emplace(uri, object);
      }
    }
    take_sorted(std::move(files), listed.uri.shown());
    return true;
  }

  // Megatron's pairs, folders of arrays, MDS, and what datasets saved.
  static bool is_part_of_several(const std::string& key) {
    const std::string name = fs::path(key).filename().string();
    return key.ends_with(".idx") || key.ends_with(".npy") || name == "index.json" || name == "state.json" ||
           name == "dataset_dict.json";
  }

  void add_folder(const std::string& folder) {
    std::vector<std::string> files;
    walk(folder, files);
    take_sorted(std::move(files), "the folder " + folder);
  }

  void take_sorted(std::vector<std::string> files, const std::string& from) {
    if (files.empty()) {
      std::vector<std::string> wanted;
      for (const std::string& end : query_.extensions) wanted.push_back("*" + end);
      throw base::DataError(
          203, fmt::format("{} ({}) contains no {}file; expected a folder of data files", from, query_.key,
                           wanted.empty() ? "" : base::join(wanted, " or ") + " "));
    }
    std::sort(files.begin(), files.end());
    found_.files.insert(found_.files.end(), files.begin(), files.end());
  }

  // A folder that several links lead to is walked once.
  void walk(const fs::path& folder, std::vector<std::string>& files) {
    if (!walked_.insert(real_path(folder)).second) return;
    if (const auto saved = files_of_saved(folder.string())) {
      for (const std::string& file : *saved) {
        if (!is_wanted(file)) {
          found_.left_out.push_back(file);
        } else if (!is_excluded(file)) {
          files.push_back(file);
        }
      }
      return;
    }
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const fs::path& path = it->path();
      if (path.filename().native().front() == '.') continue;
      std::error_code gone;
      if (it->is_directory(gone)) {
        walk(path, files);
      } else if (belongs_to_another(path.native())) {
        continue;
      } else if (!is_wanted(path.native())) {
        found_.left_out.push_back(path);
      } else if (it->is_symlink(gone) && !it->exists(gone)) {  // the rest alone would go unnoticed
        throw base::DataError(202, fmt::format("{} ({}) is a broken symbolic link; fix or remove it",
                                               path.native(), query_.key));
      } else if (it->is_regular_file(gone) && !is_excluded(path)) {
        files.push_back(path);
      }
      if (files.size() > kMostFiles)
        refuse(folder, fmt::format("it contains more than {} files", kMostFiles));
    }
    if (error) {
      throw base::IoError(202, fmt::format("the folder {} ({}) cannot be read: {}; check its permissions",
                                           folder.native(), query_.key, error.message()));
    }
  }

  const FileQuery& query_;
  std::set<std::string> excluded_, walked_;
  FoundFiles found_;
};

}  // namespace

FoundFiles find_files(const FileQuery& query) {
  const std::vector<std::string> parts = recipe::split_paths(query.path);
  if (parts.empty()) {
    throw base::ConfigError(
        201, fmt::format("{} is empty; set it to a file, a folder, a pattern or a comma-separated list",
                         query.key));
  }
  Search search(query);
  for (const std::string& part : parts) search.add(part);
  return search.take();
}

}  // namespace lockstep::data
