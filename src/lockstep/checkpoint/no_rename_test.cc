// A file system that cannot rename: the kernel refuses every call that would.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

// From now on, in this process: rename and link are EOPNOTSUPP.
bool forbid_rename() {
  std::vector<sock_filter> program = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned call : {
#ifdef SYS_rename
           static_cast<unsigned>(SYS_rename), static_cast<unsigned>(SYS_link),
#endif
           static_cast<unsigned>(SYS_renameat), static_cast<unsigned>(SYS_renameat2),
           static_cast<unsigned>(SYS_linkat)}) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

int save_without_rename(const std::string& run) {
  if (!forbid_rename()) return 77;
  if (std::rename(run.c_str(), (run + "x").c_str()) == 0 || errno != EOPNOTSUPP) return 2;
  Tensors memory;
  for (const int64_t step : {1, 2, 2, 3}) save(run, contents_of(memory, step), 1);
  if (list(run).size() != 1) return 3;
  return holds(Opened(list(run)[0]), contents_of(memory, 3)) ? 0 : 4;
}

TEST(NoRename, SavesReplacesAndKeepsOrder) {
  base::TemporaryFolder run;
  const pid_t child = ::fork();
  if (child == 0) {
    int result = 99;
    try {
      result = save_without_rename(run.path());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "filters of system calls are not allowed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace lockstep::checkpoint
