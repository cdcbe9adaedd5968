#include "lockstep/training/save_news.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::training {

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

std::string SaveNews::finish_uploads(double seconds) {
  if (told_.uploads == nullptr) return "";
  std::string left = told_.uploads->finish(seconds);
  tell_uploads();
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
