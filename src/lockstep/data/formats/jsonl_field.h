// Takes one string field out of a line of JSON without building a tree of the rest.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::data {

struct FieldFault {
  int number = 0;  // of the error: 210 not JSON, 211 not an object, 212 no such field, 213 not a string, 214
                   // a long line
  size_t offset = 0;   // byte of the line where it shows
  std::string reason;  // "has no field \"text\", only \"id\", \"body\""
};

// The field's value into `value`; false and `fault` when the line has none. Of equal keys the last counts.
bool read_field(std::string_view line, const std::string& field, std::string& value, FieldFault& fault);

}  // namespace lockstep::data
