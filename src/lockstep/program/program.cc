#include "lockstep/program/program.h"

#include <fmt/format.h>

namespace lockstep::program {

const char* name_of(Lane lane) {
  static constexpr const char* kNames[] = {"compute", "gather", "reduce", "seam", "send", "recv", "host"};
  return kNames[static_cast<int>(lane)];
}

const char* name_of(Among among) {
  static constexpr const char* kNames[] = {
      "none",         "data ranks",    "shard ranks", "replicas",  "the node's ranks", "nodes",
      "tensor ranks", "context ranks", "one copy",    "all ranks", "the next stage",   "the previous stage"};
  return kNames[static_cast<int>(among)];
}

const char* name_of(BufferKind kind) {
  static constexpr const char* kNames[] = {"weights",
                                           "weights (compute copy)",
                                           "gradients",
                                           "optimizer",
                                           "state",
                                           "batch",
                                           "activations",
                                           "saved for backward",
                                           "activation gradients",
                                           "scratch",
                                           "workspace",
                                           "frozen weights",
                                           "quantized weights"};
  return kNames[static_cast<int>(kind)];
}

int Stages::stage_of(int block) const {
  for (size_t k = 0; k < pieces.size(); ++k) {
    if (block >= pieces[k].begin && block < pieces[k].end) return static_cast<int>(k) % count;
  }
  return 0;
}

int Program::add_buffer(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return static_cast<int>(buffers.size()) - 1;
}

std::string title(const Program&, const model::Model& model, const Instruction& i) {
  std::string text = name_of(verb_of(i.what));
  if (i.block >= 0) {
    text += fmt::format(" b{}", i.block);
    if (i.segment >= 0)
      text +=
          "." + model.blocks[static_cast<size_t>(i.block)].segments()[static_cast<size_t>(i.segment)]->name();
  }
  if (i.slice >= 0) text += fmt::format(" s{}", i.slice);
  text += stage_of(i.what);
  if (i.among == Among::none) return text;
  const Verb verb = verb_of(i.what);
  const char* how = verb == Verb::send ? "to" : verb == Verb::recv ? "from" : "among";
  text += fmt::format(" {} {}", how, name_of(i.among));
  return text;
}

}  // namespace lockstep::program
