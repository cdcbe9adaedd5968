#include "lockstep/model/cut.h"

#include "lockstep/base/error.h"

namespace lockstep::model {

device::Shape whole_shape(const Cut& cut, const device::Shape& part) {
  if (!cut.cuts()) return part;
  LS_ASSERT(part.rank() <= 2 && cut.dim < part.rank());
  const auto size = [&](int dim) { return part[dim] * (dim == cut.dim ? cut.parts : 1); };
  return part.rank() == 1 ? device::Shape{size(0)} : device::Shape{size(0), size(1)};
}

}  // namespace lockstep::model
