// libFuzzer: whatever a manifest.json or an index says, it is refused in words. The manifest's checksum of itself is
// made to fit, so that what lies behind it is reached.
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/formats/shards.h"

namespace {

template <class Action>
void refused_or_fine(Action action) {
  try {
    action();
  } catch (const lockstep::base::DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  refused_or_fine([&] { lockstep::checkpoint::parse_manifest(text, "manifest.json"); });
  refused_or_fine([&] { lockstep::checkpoint::parse_index(text, "index.json"); });
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return 0;
  json.erase("checksum");
  const std::string plain = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  json["checksum"] = lockstep::base::hex64(lockstep::base::hash_text(plain));
  const std::string fitting = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  refused_or_fine([&] { lockstep::checkpoint::parse_manifest(fitting, "manifest.json"); });
  return 0;
}
