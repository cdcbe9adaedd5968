#include "lockstep/data/arrow/json_arrow.h"

#include <arrow/array.h>
#include <arrow/array/array_dict.h>
#include <arrow/array/array_nested.h>
#include <arrow/array/array_primitive.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace lockstep::data {
namespace {

using arrow::Type;
using Json = nlohmann::ordered_json;

constexpr int kDeepest = 32;

Json value_of(const arrow::Array& array, int64_t row, int depth);

template <class Array>
Json number_of(const arrow::Array& array, int64_t row) {
  return static_cast<const Array&>(array).Value(row);
}
template <class Array>
Json text_of(const arrow::Array& array, int64_t row) {
  return std::string(static_cast<const Array&>(array).GetView(row));
}
template <class Array>
Json list_of(const arrow::Array& any, int64_t row, int depth) {
  const auto& array = static_cast<const Array&>(any);
  Json list = Json::array();
  const int64_t first = array.value_offset(row), count = array.value_length(row);
  for (int64_t i = first; i < first + count; ++i) list.push_back(value_of(*array.values(), i, depth + 1));
  return list;
}

Json object_of(const arrow::StructArray& array, int64_t row, int depth) {
  Json object = Json::object();
  for (int i = 0; i < array.num_fields(); ++i) {
    const std::shared_ptr<arrow::Array> field = array.field(i);
    if (!field->IsNull(row)) object[array.struct_type()->field(i)->name()] = value_of(*field, row, depth + 1);
  }
  return object;
}

// Arrays are valid (append_json), so that every offset lies inside.
Json value_of(const arrow::Array& array, int64_t row, int depth) {
  if (depth > kDeepest) throw std::runtime_error("values are nested more than 32 deep");
  if (array.IsNull(row)) return nullptr;
  switch (array.type_id()) {
    case Type::NA:
      return nullptr;
    case Type::BOOL:
      return number_of<arrow::BooleanArray>(array, row);
    case Type::INT8:
      return number_of<arrow::Int8Array>(array, row);
    case Type::INT16:
      return number_of<arrow::Int16Array>(array, row);
    case Type::INT32:
      return number_of<arrow::Int32Array>(array, row);
    case Type::INT64:
      return number_of<arrow::Int64Array>(array, row);
    case Type::UINT8:
      return number_of<arrow::UInt8Array>(array, row);
    case Type::UINT16:
      return number_of<arrow::UInt16Array>(array, row);
    case Type::UINT32:
      return number_of<arrow::UInt32Array>(array, row);
    case Type::UINT64:
      return number_of<arrow::UInt64Array>(array, row);
    case Type::FLOAT:
      return number_of<arrow::FloatArray>(array, row);
    case Type::DOUBLE:
      return number_of<arrow::DoubleArray>(array, row);
    case Type::STRING:
    case Type::BINARY:
      return text_of<arrow::BinaryArray>(array, row);
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return text_of<arrow::LargeBinaryArray>(array, row);
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW:
      return text_of<arrow::BinaryViewArray>(array, row);
    case Type::LIST:
      return list_of<arrow::ListArray>(array, row, depth);
    case Type::LARGE_LIST:
      return list_of<arrow::LargeListArray>(array, row, depth);
    case Type::FIXED_SIZE_LIST:
      return list_of<arrow::FixedSizeListArray>(array, row, depth);
    case Type::STRUCT:
      return object_of(static_cast<const arrow::StructArray&>(array), row, depth);
    case Type::DICTIONARY: {
      const auto& words = static_cast<const arrow::DictionaryArray&>(array);
      return value_of(*words.dictionary(), words.GetValueIndex(row), depth + 1);
    }
    default:
      return nullptr;  // dates and the like: no part of a conversation
  }
}

}  // namespace

void append_json(const arrow::RecordBatch& batch, ColumnRows& rows) {
  if (const arrow::Status status = batch.ValidateFull(); !status.ok())
    throw std::runtime_error(status.message());
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    Json object = Json::object();
    for (int i = 0; i < batch.num_columns(); ++i) {
      const arrow::Array& column = *batch.column(i);
      if (!column.IsNull(row)) object[batch.column_name(i)] = value_of(column, row, 0);
    }
    rows.bytes += object.dump(-1, ' ', false, Json::error_handler_t::replace);
    rows.ends.push_back(static_cast<int64_t>(rows.bytes.size()));
    rows.null.push_back(false);
  }
}

}  // namespace lockstep::data
