// What `lockstep plan` can be asked besides one forecast.
#pragma once

namespace lockstep::cli {

int plan_published(bool json);  // --published

}  // namespace lockstep::cli
