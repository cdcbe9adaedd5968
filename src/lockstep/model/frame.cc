#include "lockstep/model/frame.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::model {

namespace {

bool is(std::string_view key, std::string_view role, std::string_view name) {
  return key.size() == role.size() + name.size() && key.starts_with(role) && key.ends_with(name);
}

// Values of tokens, of which each piece of a sequence has its share.
bool has_rows(std::string_view role) {
  constexpr std::string_view kRoles[] = {"in.",  "out.",  "save.", "again.",
                                         "din.", "dout.", "left.", "batch."};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

device::Tensor rows_of(const device::Tensor& all, int piece, int pieces) {
  LS_ASSERT(all.shape[0] % pieces == 0, "rows that the pieces do not divide");
  device::Tensor some{nullptr, all.dtype, with_rows(all.shape, all.shape[0] / pieces)};
  some.data = all.as<char>() + piece * some.bytes();
  return some;
}

}  // namespace

device::Shape with_rows(const device::Shape& shape, int64_t rows) {
  switch (shape.rank()) {
    case 1:
      return {rows};
    case 2:
      return {rows, shape[1]};
    case 3:
      return {rows, shape[1], shape[2]};
    default:
      LS_ASSERT(shape.rank() == 4, "a value without rows");
      return {rows, shape[1], shape[2], shape[3]};
  }
}

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

const int32_t* Frame::document_begins(const PositionedRows& rows) const {
  const int32_t* begins = documents().begins;
  return begins == nullptr ? nullptr : begins + rows.first_row;
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

Frame Frame::piece(int k, int count) const {
  Frame frame = within("");
  frame.piece_ = k;
  frame.pieces_ = count;
  frame.slice.samples /= count;
  frame.slice.context_rank += k;
  if (frame.loss != nullptr) frame.loss += k;
  return frame;
}

std::optional<device::Tensor> Frame::look(std::string_view role, std::string_view name) const {
  for (const auto& [key, tensor] : values_) {
    if (is(key, role, name)) return tensor;
  }
  if (whole_ == nullptr) return std::nullopt;
  std::optional<device::Tensor> found = whole_->look(role, std::string(name) + suffix_);
  if (!found && !suffix_.empty()) found = whole_->look(role, name);
  return found && pieces_ > 1 && has_rows(role) ? rows_of(*found, piece_, pieces_) : found;
}

device::Tensor Frame::find(std::string_view role, std::string_view name) const {
  return look(role, name).value_or(device::Tensor{});
}

device::Tensor Frame::get(std::string_view role, std::string_view name) const {
  const std::optional<device::Tensor> tensor = look(role, name);
  LS_ASSERT(tensor.has_value(), "a segment asked for " + std::string(role) + std::string(name) +
                                    ", which its plan does not declare");
  return *tensor;
}

}  // namespace lockstep::model
