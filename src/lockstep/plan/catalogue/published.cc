#include "lockstep/plan/catalogue/published.h"

#include <sstream>

#include "lockstep/plan/catalogue/built_in.h"
#include "lockstep/plan/catalogue/rows.h"

namespace lockstep::plan {

namespace {

PublishedRow read_row(Row& row) {
  PublishedRow read{.title = row.text("title"), .place = parse_place(row.text("on"))};
  std::istringstream words(row.text("keys"));
  for (std::string word; words >> word;) read.keys.push_back(word);
  read.tokens_per_second = row.number("tokens_per_s", 0.001, 1e9);
  if (const std::string kernels = row.text_or("kernels", ""); !kernels.empty()) {
    const Machine* rates = catalogue().find_kernels(kernels);
    if (rates == nullptr) row.refuse(0, "there is no [kernels." + kernels + "]");
    take_rates(read.place.model, *rates);
  }
  read.place.model.fp8_cast_bytes = row.number_or("fp8_cast_bytes", 0, 0, 100);
  read.source = {row.text("source"), row.text("checked")};
  return read;
}

}  // namespace

Published read_published(std::string_view text, const std::string& name) {
  Published read;
  std::vector<Row> rows = read_rows(text, name);
  for (Row& row : rows) {
    if (row.kind() == "published") {
      read.rows.push_back(read_row(row));
    } else if (row.kind() == "left_out") {
      read.left_out.push_back({row.text("title"), row.text("why")});
    } else {
      row.refuse(0, "rows are [published.NAME] and [left_out.NAME]");
    }
    row.refuse_others();
  }
  return read;
}

Published published() { return read_published(built_in_published(), "catalogue/published.toml"); }

}  // namespace lockstep::plan
