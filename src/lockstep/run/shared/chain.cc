#include "lockstep/run/shared/chain.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/run/shared/signing.h"

namespace lockstep::run {

using nlohmann::json;

namespace {

constexpr int kFormat = 1;

// What is the same whenever the same recipe is trained with the same bits.
constexpr const char* kSealed[] = {"step",
                                   "loss",
                                   "loss_hex",
                                   "lr",
                                   "grad_norm",
                                   "tokens",
                                   "samples",
                                   "rewards/chosen",
                                   "rewards/rejected",
                                   "rewards/margins",
                                   "rewards/accuracies",
                                   "loss_scale",
                                   "skipped",
                                   "params_hash",
                                   "eval_loss",
                                   "eval_loss_hex"};

}  // namespace

std::string sealed_part(const json& line) {
  if (!line.is_object() || !line.contains("step")) return "";
  if (!line.contains("loss_hex") && !line.contains("eval_loss_hex")) return "";
  json part = json::object();
  for (const char* key : kSealed) {
    if (line.contains(key)) part[key] = line[key];
  }
  return part.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string next_link(const std::string& previous, const std::string& sealed) {
  return sha256_hex(previous + "\n" + sealed);
}

void Chain::seal(json& line) {
  link_ = next_link(link_, sealed_part(line));
  line["chain"] = link_;
  if (key_) line["signature"] = key_->sign(link_);
}

std::string Genesis::to_text() const {
  return json{{"format", kFormat}, {"first_step", first_step}, {"recipe", recipe},
              {"record", record},  {"key", key_kind},          {"public_key", public_pem}}
             .dump(1) +
         "\n";
}

Genesis Genesis::from_text(std::string_view text) {
  const json read = json::parse(text, nullptr, false);
  try {
    if (read.at("format") != kFormat)
      throw base::DataError(338, fmt::format("chain.json is of format {}, known is {}; use the version of "
                                             "lockstep that wrote it",
                                             read.at("format").dump(), kFormat));
    return {read.at("recipe"), read.at("record"), read.at("key"), read.at("public_key"),
            read.at("first_step")};
  } catch (const json::exception&) {
    throw base::DataError(338,
                          "chain.json is damaged or was not written by a run with log.chain = true; "
                          "restore it from a copy of the run folder");
  }
}

}  // namespace lockstep::run
