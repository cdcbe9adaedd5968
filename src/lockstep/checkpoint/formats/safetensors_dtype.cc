#include "lockstep/checkpoint/formats/safetensors_dtype.h"

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

struct Row {
  std::string_view name;
  device::DType type;
};

// BOOL comes last, so that u8 is written as U8: attention masks in old GPT-2 files are BOOL, and
// nobody reads them, but the file's other tensors are wanted.
constexpr Row kTypes[] = {
    {"F32", device::DType::f32}, {"BF16", device::DType::bf16}, {"F16", device::DType::f16},
    {"F64", device::DType::f64}, {"I32", device::DType::i32},   {"I64", device::DType::i64},
    {"U8", device::DType::u8},   {"BOOL", device::DType::u8},
};

}  // namespace

std::string_view safetensors_name(device::DType type) {
  for (const Row& row : kTypes) {
    if (row.type == type) return row.name;
  }
  base::throw_bug(__FILE__, __LINE__, "type is in kTypes", device::name_of(type));
}

std::optional<device::DType> type_of_safetensors_name(std::string_view name) {
  for (const Row& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

}  // namespace lockstep::checkpoint
