// Protocol buffers on their way out: enough to write a message whose fields are known by number.
//
//     Proto value;
//     value.text(1, "loss").real32(2, 0.5F);
//     Proto event;
//     event.real64(1, now).number(2, step).message(5, summary);
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::see {

class Proto {
 public:
  Proto& number(int field, int64_t value) {
    key(field, 0);
    return varint(static_cast<uint64_t>(value));
  }
  Proto& real64(int field, double value) {
    key(field, 1);
    return fixed(std::bit_cast<uint64_t>(value), 8);
  }
  Proto& real32(int field, float value) {
    key(field, 5);
    return fixed(std::bit_cast<uint32_t>(value), 4);
  }
  Proto& text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Proto& reals64(int field, const std::vector<double>& values) {  // packed
    Proto packed;
    for (const double value : values) packed.fixed(std::bit_cast<uint64_t>(value), 8);
    return message(field, packed);
  }
  Proto& message(int field, const Proto& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int wire) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire)); }
  Proto& varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
    return *this;
  }
  Proto& fixed(uint64_t value, int size) {
    for (int i = 0; i < size; ++i, value >>= 8) bytes_ += static_cast<char>(value & 0xFF);
    return *this;
  }
  std::string bytes_;
};

}  // namespace lockstep::see
