#include "lockstep/launch/process/record.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep::launch {

bool send_record(int socket, const void* record, size_t bytes, std::span<const int> descriptors) {
  iovec part{const_cast<void*>(record), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control, message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

Received receive_record(int socket, void* record, size_t bytes, int flags) {
  iovec part{record, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  Received received{.bytes = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC)};
  if (received.bytes <= 0) return received;
  received.complete = !(message.msg_flags & MSG_CTRUNC);
  if (const cmsghdr* const header = CMSG_FIRSTHDR(&message)) {
    received.descriptors.resize((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(received.descriptors.data(), CMSG_DATA(header), received.descriptors.size() * sizeof(int));
  }
  return received;
}

int make_letter(const std::string& bytes) {
  const int file = ::memfd_create("lockstep-letter", MFD_CLOEXEC);
  if (file < 0 || ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()))
    return file;
  const int error = errno;
  ::close(file);
  errno = error;
  return -1;
}

std::string read_letter(int file) {
  struct stat size {};
  ::fstat(file, &size);
  std::string bytes(static_cast<size_t>(size.st_size), '\0');
  [[maybe_unused]] const ssize_t got = ::pread(file, bytes.data(), bytes.size(), 0);
  return bytes;
}

}  // namespace lockstep::launch
