// A fast 64-bit hash of bytes, for naming content: datasets, parameters, checkpoint files.
//
// It reads 32 bytes a turn in four independent lanes (as xxHash does) and finishes with mix64, so it
// runs near memory speed and every bit of the input reaches every bit of the result. It tells apart
// what differs by accident; it is no defence against someone who wants two inputs to collide.
//
//     hex64(hash_bytes(file.bytes()))   // "9ae16a3b2f90404f"
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::base {

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t hash_text(std::string_view text, uint64_t seed = 0);

// Hash of a sequence, one element at a time: h = hash_combine(h, element). Order matters.
uint64_t hash_combine(uint64_t hash, uint64_t element);

std::string hex64(uint64_t value);  // 16 lower-case digits

}  // namespace lockstep::base
