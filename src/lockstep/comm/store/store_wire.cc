#include "lockstep/comm/store/store_wire.h"

namespace lockstep::comm {
namespace {

constexpr size_t kLengthBytes = 4, kNumberBytes = 8;

void put(std::string& to, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t take_number(std::string_view& from, size_t bytes) {  // from.size() >= bytes
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(from[i])} << (8 * i);
  from.remove_prefix(bytes);
  return value;
}

}  // namespace

std::string encode(const Message& message) {
  size_t body = 1 + kNumberBytes;
  for (const std::string& word : message.words) body += kLengthBytes + word.size();
  std::string frame;
  frame.reserve(kLengthBytes + body);
  put(frame, body, kLengthBytes);
  put(frame, static_cast<uint8_t>(message.code), 1);
  put(frame, static_cast<uint64_t>(message.number), kNumberBytes);
  for (const std::string& word : message.words) {
    put(frame, word.size(), kLengthBytes);
    frame += word;
  }
  return frame;
}

std::optional<Message> decode(std::string_view body) {
  if (body.size() < 1 + kNumberBytes) return std::nullopt;
  const uint64_t code = take_number(body, 1);
  if (code < static_cast<uint64_t>(Code::hello) || code > static_cast<uint64_t>(Code::elsewhere))
    return std::nullopt;
  Message message{static_cast<Code>(code), static_cast<int64_t>(take_number(body, kNumberBytes)), {}};
  while (!body.empty()) {
    if (body.size() < kLengthBytes || message.words.size() == kMostWords) return std::nullopt;
    const uint64_t length = take_number(body, kLengthBytes);
    if (length > body.size()) return std::nullopt;
    message.words.emplace_back(body.substr(0, length));
    body.remove_prefix(length);
  }
  return message;
}

std::optional<uint32_t> FrameBuffer::announced() const {
  std::string_view bytes = view();
  if (bytes.size() < kLengthBytes) return std::nullopt;
  return static_cast<uint32_t>(take_number(bytes, kLengthBytes));
}

std::optional<std::string> FrameBuffer::take() {
  const std::optional<uint32_t> length = announced();
  if (!length || size() < kLengthBytes + *length) return std::nullopt;
  std::string body = bytes_.substr(begin_ + kLengthBytes, *length);
  begin_ += kLengthBytes + *length;
  if (begin_ == bytes_.size()) {
    bytes_ = std::string();  // gives the memory of a large frame back
    begin_ = 0;
  }
  return body;
}

}  // namespace lockstep::comm
