// What a system with glibc 2.28 lacks of the C library that the program was compiled against. It is linked
// into each of the files that are installed and seen by nobody else (cmake/OldSystem.cmake); what a newer
// system has of it is used there.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <iterator>

extern "C" {

int __xstat(int, const char*, struct stat*);
int __lxstat(int, const char*, struct stat*);
int __fxstat(int, int, struct stat*);
int __fxstatat(int, int, const char*, struct stat*, int);

#pragma GCC visibility push(hidden)

// 2.32: libstdc++'s headers ask it before they count without a lock. This answer is right anywhere.
char __libc_single_threaded = 0;

// 2.33: before, headers called these by the number of the structure's layout.
#ifdef __x86_64__
constexpr int kLayout = 1;
#else
constexpr int kLayout = 0;
#endif
int stat(const char* path, struct stat* out) noexcept { return __xstat(kLayout, path, out); }
int lstat(const char* path, struct stat* out) noexcept { return __lxstat(kLayout, path, out); }
int fstat(int file, struct stat* out) noexcept { return __fxstat(kLayout, file, out); }
int fstatat(int folder, const char* path, struct stat* out, int flags) noexcept {
  return __fxstatat(kLayout, folder, path, out, flags);
}

// 2.34; the kernel has it since 5.9, and whoever calls it has another way.
int close_range(unsigned first, unsigned last, int flags) noexcept {
  return static_cast<int>(syscall(436, first, last, flags));
}

namespace {

using Wait = int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);

constexpr long long kSecond = 1'000'000'000;

// By the wall clock, which may be set meanwhile: for a second at most. Whoever waits looks at the clock
// again.
int wait_by_wall_clock(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                       const timespec* until) {
  timespec now{}, wall{};
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &wall) != 0) return EINVAL;
  const long long rest = (until->tv_sec - now.tv_sec) * kSecond + until->tv_nsec - now.tv_nsec;
  if (rest <= 0) return ETIMEDOUT;
  const bool is_last = rest <= kSecond;
  const long long end = wall.tv_nsec + (is_last ? rest : kSecond);
  wall.tv_sec += end / kSecond;
  wall.tv_nsec = end % kSecond;
  const int code = pthread_cond_timedwait(condition, mutex, &wall);
  return code == ETIMEDOUT && !is_last ? 0 : code;
}

}  // namespace

// 2.30
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static Wait* const theirs = reinterpret_cast<Wait*>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (theirs != nullptr) return theirs(condition, mutex, clock, until);
  if (clock == CLOCK_REALTIME) return pthread_cond_timedwait(condition, mutex, until);
  return wait_by_wall_clock(condition, mutex, clock, until);
}

// 2.32
const char* sigabbrev_np(int number) noexcept {
  static constexpr const char* kNames[] = {
      nullptr, "HUP",  "INT",  "QUIT", "ILL",    "TRAP",   "ABRT",  "BUS",  "FPE",  "KILL", "USR1",
      "SEGV",  "USR2", "PIPE", "ALRM", "TERM",   "STKFLT", "CHLD",  "CONT", "STOP", "TSTP", "TTIN",
      "TTOU",  "URG",  "XCPU", "XFSZ", "VTALRM", "PROF",   "WINCH", "POLL", "PWR",  "SYS"};
  static_assert(SIGTERM == 15 && SIGCHLD == 17 && SIGSYS == 31 && std::size(kNames) == 32);
  return number > 0 && number < 32 ? kNames[number] : nullptr;
}

#pragma GCC visibility pop
}
