// What stands around a program's work: its standard streams, the signals of writes that fail, and what is
// thrown.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/base/working_directory.h"
#include "lockstep/train.h"

namespace lockstep {

namespace {

using Complain = std::function<void(const std::string& sentence)>;

// Who is started with standard streams closed would write its words into the first file or socket it opens.
void open_standard_streams() {
  int opened = 0;
  do opened = ::open("/dev/null", O_RDWR);
  while (opened >= 0 && opened <= STDERR_FILENO);
  if (opened > STDERR_FILENO) ::close(opened);
}

// What the standard library throws for the machine's reasons: threads that it may not start, paths that lead
// nowhere because /proc is not mounted or the working folder was removed.
base::Error explain(const std::system_error& error) {
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    try {
      base::require_working_directory();
    } catch (const base::IoError& gone) {
      return gone;
    }
    const std::string path = file->path1().string();
    return base::IoError(
        820,
        path.starts_with("/proc")
            ? fmt::format("{} cannot be read: mount /proc, as container runtimes do", path)
            : fmt::format("{} cannot be used: {}", path.empty() ? "a path" : path, error.code().message()));
  }
  return base::IoError(819, fmt::format("this process cannot start another thread ({}): raise `ulimit -u`, "
                                        "or pids.max of its cgroup; run.threads=1 needs the fewest",
                                        error.code().message()));
}

int run_and_complain(const std::function<int()>& body, const Complain& complain) {
  try {
    return body();
  } catch (const base::Error& error) {
    complain(error.what());
    return error.exit_code();
  } catch (const base::Bug& bug) {
    complain(fmt::format("this is a bug in Lockstep {}; please report it with the lines below\n{}",
                         base::kVersion, bug.what()));
  } catch (const std::system_error& error) {
    const base::Error explained = explain(error);
    complain(explained.what());
    return explained.exit_code();
  } catch (const std::bad_alloc&) {
    complain("out of host memory; `lockstep doctor` shows how much this machine has");
  } catch (const std::exception& error) {
    complain(fmt::format("this is a bug in Lockstep {}; please report it: {}", base::kVersion, error.what()));
  }
  return 1;
}

}  // namespace

int run_main(const std::function<int()>& body, const Complain& complain) {
  open_standard_streams();
  ::signal(SIGPIPE, SIG_IGN);  // a reader that goes away must not end a training run
  ::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of the write, with a sentence
  if (complain) return run_and_complain(body, complain);
  return run_and_complain(body, [](const std::string& sentence) {
    std::fflush(stdout);  // what was said before comes first
    std::fputs(("error: " + sentence + "\n").c_str(), stderr);
  });
}

}  // namespace lockstep
