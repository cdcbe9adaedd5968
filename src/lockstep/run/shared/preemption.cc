#include "lockstep/run/shared/preemption.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::run {

namespace {

constexpr double kComputeEngine = 30, kGke = 15, kEc2 = 120, kSlurmSignal = 60, kSlurmKillWait = 30;

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// "[B:]USR1[@seconds]", as sbatch's --signal.
double slurm_signal(const std::string& text) {
  const size_t at = text.find('@');
  const int seconds = at == std::string::npos
                          ? 0
                          : base::leading_number<int>(std::string_view(text).substr(at + 1)).value_or(0);
  return seconds > 0 ? seconds : kSlurmSignal;
}

}  // namespace

Place this_place() {
  return {base::environment, first_line("/sys/class/dmi/id/product_name"),
          first_line("/sys/class/dmi/id/sys_vendor")};
}

Notice find_notice(const recipe::AutoInt& requested, const Place& place) {
  if (!requested.is_auto) return {static_cast<double>(requested.value), "checkpoint.notice"};
  if (place.variable("SLURM_JOB_ID")) {
    const auto signal = place.variable("SBATCH_SIGNAL");
    return signal ? Notice{slurm_signal(*signal), "Slurm's --signal"} : Notice{kSlurmKillWait, "Slurm"};
  }
  const bool google = place.product.find("Google") != std::string::npos;
  if (google && place.variable("KUBERNETES_SERVICE_HOST")) return {kGke, "GKE"};
  if (google) return {kComputeEngine, "Compute Engine"};
  if (place.vendor.find("Amazon EC2") != std::string::npos) return {kEc2, "EC2"};
  return {};
}

std::string notice_warning(const Notice& notice, double stop_seconds, double save_seconds, bool measured) {
  if (notice.seconds <= 0 || stop_seconds + save_seconds <= notice.seconds) return "";
  return fmt::format(
      "stopping the ranks may take {}, and a save {} ({}), but {} gives {} of notice: when this machine is "
      "preempted, the steps since the last checkpoint are lost; save more often (checkpoint.every), to a "
      "faster disk, or on more ranks",
      base::human_duration(stop_seconds), base::human_duration(save_seconds),
      measured ? "measured" : "estimated", notice.from, base::human_duration(notice.seconds));
}

double estimate_save(const std::string& folder, int64_t bytes) {
  const std::string path = folder + "/.speed-trial";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return 0;
  const std::vector<char> piece(size_t{4} << 20, 'x');
  const int64_t trial = std::clamp<int64_t>(bytes, 1, int64_t{32} << 20);
  const int64_t began = base::monotonic_ns();
  int64_t written = 0;
  while (written < trial) {
    const ssize_t got =
        ::write(file, piece.data(), std::min<size_t>(piece.size(), static_cast<size_t>(trial - written)));
    if (got <= 0) break;
    written += got;
  }
  const bool kept = written >= trial && ::fsync(file) == 0;
  const double seconds = static_cast<double>(base::monotonic_ns() - began) / 1e9;
  ::close(file);
  ::unlink(path.c_str());
  return kept ? seconds * static_cast<double>(bytes) / static_cast<double>(trial) : 0;
}

void NoticeCheck::stepped(const StepReport& report, Observer& tell) {
  step_ = report.step_ms / 1000;
  if (++steps_ == 2) look(report.step, tell);  // the first step is slower than others
}

void NoticeCheck::saved(double seconds, int64_t step, Observer& tell) {
  save_ = seconds;
  const bool first = !measured_;
  measured_ = true;
  if (first && !said_) look(step, tell);
}

void NoticeCheck::look(int64_t step, Observer& tell) {
  const std::string warning =
      notice_warning(notice_, step_ * static_cast<double>(steps_to_stop_), save_, measured_);
  if (warning.empty()) return;
  said_ = true;
  tell.event("notice", warning, step);
}

}  // namespace lockstep::run
