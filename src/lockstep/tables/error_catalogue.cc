// The rows of every folder, put together and in order.
#include "lockstep/base/error_catalogue.h"

#include <algorithm>

namespace lockstep {

using ErrorRows = std::vector<base::ErrorExplanation>;

// Each folder's errors.cc.
namespace base {
ErrorRows error_rows();
}
namespace recipe {
ErrorRows error_rows();
}
namespace device {
ErrorRows error_rows();
}
namespace store {
ErrorRows error_rows();
}
namespace kernels {
ErrorRows error_rows();
}
namespace comm {
ErrorRows error_rows();
}
namespace text {
ErrorRows error_rows();
}
namespace chat {
ErrorRows error_rows();
}
namespace data {
ErrorRows error_rows();
}
namespace model {
ErrorRows error_rows();
}
namespace optim {
ErrorRows error_rows();
}
namespace program {
ErrorRows error_rows();
}
namespace checkpoint {
ErrorRows error_rows();
}
namespace plan {
ErrorRows error_rows();
}
namespace run {
ErrorRows error_rows();
}
namespace launch {
ErrorRows error_rows();
}
namespace verify {
ErrorRows error_rows();
}
namespace jobs {
ErrorRows error_rows();
}
namespace see {
ErrorRows error_rows();
}
namespace http {
ErrorRows error_rows();
}
namespace ship {
ErrorRows error_rows();
}
namespace cli {
ErrorRows error_rows();
}

namespace base {

const ErrorRows& error_catalogue() {
  static const ErrorRows rows = [] {
    ErrorRows all;
    for (const ErrorRows& some :
         {base::error_rows(),       recipe::error_rows(), device::error_rows(), store::error_rows(),
          kernels::error_rows(),    comm::error_rows(),   text::error_rows(),   chat::error_rows(),
          data::error_rows(),       model::error_rows(),  optim::error_rows(),  program::error_rows(),
          checkpoint::error_rows(), plan::error_rows(),   run::error_rows(),    launch::error_rows(),
          verify::error_rows(),     jobs::error_rows(),   see::error_rows(),    http::error_rows(),
          ship::error_rows(),       cli::error_rows()}) {
      all.insert(all.end(), some.begin(), some.end());
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
    return all;
  }();
  return rows;
}

const ErrorExplanation* find_error(int number) {
  const auto& rows = error_catalogue();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.number == number; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace base
}  // namespace lockstep
