#include "lockstep/plan/catalogue/built_in.h"

namespace lockstep::plan {

std::string_view built_in_devices() {
  static constexpr char kText[] = {
#include "lockstep_catalogue_devices.inc"
  };
  return {kText, sizeof(kText)};
}

std::string_view built_in_published() {
  static constexpr char kText[] = {
#include "lockstep_catalogue_published.inc"
  };
  return {kText, sizeof(kText)};
}

std::string_view built_in_machines() {
  static constexpr char kText[] = {
#include "lockstep_catalogue_machines.inc"
  };
  return {kText, sizeof(kText)};
}

std::string_view built_in_quotas() {
  static constexpr char kText[] = {
#include "lockstep_catalogue_quotas.inc"
  };
  return {kText, sizeof(kText)};
}

}  // namespace lockstep::plan
