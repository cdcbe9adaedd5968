// The language between a store's client and its server: frames, and the messages in them.
//
// A frame is a length (4 bytes, little-endian) and that many bytes. They hold a message: one code byte, one
// number (8 bytes) and any number of words, each a length (4 bytes) and its bytes. Nothing is allocated on
// the word of a peer: buffers grow with the bytes that really came.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

constexpr size_t kMostWords = size_t{1} << 20;

enum class Code : uint8_t {
  // Handshake, in this order.
  hello = 1,  // client: {kProtocol, its challenge, who it is, whose store it looks for}
  challenge,  // server: {its challenge}
  proof,      // client: {HMAC}
  welcome,    // server: {HMAC}; the number is the most bytes of a message
  // Requests; the number is the timeout in milliseconds, or the amount to add.
  set,
  get,
  try_get,
  add,
  compare_set,
  append,
  wait,
  check,
  remove,
  keys,
  push,
  pop,
  queue_length,
  // Replies.
  ok,
  absent,
  timed_out,  // {the keys that are missing}
  refused,    // {why}
  elsewhere,  // to a hello: this is the store of another run
};

struct Message {
  Code code = Code::ok;
  int64_t number = 0;
  std::vector<std::string> words;
};

std::string encode(const Message& message);                  // a whole frame
std::optional<Message> decode(std::string_view frame_body);  // nothing: malformed

// Bytes that came in, cut into frames.
class FrameBuffer {
 public:
  void add(std::string_view bytes) { bytes_.append(bytes); }
  size_t size() const { return bytes_.size() - begin_; }
  std::string_view view() const { return std::string_view(bytes_).substr(begin_); }
  std::optional<uint32_t> announced() const;  // length of the next frame's body, once it is known
  std::optional<std::string> take();          // the next frame's body, once it is all there

 private:
  std::string bytes_;
  size_t begin_ = 0;  // of what was not yet taken
};

}  // namespace lockstep::comm
