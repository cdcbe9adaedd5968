// A table that a program may add rows to before anything reads it.
//
//     Registry<Family>& registry() {                            // in the file of the table
//       static Registry<Family> all("family", {gpt2_family(), llama_family(), mlp_family()});
//       return all;
//     }
//
// Rows are added at the beginning of main(), or while its globals are made. The first look freezes the table:
// what was read once stays as it was for the life of the process, and looking needs no lock of the caller's.
// Row: anything with a member `name`.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::base {

template <class Row>
class Registry {
 public:
  Registry(std::string what, std::vector<Row> built_in)
      : what_(std::move(what)), rows_(std::move(built_in)) {}
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // A Bug in the program that adds: a name that is taken or empty, or a table that has been read already.
  void add(Row row) {
    const std::scoped_lock lock(mutex_);
    const std::string name(row.name);
    LS_ASSERT(!frozen_, "the " + what_ + " " + name + " is registered after the table was read: do it first");
    LS_ASSERT(!name.empty(), "a " + what_ + " without a name");
    LS_ASSERT(find_in_rows(name) == nullptr, "there is a " + what_ + " " + name + " already");
    rows_.push_back(std::move(row));
  }

  const std::vector<Row>& rows() {
    const std::scoped_lock lock(mutex_);
    frozen_ = true;
    return rows_;
  }
  const Row* find(std::string_view name) { return rows(), find_in_rows(name); }  // null: none of that name

 private:
  const Row* find_in_rows(std::string_view name) const {
    for (const Row& row : rows_) {
      if (row.name == name) return &row;
    }
    return nullptr;
  }

  const std::string what_;  // "family", for what it says
  std::mutex mutex_;
  std::vector<Row> rows_;
  bool frozen_ = false;
};

// "gpt2", "llama", ...
template <class Row>
std::vector<std::string> names_of(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows) names.emplace_back(row.name);
  return names;
}

}  // namespace lockstep::base
