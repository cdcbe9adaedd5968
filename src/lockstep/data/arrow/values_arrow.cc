#include "lockstep/data/arrow/values_arrow.h"

#include <arrow/array/array_dict.h>
#include <arrow/array/array_nested.h>
#include <arrow/array/array_primitive.h>
#include <arrow/extension_type.h>

#include <limits>
#include <stdexcept>

namespace lockstep::data {
namespace {

using arrow::Type;

[[noreturn]] void lies(const std::string& what) { throw std::runtime_error(what); }

void add_text(ColumnRows& rows, std::string_view text) {
  rows.bytes += text;
  rows.ends.push_back(static_cast<int64_t>(rows.bytes.size()));
  rows.null.push_back(false);
}

void add_null(ColumnRows& rows) {
  rows.ends.push_back(static_cast<int64_t>(rows.tokens.empty() ? rows.bytes.size() : rows.tokens.size()));
  rows.null.push_back(true);
}

// A row's text, or its null. `Array` has 32 or 64 bits for each offset.
template <class Array>
struct OffsetText {
  const Array& array;
  int64_t there;  // bytes
  explicit OffsetText(const arrow::Array& any)
      : array(static_cast<const Array&>(any)), there(array.value_data() ? array.value_data()->size() : 0) {}
  std::string_view operator()(int64_t row) const {
    const int64_t begin = array.value_offset(row), end = array.value_offset(row + 1);
    if (begin < 0 || begin > end || end > there) lies("a text lies outside of its buffer");
    return begin == end ? std::string_view{}
                        : std::string_view(reinterpret_cast<const char*>(array.value_data()->data()) + begin,
                                           static_cast<size_t>(end - begin));
  }
};

// Views: short texts lie in the view itself, others in one of several buffers.
struct ViewText {
  const arrow::BinaryViewArray& array;
  explicit ViewText(const arrow::Array& any) : array(static_cast<const arrow::BinaryViewArray&>(any)) {}
  std::string_view operator()(int64_t row) const {
    const auto* views = array.data()->GetValues<arrow::BinaryViewType::c_type>(1);
    const auto& view = views[row];
    if (view.size() < 0) lies("a text has a negative length");
    if (!view.is_inline()) {
      const auto& buffers = array.data()->buffers;
      const int64_t index = int64_t{view.ref.buffer_index} + 2;
      if (view.ref.buffer_index < 0 || index >= static_cast<int64_t>(buffers.size()) ||
          !buffers[static_cast<size_t>(index)] || view.ref.offset < 0 ||
          int64_t{view.ref.offset} + view.size() > buffers[static_cast<size_t>(index)]->size())
        lies("a text lies outside of its buffer");
    }
    return array.GetView(row);
  }
};

template <class Text>
void append_text(const arrow::Array& array, const Text& text, ColumnRows& rows) {
  for (int64_t row = 0; row < array.length(); ++row) {
    if (array.IsNull(row)) {
      add_null(rows);
    } else {
      add_text(rows, text(row));
    }
  }
}

void append_plain_text(const arrow::Array& array, ColumnRows& rows) {
  switch (array.type_id()) {
    case Type::STRING:
    case Type::BINARY:
      return append_text(array, OffsetText<arrow::BinaryArray>(array), rows);
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return append_text(array, OffsetText<arrow::LargeBinaryArray>(array), rows);
    default:
      return append_text(array, ViewText(array), rows);
  }
}

void append_dictionary(const arrow::DictionaryArray& array, ColumnRows& rows) {
  ColumnRows words;
  const std::shared_ptr<arrow::Array> dictionary = array.dictionary();
  if (const arrow::Status status = dictionary->Validate(); !status.ok()) lies(status.message());
  append_plain_text(*dictionary, words);
  const arrow::Status valid = array.indices()->Validate();
  if (!valid.ok()) lies(valid.message());
  for (int64_t row = 0; row < array.length(); ++row) {
    if (array.IsNull(row)) {
      add_null(rows);
      continue;
    }
    const int64_t index = array.GetValueIndex(row);
    if (index < 0 || index >= static_cast<int64_t>(words.size())) lies("a row is outside of its dictionary");
    const auto at = static_cast<size_t>(index);
    if (words.null[at]) {
      add_null(rows);
    } else {
      add_text(rows, words.text(at));
    }
  }
}

template <class Array>
void copy_numbers(const arrow::Array& any, int64_t begin, int64_t end, ColumnRows& rows) {
  const auto& array = static_cast<const Array&>(any);
  for (int64_t i = begin; i < end; ++i) {
    const auto number = array.Value(i);
    if (array.IsNull(i) || std::cmp_less(number, 0) ||
        std::cmp_greater(number, std::numeric_limits<int32_t>::max()))
      lies("a list holds something that is no token: a null, or a number outside of 0 to 2147483647");
    rows.tokens.push_back(static_cast<int32_t>(number));
  }
}

void append_numbers(const arrow::Array& array, int64_t begin, int64_t end, ColumnRows& rows) {
  switch (array.type_id()) {
    case Type::INT8:
      return copy_numbers<arrow::Int8Array>(array, begin, end, rows);
    case Type::UINT8:
      return copy_numbers<arrow::UInt8Array>(array, begin, end, rows);
    case Type::INT16:
      return copy_numbers<arrow::Int16Array>(array, begin, end, rows);
    case Type::UINT16:
      return copy_numbers<arrow::UInt16Array>(array, begin, end, rows);
    case Type::INT32:
      return copy_numbers<arrow::Int32Array>(array, begin, end, rows);
    case Type::UINT32:
      return copy_numbers<arrow::UInt32Array>(array, begin, end, rows);
    case Type::INT64:
      return copy_numbers<arrow::Int64Array>(array, begin, end, rows);
    default:
      return copy_numbers<arrow::UInt64Array>(array, begin, end, rows);
  }
}

template <class List>
void append_lists(const arrow::Array& any, ColumnRows& rows) {
  const auto& array = static_cast<const List&>(any);
  const std::shared_ptr<arrow::Array> values = array.values();
  if (const arrow::Status status = values->Validate(); !status.ok()) lies(status.message());
  for (int64_t row = 0; row < array.length(); ++row) {
    const bool null = array.IsNull(row);
    if (!null) {
      const int64_t begin = array.value_offset(row), length = array.value_length(row);
      if (begin < 0 || length < 0 || length > values->length() || begin > values->length() - length)
        lies("a list lies outside of its values");
      append_numbers(*values, begin, begin + length, rows);
    }
    rows.ends.push_back(static_cast<int64_t>(rows.tokens.size()));
    rows.null.push_back(null);
  }
}

bool is_text(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::STRING:
    case Type::BINARY:
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW:
      return true;
    default:
      return false;
  }
}

}  // namespace

