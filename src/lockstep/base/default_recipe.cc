#include "lockstep/base/schema.h"

namespace lockstep::base {

std::string_view default_recipe() {
  static constexpr char kText[] = {
#include "lockstep_default_recipe.inc"
  };
  return {kText, sizeof(kText)};
}

}  // namespace lockstep::base
