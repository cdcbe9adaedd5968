#include "lockstep/program/operation.h"

#include <fmt/format.h>

namespace lockstep::program {

namespace {

Verb verb_of_pass(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return Verb::forward;
    case Pass::loss:
      return Verb::loss;
    case Pass::recompute:
      return Verb::recompute;
    case Pass::backward_input:
      return Verb::backward_input;
    case Pass::backward_weight:
      return Verb::backward_weight;
    case Pass::prepare:
      break;
  }
  return Verb::cast;
}

}  // namespace

Verb verb_of(const Operation& what) {
  return std::visit(Cases{[](const BeginStep&) { return Verb::load; },
                          [](const LoadSlice&) { return Verb::load; },
                          [](const RunSegment& run) { return verb_of_pass(run.pass); },
                          [](const FoldStatistics&) { return Verb::sum; },
                          [](const SumValues&) { return Verb::reduce; },
                          [](const GatherTokens&) { return Verb::gather; },
                          [](const ScatterTokens&) { return Verb::reduce; },
                          [](const ExchangeHeads&) { return Verb::exchange; },
                          [](const ShiftRing&) { return Verb::exchange; },
                          [](const AddEdges&) { return Verb::sum; },
                          [](const SendValues&) { return Verb::send; },
                          [](const RecvValues&) { return Verb::recv; },
                          [](const SendTied&) { return Verb::send; },
                          [](const RecvTied&) { return Verb::recv; },
                          [](const SendWeights&) { return Verb::send; },
                          [](const RecvWeights&) { return Verb::recv; },
                          [](const GatherWeights&) { return Verb::gather; },
                          [](const ReleaseWeights&) { return Verb::release; },
                          [](const DequantizeWeights&) { return Verb::cast; },
                          [](const JoinStrands&) { return Verb::sum; },
                          [](const SumPartials&) { return Verb::reduce; },
                          [](const ReduceGradients&) { return Verb::reduce; },
                          [](const GatherSums&) { return Verb::gather; },
                          [](const AddTied&) { return Verb::sum; },
                          [](const SumInputs&) { return Verb::reduce; },
                          [](const SumScalars&) { return Verb::reduce; },
                          [](const GatherStatistics&) { return Verb::gather; },
                          [](const Norm&) { return Verb::norm; },
                          [](const ToOwners&) { return Verb::exchange; },
                          [](const FromOwners&) { return Verb::exchange; },
                          [](const Update&) { return Verb::update; }},
                    what);
}

bool can_repeat(const Operation& what) {
  return std::visit(Cases{[](const BeginStep&) { return true; },
                          [](const LoadSlice&) { return true; },
                          [](const RunSegment&) { return true; },
                          [](const FoldStatistics&) { return false; },
                          [](const SumValues&) { return true; },
                          [](const GatherTokens&) { return true; },
                          [](const ScatterTokens&) { return true; },
                          [](const ExchangeHeads&) { return true; },
                          [](const ShiftRing&) { return true; },
                          [](const AddEdges&) { return true; },
                          [](const SendValues&) { return true; },
                          [](const RecvValues&) { return true; },
                          [](const SendTied&) { return false; },
                          [](const RecvTied&) { return false; },
                          [](const SendWeights&) { return false; },
                          [](const RecvWeights&) { return false; },
                          [](const GatherWeights& gather) { return !gather.after_update; },
                          [](const ReleaseWeights&) { return true; },
                          [](const DequantizeWeights&) { return true; },
                          [](const JoinStrands&) { return false; },
                          [](const SumPartials&) { return false; },
                          [](const ReduceGradients&) { return false; },
                          [](const GatherSums&) { return false; },
                          [](const AddTied&) { return false; },
                          [](const SumInputs&) { return true; },
                          [](const SumScalars&) { return false; },
                          [](const GatherStatistics&) { return false; },
                          [](const Norm&) { return false; },
                          [](const ToOwners&) { return false; },
                          [](const FromOwners&) { return false; },
                          [](const Update&) { return false; }},
                    what);
}

const char* name_of(Verb verb) { return name_of_verb(static_cast<uint16_t>(verb)); }

const char* name_of_verb(uint16_t number) {
  static constexpr const char* kNames[] = {
      "load",      "forward", "loss",    "backward_input", "backward_weight",
      "recompute", "gather",  "release", "reduce",         "sum",
      "exchange",  "send",    "recv",    "norm",           "update",
      nullptr,     "cast"};
  return number < std::size(kNames) ? kNames[number] : nullptr;
}

std::string stage_of(const Operation& what) {
  if (const auto* reduce = std::get_if<ReduceGradients>(&what); reduce != nullptr && reduce->round >= 0)
    return fmt::format(" round {}", reduce->round);
  if (const auto* partial = std::get_if<SumPartials>(&what); partial != nullptr && partial->round >= 0)
    return fmt::format(" round {}", partial->round);
  if (const auto* run = std::get_if<RunSegment>(&what); run != nullptr && run->part >= 0)
    return fmt::format(" part {}", run->part);
  if (const auto* update = std::get_if<Update>(&what); update != nullptr && update->region > 0)
    return fmt::format(" region {}", update->region);
  if (const auto* to = std::get_if<ToOwners>(&what); to != nullptr)
    return fmt::format(" region {} to owners", to->region);
  if (const auto* from = std::get_if<FromOwners>(&what); from != nullptr)
    return fmt::format(" region {} from owners", from->region);
  if (const auto* gather = std::get_if<GatherWeights>(&what); gather != nullptr) {
    if (gather->stored == model::Stored::frozen) return " frozen";
    if (gather->stored == model::Stored::quantized) return " quantized";
  }
  return "";
}

}  // namespace lockstep::program