ValueKind kind_of_type(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::EXTENSION:
      return kind_of_type(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    case Type::DICTIONARY:
      return is_text(*static_cast<const arrow::DictionaryType&>(type).value_type()) ? ValueKind::text
                                                                                    : ValueKind::other;
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
      return arrow::is_integer(type.field(0)->type()->id()) ? ValueKind::tokens : ValueKind::other;
    default:
      return is_text(type) ? ValueKind::text : ValueKind::other;
  }
}

void append_rows(const arrow::Array& array, ColumnRows& rows) {
  if (const arrow::Status status = array.Validate(); !status.ok()) lies(status.message());
  switch (array.type_id()) {
    case Type::EXTENSION:
      return append_rows(*static_cast<const arrow::ExtensionArray&>(array).storage(), rows);
    case Type::DICTIONARY:
      return append_dictionary(static_cast<const arrow::DictionaryArray&>(array), rows);
    case Type::LIST:
      return append_lists<arrow::ListArray>(array, rows);
    case Type::LARGE_LIST:
      return append_lists<arrow::LargeListArray>(array, rows);
    case Type::FIXED_SIZE_LIST:
      return append_lists<arrow::FixedSizeListArray>(array, rows);
    default:
      return append_plain_text(array, rows);
  }
}

}  // namespace lockstep::data
