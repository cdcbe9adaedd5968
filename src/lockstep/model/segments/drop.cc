#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

void drop(const Frame& f, const DropoutOptions& options, DType type, int64_t width, const void* x, void* y,
          const Cut& cut) {
  const int64_t element = device::size_of(type);
  const auto piece = [&](int64_t row, int64_t rows, int64_t whole_row) {
    const int64_t at = row * width * element;
    f.kernels->dropout({.type = type,
                        .count = rows * width,
                        .first = whole_row * width * cut.parts + cut.part * width,
                        .x = static_cast<const char*>(x) + at,
                        .y = static_cast<char*>(y) + at,
                        .rate = options.rate,
                        .slice = f.slice.slice,
                        .site = options.site,
                        .inputs = f.inputs,
                        .width = cut.cuts() ? width : 0,
                        .row = cut.cuts() ? width * cut.parts : 0},
                       f.launch);
  };
  if (f.slice.context == 1) return piece(0, f.slice.tokens(), 0);
  for (const PositionedRows& rows : f.slice.rows()) {
    for (int64_t s = 0; s < rows.samples; ++s) {
      piece(rows.first_row + s * f.slice.seq_len, f.slice.seq_len,
            s * f.slice.whole_length() + rows.position);
    }
  }
}

}  // namespace lockstep::model
