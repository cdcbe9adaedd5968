#include "lockstep/comm/shm/shm_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw base::CommError(
      525, fmt::format("memory cannot be shared between ranks: {}: {}", what, std::strerror(errno)));
}

std::byte* map(int file, int64_t bytes) {
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  ::madvise(memory, static_cast<size_t>(bytes),
            MADV_HUGEPAGE);  // where the kernel allows it for shared memory
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::string SegmentAddress::to_text() const {
  return fmt::format("{} {} {} {} {} {}", pid, descriptor, process_start, token[0], token[1], bytes);
}

bool SegmentAddress::from_text(std::string_view text, SegmentAddress* address) {
  std::istringstream in{std::string(text)};
  in >> address->pid >> address->descriptor >> address->process_start >> address->token[0] >>
      address->token[1] >> address->bytes;
  return !in.fail() && address->pid > 0 && address->descriptor >= 0 &&
         address->bytes >= SharedSegment::kHeaderBytes;
}

SharedSegment SharedSegment::create(const char* name, int64_t bytes) {
  SharedSegment segment;
  segment.descriptor_ = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (segment.descriptor_ < 0) refuse("memfd_create");
  if (::ftruncate(segment.descriptor_, bytes) != 0) refuse(fmt::format("{} bytes", bytes));
  // A segment that became shorter would kill whoever reads it.
  ::fcntl(segment.descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  segment.data_ = map(segment.descriptor_, bytes);
  if (segment.data_ == nullptr) refuse(fmt::format("mapping {} bytes", bytes));
  segment.bytes_ = bytes;
  SegmentAddress& address = segment.address_;
  address = {::getpid(), segment.descriptor_, process_start(::getpid()), {}, bytes};
  if (::getrandom(address.token, sizeof(address.token), 0) != sizeof(address.token)) refuse("getrandom");
  std::memcpy(segment.data_, address.token, sizeof(address.token));
  return segment;
}

SharedSegment SharedSegment::open(const SegmentAddress& address, int64_t bytes) {
  if (bytes == 0) bytes = address.bytes;
  const std::string path = fmt::format("/proc/{}/fd/{}", address.pid, address.descriptor);
  const base::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.number < 0) refuse(path);
  struct stat facts {};
  uint64_t token[2] = {};
  const bool same = ::fstat(file.number, &facts) == 0 && S_ISREG(facts.st_mode) &&
                    facts.st_size == address.bytes && bytes <= facts.st_size &&
                    ::pread(file.number, token, sizeof(token), 0) == sizeof(token) &&
                    std::memcmp(token, address.token, sizeof(token)) == 0;
  errno = ENXIO;
  if (!same) refuse(path + " is not the file that was announced");
  SharedSegment segment;
  segment.data_ = map(file.number, bytes);
  if (segment.data_ == nullptr) refuse(fmt::format("mapping {} bytes of {}", bytes, path));
  segment.bytes_ = bytes;
  segment.address_ = address;
  return segment;
}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(address_, other.address_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
  close_descriptor();
}

void SharedSegment::close_descriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

uint64_t process_start(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(line.substr(name_end + 1));
  std::string state, skipped;
  rest >> state;
  if (state == "Z" || state == "X") return 0;
  for (int field = 4; field < 22; ++field) rest >> skipped;
  uint64_t start = 0;
  rest >> start;
  return start;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace lockstep::comm
