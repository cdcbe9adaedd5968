#include "lockstep/model/cut.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"

namespace lockstep::model {

device::Shape whole_shape(const Cut& cut, const device::Shape& part) {
  if (!cut.cuts()) return part;
  LS_ASSERT(part.rank() <= 2 && cut.dim < part.rank());
  if (cut.pads()) return part.rank() == 1 ? device::Shape{cut.rows} : device::Shape{cut.rows, part[1]};
  const auto size = [&](int dim) { return part[dim] * (dim == cut.dim ? cut.parts : 1); };
  return part.rank() == 1 ? device::Shape{size(0)} : device::Shape{size(0), size(1)};
}

// Products like widths that are multiples of 8, where they are not small (model/segments/head.cc).
int64_t rows_of_part(int64_t rows, int parts) {
  constexpr int64_t kFew = 1024, kMultiple = 8;
  const int64_t even = base::divide_up(rows, parts);
  if (rows % parts == 0 || even <= kFew) return even;
  return base::round_up(even, kMultiple);
}

Cut cut_rows(int64_t rows, int part, int parts) {
  return {.part = part, .parts = parts, .rows = rows_of_part(rows, parts) * parts > rows ? rows : 0};
}

int64_t true_rows(int64_t rows, int part, int parts) {
  const int64_t each = rows_of_part(rows, parts);
  return std::clamp<int64_t>(rows - part * each, 0, each);
}

}  // namespace lockstep::model
