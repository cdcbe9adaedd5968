// A receipt part by part: what each kind of work was forecast to take in a step, and what it took by the
// marks that ranks leave.
//
//     for (const ReceiptPart& part : receipt_parts("runs/first", run::read_receipt("runs/first")))
//       part.name, part.predicted_ms, part.actual_ms      // "backward", 55.1, 57.9
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/run/folder/receipt.h"

namespace lockstep::see {

struct ReceiptPart {
  std::string name;
  double predicted_ms = 0;
  std::optional<double> actual_ms;  // nothing: the ranks of this host have left no marks of a whole step
};

// The largest first; the actual ones are the mean of the newest few steps. Empty where the forecast has none
// (of a version before parts were kept).
std::vector<ReceiptPart> receipt_parts(const std::string& folder, const run::Receipt& receipt);

}  // namespace lockstep::see
