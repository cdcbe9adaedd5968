#include "lockstep/device/absent_device.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/cpu_device.h"

namespace lockstep::device {
namespace {

class AbsentDevice final : public CpuDevice {
 public:
  explicit AbsentDevice(Absent absent) : absent_(std::move(absent)) {}
  Id id() const override { return {absent_.kind, 0}; }
  Properties properties() const override { return absent_.properties; }
  void* allocate(int64_t) override {
    LS_ASSERT(false, "memory of a device that is only planned for");
    return nullptr;
  }

 private:
  Absent absent_;
};

}  // namespace

std::unique_ptr<Device> absent_device(Absent absent) {
  return std::make_unique<AbsentDevice>(std::move(absent));
}

}  // namespace lockstep::device
