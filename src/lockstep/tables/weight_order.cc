#include "lockstep/recipe/weight_order.h"

#include <algorithm>

#include "lockstep/model/families/family.h"

namespace lockstep::recipe {

bool weights_by_input(std::string_view model_type) {
  return std::ranges::any_of(model::families(), [&](const model::Family& family) {
    const auto& known = family.huggingface;
    return known && known->weights_by_input &&
           std::ranges::find(known->model_types, model_type) != known->model_types.end();
  });
}

}  // namespace lockstep::recipe
