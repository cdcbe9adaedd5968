// What a column's rows are, taken out of Arrow's arrays with every offset checked: a file may lie about them.
#pragma once

#include <arrow/array.h>
#include <arrow/type.h>

#include <string>

#include "lockstep/data/arrow/columns.h"

namespace lockstep::data {

enum class ValueKind : uint8_t { other, text, tokens };

// Text: string, binary, their large and view forms, and dictionaries of these. Tokens: lists of whole
// numbers.
ValueKind kind_of_type(const arrow::DataType& type);

// Appends the rows of an array of such a type. Throws std::runtime_error with what is wrong in it.
void append_rows(const arrow::Array& array, ColumnRows& rows);

}  // namespace lockstep::data
