// CRC32C (Castagnoli), the checksum of a checkpoint's chunks: made by the processor's own instruction where
// it has one.
//
// The plain remainder (no inversions) is linear: ranks that write different bytes of one chunk each take the
// remainder of theirs with zeros elsewhere, and the exclusive or of all of them is the whole chunk's. So no
// rank needs another's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::checkpoint {

uint32_t crc32c(std::span<const std::byte> bytes);  // as everyone else computes it: of "123456789", e3069283

// The remainder of `bytes` that follow those whose remainder is `before`; without inversions.
uint32_t crc_remainder(std::span<const std::byte> bytes, uint32_t before = 0);
// The remainder when so many zero bytes follow.
uint32_t crc_after_zeros(uint32_t remainder, int64_t zeros);
// What crc32c() says of `size` bytes with this remainder.
uint32_t crc_of_remainder(uint32_t remainder, int64_t size);

// Without the processor's instruction; for tests of one against the other.
uint32_t crc_remainder_portable(std::span<const std::byte> bytes, uint32_t before);

}  // namespace lockstep::checkpoint
