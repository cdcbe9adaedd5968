#include "lockstep/recipe/mistakes.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::recipe {

void Mistakes::refuse(const std::string& what) const {
  constexpr size_t kMostShown = 20;
  if (all_.empty()) return;
  if (all_.size() == 1) throw base::ConfigError(all_.front());
  std::string lines;
  for (size_t k = 0; k < std::min(all_.size(), kMostShown); ++k)
    lines += fmt::format("\n  {}", all_[k].what());
  if (all_.size() > kMostShown) lines += fmt::format("\n  and {} more", all_.size() - kMostShown);
  throw base::ConfigError(
      112, fmt::format("{} errors in {}:{}\n  `lockstep explain KEY` shows what a key accepts", all_.size(),
                       what, lines));
}

}  // namespace lockstep::recipe
