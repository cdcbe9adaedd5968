// Where the program was put: a build, a Python package (with the list of files that pip leaves), or a bundle.
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/device/facts.h"

namespace lockstep::device {

namespace {

namespace fs = std::filesystem;

// "lockstep_trainer-0.1.0.dist-info", beside the package.
fs::path info_folder(const fs::path& site) {
  std::error_code error;
  for (fs::directory_iterator at(site, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (name.starts_with("lockstep_trainer-") && name.ends_with(".dist-info")) return at->path();
  }
  return {};
}

// ENV/lib/python3.11/site-packages: ENV/bin/python.
std::string python_of(const fs::path& site) {
  std::error_code ignored;
  fs::path prefix = site.parent_path().parent_path().parent_path();
  for (const fs::path& candidate : {prefix / "bin/python3", prefix.parent_path() / "bin/python3"}) {
    if (::access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  return "";
}

// Rows of RECORD: path,sha256=...,bytes. Only sizes are compared: hundreds of megabytes are not read.
void compare(const fs::path& site, const std::string& record, InstallationFacts& facts) {
  for (const std::string& line : base::split_lines(record)) {
    const std::string row(base::trimmed(line));  // pip ends its lines with CR LF
    const size_t last = row.rfind(','), before = last == std::string::npos ? last : row.rfind(',', last - 1);
    if (before == std::string::npos) continue;
    const std::string name = row.substr(0, before);
    const auto bytes = base::parse_number<uintmax_t>(row.substr(last + 1));
    if (!bytes || name.find(".data/") != std::string::npos) continue;  // itself, and what pip has moved
    ++facts.files;
    std::error_code error;
    const uintmax_t size = fs::file_size(site / name, error);
    // pip writes the first line of scripts again.
    if (error || (size != *bytes && name.find("/bin/") == std::string::npos)) facts.damaged.push_back(name);
  }
}

}  // namespace

InstallationFacts read_installation(const std::string& library) {
  InstallationFacts facts;
  std::error_code error;
  const fs::path package = fs::weakly_canonical(library, error).parent_path().parent_path(),
                 site = package.parent_path();
  facts.folder = package.string();
  if (package.filename() != "lockstep" ||
      package / "lib" / fs::path(library).filename() != fs::weakly_canonical(library, error)) {
    facts.folder = fs::weakly_canonical(library, error).parent_path().string();
    return facts;
  }
  if (!fs::exists(package / "__init__.py", error)) {
    // A bundle's program lies above; source trees have a folder of this name too.
    if (fs::exists(site / "bin" / "lockstep", error))
      facts.kind = InstallationFacts::Kind::bundle, facts.folder = site.string();
    return facts;
  }
  facts.kind = InstallationFacts::Kind::package;
  facts.folder = site.string();
  facts.python = python_of(site);
  facts.cuda_12 = fs::exists(site / "nvidia/cublas/lib", error);
  const fs::path info = info_folder(site);
  const base::ReadResult record = base::try_read_file((info / "RECORD").string(), 1 << 24);
  facts.recorded = !info.empty() && record.problem.empty();
  if (facts.recorded) compare(site, record.text, facts);
  return facts;
}

}  // namespace lockstep::device
