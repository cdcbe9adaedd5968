#include "lockstep/training/save_news.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::training {
namespace {

constexpr double kLooks = 1;  // seconds between looks at a signal while uploads are waited for

}  // namespace

void SaveNews::tell() {
  while (const auto saved = saver_.poll()) {
    const checkpoint::Outcome& o = saved->outcome;
    // A failure is no end: the one before it still stands, and the next save may find the disk in better
    // order.
    if (o.error != 0) {
      told_.everyone.event("checkpoint_failed", o.why, o.step);
      continue;
    }
    told_.everyone.event(
        "checkpoint_saved",
        fmt::format("saved {} ({} in {}, training paused {})", o.folder,
                    base::human_bytes(static_cast<double>(o.bytes)), base::human_duration(o.seconds),
                    base::human_duration(saved->pause_ms / 1e3)),
        o.step);
    if (told_.snapshots != nullptr) told_.snapshots->saved(o.step);
    told_.notice.saved(o.seconds + saved->pause_ms / 1e3, o.step);
    if (told_.uploads != nullptr) told_.uploads->saved(o.step);
  }
  tell_uploads();
}

void SaveNews::tell_uploads() {
  if (told_.uploads == nullptr) return;
  while (const auto news = told_.uploads->poll()) {
    const char* const name = news->failed    ? "upload_failed"
                             : news->skipped ? "upload_skipped"
                                             : "checkpoint_uploaded";
    told_.everyone.event(name, news->why, news->step);
  }
}

std::string SaveNews::finish_uploads(double seconds, const std::atomic<int>& signal, int64_t step) {
  if (told_.uploads == nullptr) return "";
  const int before = signal.load();
  std::string left;
  for (double waited = 0; waited < seconds; waited += kLooks) {
    left = told_.uploads->finish(std::min(kLooks, seconds - waited));
    tell_uploads();
    if (left.empty() || signal.load() != before) return left;
    if (waited == 0) {
      told_.everyone.event("upload_awaited",
                           fmt::format("waiting up to {} for the upload to {}; Ctrl-C ends that",
                                       base::human_duration(seconds), told_.uploads->to()),
                           step);
    }
  }
  return left;
}

void SaveNews::finish() {
  try {
    saver_.finish();
  } catch (const base::IoError&) {
    tell();
    throw;
  }
  tell();
}

}  // namespace lockstep::training
