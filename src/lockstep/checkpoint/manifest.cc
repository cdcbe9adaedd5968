#include "lockstep/checkpoint/manifest.h"

#include <fmt/format.h>

#include <limits>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/formats/safe_path.h"
#include "lockstep/checkpoint/formats/strict_json.h"
#include "lockstep/checkpoint/saving/file_writer.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr int64_t kFormat = 2;  // 1 had one checksum a file
constexpr int64_t kMostBytes = int64_t{256} << 20;

std::string hex_of(const std::vector<unsigned char>& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Keys are sorted, so the text does not depend on how the file is laid out.
std::string checksum_without_itself(Json manifest) {
  manifest.erase("checksum");
  return base::hex64(base::hash_text(manifest.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

// Reads members of the expected type or refuses, naming key and file.
class Reader {
 public:
  Reader(const std::string& path, const Json& json) : path_(path), json_(json) {}

  int64_t size(const char* key) const {
    const Json& value = member(key);
    if (!value.is_number_unsigned()) refuse(fmt::format("\"{}\" is not an integer", key));
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      refuse(fmt::format("\"{}\" is out of range", key));
    return static_cast<int64_t>(number);
  }

  std::string text(const char* key) const {
    const Json& value = member(key);
    if (!value.is_string()) refuse(fmt::format("\"{}\" is not a string", key));
    return value.get<std::string>();
  }

  std::vector<unsigned char> bytes(const char* key) const {
    const std::string hex = text(key);
    if (hex.size() % 2 != 0 || hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
      refuse(fmt::format("\"{}\" is not hexadecimal", key));
    }
    std::vector<unsigned char> result;
    for (size_t i = 0; i < hex.size(); i += 2) {
      result.push_back(static_cast<unsigned char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    return result;
  }

  std::optional<std::vector<std::string>> names(const char* key) const {
    if (!json_.is_object() || !json_.contains(key)) return std::nullopt;
    std::vector<std::string> result;
    if (!json_[key].is_array()) refuse(fmt::format("\"{}\" is not a list", key));
    for (const Json& one : json_[key]) {
      if (!one.is_string()) refuse(fmt::format("\"{}\" holds something else than names", key));
      result.push_back(one.get<std::string>());
    }
    return result;
  }

  std::optional<Base> base() const {
    if (!json_.is_object() || !json_.contains("base")) return std::nullopt;
    const Reader of(path_, json_["base"]);
    Base base{of.text("folder"), of.text("fingerprint")};
    if (!json_["base"].contains("format")) return base;
    base.format = kernels::quantized_of(of.text("format"));
    if (base.format == kernels::Quantized::none)
      refuse(fmt::format("\"format\" is {}, which is no format of quantized weights",
                         base::quoted(of.text("format"))));
    base.quantized = of.names("quantized").value_or(std::vector<std::string>{});
    return base;
  }

  std::vector<FileSummary> files(const char* key) const {
    const Json& value = member(key);
    if (!value.is_array()) refuse(fmt::format("\"{}\" is not a list", key));
    std::vector<FileSummary> result;
    std::set<std::string> seen;
    for (const Json& one : value) {
      const Reader file(path_, one);
      result.push_back(file.summary());
      if (!seen.insert(result.back().name).second) {
        refuse(fmt::format("{} is listed twice", base::quoted(result.back().name)));
      }
    }
    return result;
  }

  FileSummary summary() const {
    FileSummary file{text("name"), size("bytes"), {}};
    if (!read_sums(text("crc32c"), file.sums) ||
        static_cast<int64_t>(file.sums.size()) !=
            (file.bytes / kChunkBytes) + (file.bytes % kChunkBytes != 0)) {
      refuse(fmt::format("\"crc32c\" of {} does not have eight digits per MiB", base::quoted(file.name)));
    }
    return file;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw CheckpointError(
        304, fmt::format("{} is not a valid manifest: {}; use another checkpoint of the run", path_, why));
  }

 private:
  const Json& member(const char* key) const {
    if (!json_.is_object() || !json_.contains(key)) refuse(fmt::format("\"{}\" is missing", key));
    return json_[key];
  }

  const std::string& path_;
  const Json& json_;
};

}  // namespace

void write_manifest(const std::string& folder, const Manifest& manifest, const Disk& disk) {
  Json files = Json::array();
  for (const FileSummary& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"crc32c", sums_text(file.sums)}});
  }
  Json json = {{"format", "lockstep checkpoint"}, {"version", kFormat},
               {"step", manifest.step},           {"recipe", manifest.recipe_toml},
               {"state", hex_of(manifest.state)}, {"params_hash", manifest.params_hash},
               {"layout", manifest.layout},       {"files", files}};
  json["written_by"] = base::kVersion;
  if (manifest.statistics) json["statistics"] = *manifest.statistics;
  if (manifest.base)
    json["base"] = {{"folder", manifest.base->folder}, {"fingerprint", manifest.base->fingerprint}};
  if (manifest.base && manifest.base->format != kernels::Quantized::none) {
    json["base"]["format"] = kernels::name_of(manifest.base->format);
    json["base"]["quantized"] = manifest.base->quantized;
  }
  if (!manifest.own_hash.empty()) json["own_hash"] = manifest.own_hash;
  json["checksum"] = checksum_without_itself(json);
  write_text(folder + "/" + kManifestName, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n",
             disk);
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = file_inside(folder, kManifestName, folder);
  return parse_manifest(read_small_file(path, kMostBytes), path);
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const Json json = parse_strict(text, 304, path);
  const Reader reader(path, json);
  if (const int64_t format = reader.size("version"); format > kFormat) {
    const std::string by = json.contains("written_by") ? reader.text("written_by") : "a newer version";
    throw CheckpointError(
        347, fmt::format("{} was written by Lockstep {} in format {}, and this is {}, which reads formats "
                         "up to {}: install that version or a newer one",
                         path, by, format, base::kVersion, kFormat));
  } else if (format < kFormat) {
    reader.refuse(fmt::format("it has format {}, but this program reads format {}", format, kFormat));
  }
  if (reader.text("checksum") != checksum_without_itself(json)) {
    reader.refuse("it was modified or damaged after it was written");
  }
  return {.step = reader.size("step"),
          .recipe_toml = reader.text("recipe"),
          .params_hash = reader.text("params_hash"),
          .layout = reader.text("layout"),
          .state = reader.bytes("state"),
          .files = reader.files("files"),
          .statistics = reader.names("statistics"),
          .base = reader.base(),
          .own_hash = json.contains("own_hash") ? reader.text("own_hash") : ""};
}

}  // namespace lockstep::checkpoint
