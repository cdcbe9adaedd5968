#include "lockstep/model/frame.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::model {

namespace {

bool is(std::string_view key, std::string_view role, std::string_view name) {
  return key.size() == role.size() + name.size() && key.starts_with(role) && key.ends_with(name);
}

}  // namespace

std::vector<PositionedRows> SliceContext::rows() const {
  if (!ring) return {{0, samples, context_rank * seq_len, seq_len}};
  const int64_t half = samples / 2;
  return {{0, half, context_rank * seq_len, seq_len},
          {half * seq_len, half, (2 * context - 1 - context_rank) * seq_len, seq_len}};
}

kernels::Documents Frame::documents() const {
  const device::Tensor whole = find("batch.", "whole_documents");  // of all context ranks' tokens
  return {(whole ? whole : find("batch.", "documents")).as<int32_t>(),
          find("batch.", "offsets").as<int32_t>()};
}

void Frame::bind(std::string role_and_name, device::Tensor tensor) {
  values_.emplace_back(std::move(role_and_name), tensor);
}

device::Tensor Frame::statistic(std::string_view key, int64_t of_slice) const {
  return get("stat.", std::string(key) + "." + std::to_string(of_slice));
}

bool Frame::trains(std::string_view key) const {
  if (std::find(frozen_.begin(), frozen_.end(), key) != frozen_.end()) return false;
  return whole_ == nullptr || (whole_->trains(std::string(key) + suffix_) && whole_->trains(key));
}

Frame Frame::within(std::string suffix) const {
  Frame frame;
  static_cast<FrameContext&>(frame) = *this;
  frame.whole_ = this;
  frame.suffix_ = std::move(suffix);
  return frame;
}

const device::Tensor* Frame::look(std::string_view role, std::string_view name) const {
  for (const auto& [key, tensor] : values_) {
    if (is(key, role, name)) return &tensor;
  }
  if (whole_ == nullptr) return nullptr;
  const device::Tensor* const own = whole_->look(role, std::string(name) + suffix_);
  return own != nullptr ? own : whole_->look(role, name);
}

device::Tensor Frame::find(std::string_view role, std::string_view name) const {
  const device::Tensor* const tensor = look(role, name);
  return tensor != nullptr ? *tensor : device::Tensor{};
}

device::Tensor Frame::get(std::string_view role, std::string_view name) const {
  const device::Tensor* const tensor = look(role, name);
  LS_ASSERT(tensor != nullptr, "a segment asked for " + std::string(role) + std::string(name) +
                                   ", which its plan does not declare");
  return *tensor;
}

}  // namespace lockstep::model
