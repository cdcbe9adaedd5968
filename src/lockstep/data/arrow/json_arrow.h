// Rows of a batch as JSON objects: what conversations and preferences are when they lie in columns.
#pragma once

#include <arrow/record_batch.h>

#include "lockstep/data/arrow/columns.h"

namespace lockstep::data {

// Appends a text for each row. Text, numbers, truth values, lists and structures of these; nulls in
// structures are left out, as who has written the rows left them out. Throws std::runtime_error with what is
// wrong in them.
void append_json(const arrow::RecordBatch& batch, ColumnRows& rows);

}  // namespace lockstep::data
