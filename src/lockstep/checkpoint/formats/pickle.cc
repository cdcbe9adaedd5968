#include "lockstep/checkpoint/formats/pickle.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"

namespace lockstep::checkpoint {
namespace {

constexpr size_t kMostValues = 1 << 20;  // about thirty for each tensor
constexpr size_t kMostDimensions = 8;    // no weight has more, and lists of them stay small
constexpr size_t kMostKey = 64;          // PyTorch numbers storages

// All that a pickle of weights may mention.
enum class Name : uint8_t { ordered_dict, rebuild_tensor, rebuild_tensor_v2, rebuild_parameter, storage };
struct Allowed {
  std::string_view module, name;
  Name what;
  std::optional<device::DType> dtype{};
};
constexpr Allowed kAllowed[] = {
    {"collections", "OrderedDict", Name::ordered_dict},
    {"torch._utils", "_rebuild_tensor", Name::rebuild_tensor},
    {"torch._utils", "_rebuild_tensor_v2", Name::rebuild_tensor_v2},
    {"torch._utils", "_rebuild_parameter", Name::rebuild_parameter},
    {"torch", "FloatStorage", Name::storage, device::DType::f32},
    {"torch", "BFloat16Storage", Name::storage, device::DType::bf16},
    {"torch", "HalfStorage", Name::storage, device::DType::f16},
    {"torch", "DoubleStorage", Name::storage, device::DType::f64},
    {"torch", "LongStorage", Name::storage, device::DType::i64},
    {"torch", "IntStorage", Name::storage, device::DType::i32},
    {"torch", "ByteStorage", Name::storage, device::DType::u8},
    {"torch", "BoolStorage", Name::storage,
     device::DType::u8},  // masks of old GPT-2 files, which nobody reads
    {"torch", "CharStorage", Name::storage},
    {"torch", "ShortStorage", Name::storage},
};

}  // namespace

void Pickle::refuse(const std::string& why) const {
  throw CheckpointError(313, fmt::format("{}: its pickle {} at byte {}; it was read as data and nothing in "
                                         "it was executed. Save the model as safetensors",
                                         path_, why, at_));
}

Pickle::Pickle(std::string_view bytes, const std::string& path)
    : text_(bytes.substr(0, static_cast<size_t>(kMostPickle))), path_(path) {
  while (step()) {
  }
}

// ---- bytes ----

std::string_view Pickle::take(size_t count) {
  if (count > text_.size() - at_) refuse("ends unexpectedly");
  at_ += count;
  return text_.substr(at_ - count, count);
}

uint64_t Pickle::take_number(size_t bytes) {
  uint64_t value = 0;
  int shift = 0;
  for (const char c : take(bytes)) {
    value |= uint64_t{static_cast<unsigned char>(c)} << shift;
    shift += 8;
  }
  return value;
}

std::string_view Pickle::take_line() {
  const size_t end = text_.find('\n', at_);
  if (end == std::string_view::npos) refuse("ends unexpectedly");
  const std::string_view line = take(end - at_);
  take(1);
  return line;
}

// Two's complement, little-endian.
int64_t Pickle::take_long(size_t bytes) {
  if (bytes > 8) {  // the first number of an old file is longer, and only compared
    take(bytes);
    return -1;
  }
  if (bytes == 0) return 0;
  const uint64_t value = take_number(bytes);
  const int unused = 64 - 8 * static_cast<int>(bytes);
  return static_cast<int64_t>(value << unused) >> unused;
}

// ---- the stack ----

Pickle::Ref Pickle::push(Value value) {
  if (values_.size() >= kMostValues) refuse("contains more values than a state_dict needs");
  values_.push_back(std::move(value));
  stack_.push_back(static_cast<Ref>(values_.size() - 1));
  return stack_.back();
}

Pickle::Ref Pickle::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse("pops from an empty stack");
  const Ref ref = stack_.back();
  stack_.pop_back();
  return ref;
}

std::vector<Pickle::Ref> Pickle::pop_to_mark() {
  if (marks_.empty()) refuse("pops from an empty stack");
  const auto begin = stack_.begin() + static_cast<int64_t>(marks_.back());
  std::vector<Ref> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

const Pickle::Value& Pickle::top() const {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse("pops from an empty stack");
  return of(stack_.back());
}

Pickle::Value& Pickle::changeable_top(Value::Kind kind) {
  if (top().kind != kind) refuse("appends to something that is not a container");
  return values_[stack_.back()];
}

void Pickle::push_text(size_t length_bytes) {
  const uint64_t length = take_number(length_bytes);
  if (length > text_.size()) refuse("ends unexpectedly");
  push({.kind = Value::Kind::text, .text = std::string(take(static_cast<size_t>(length)))});
}

void Pickle::push_tuple(size_t count) {
  std::vector<Ref> items(count);
  for (size_t k = count; k-- > 0;) items[k] = pop();
  push({.kind = Value::Kind::tuple, .items = std::move(items)});
}

void Pickle::remember(uint64_t index) {
  if (index >= kMostValues) refuse("memoizes more than a state_dict needs");
  if (memo_.size() <= index) memo_.resize(index + 1);
  top();
  memo_[index] = stack_.back();
}

void Pickle::recall(uint64_t index) {
  if (index >= memo_.size() || !memo_[index]) refuse("reads a memo entry that was not written");
  stack_.push_back(*memo_[index]);
}

// ---- opcodes ----

bool Pickle::step() {
  const auto code = static_cast<unsigned char>(take(1)[0]);
  switch (code) {
    case 0x80:  // PROTO
      if (const uint64_t protocol = take_number(1); protocol < 2 || protocol > 5)
        refuse(fmt::format("has unsupported protocol {}", protocol));
      return true;
    case 0x95:  // FRAME
      take_number(8);
      return true;
    case '.':  // STOP
      if (stack_.size() != 1 || !marks_.empty()) refuse("does not end with exactly one value");
      return false;
    default:
      break;
  }
  if (!step_value(code) && !step_container(code) && !step_memo(code))
    refuse(fmt::format("has opcode {:#04x}, which a state_dict never uses", code));
  return true;
}

bool Pickle::step_value(unsigned char code) {
  using Kind = Value::Kind;
  switch (code) {
    case 'N':
      return push({.kind = Kind::none}), true;
    case 0x88:
    case 0x89:
      return push({.kind = Kind::truth, .integer = code == 0x88 ? 1 : 0}), true;
    case 'K':
      return push({.kind = Kind::integer, .integer = static_cast<int64_t>(take_number(1))}), true;
    case 'M':
      return push({.kind = Kind::integer, .integer = static_cast<int64_t>(take_number(2))}), true;
    case 'J':
      return push({.kind = Kind::integer, .integer = take_long(4)}), true;
    case 0x8a:  // LONG1
      return push({.kind = Kind::integer, .integer = take_long(take_number(1))}), true;
    case 'G':
      take(8);
      return push({.kind = Kind::real}), true;
    case 'X':
    case 'T':
    case 'B':
      return push_text(4), true;
    case 0x8c:
    case 'U':
    case 'C':
      return push_text(1), true;
    case 0x8d:
      return push_text(8), true;
    case 'c': {  // GLOBAL
      const std::string_view module = take_line();
      return push_name(module, take_line()), true;
    }
    case 0x93: {  // STACK_GLOBAL
      const Value name = of(pop()), module = of(pop());
      if (name.kind != Kind::text || module.kind != Kind::text)
        refuse("contains a name that is not a string");
      return push_name(module.text, name.text), true;
    }
    default:
      return false;
  }
}

bool Pickle::step_container(unsigned char code) {
  using Kind = Value::Kind;
  const auto append = [&](Kind kind, std::vector<Ref> items) {
    if (kind == Kind::dictionary && items.size() % 2 != 0) refuse("sets a key without a value");
    auto& all = changeable_top(kind).items;
    all.insert(all.end(), items.begin(), items.end());
  };
  switch (code) {
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case ')':
      return push_tuple(0), true;
    case 0x85:
    case 0x86:
    case 0x87:
      return push_tuple(code - 0x84u), true;
    case 't':
      return push({.kind = Kind::tuple, .items = pop_to_mark()}), true;
    case ']':
      return push({.kind = Kind::list}), true;
    case '}':
      return push({.kind = Kind::dictionary}), true;
    case 'a':
      return append(Kind::list, {pop()}), true;
    case 'e':
      return append(Kind::list, pop_to_mark()), true;
    case 's': {
      const Ref value = pop(), key = pop();
      return append(Kind::dictionary, {key, value}), true;
    }
    case 'u':
      return append(Kind::dictionary, pop_to_mark()), true;
    case 'b':  // BUILD: the attributes of a dictionary (_metadata), which say nothing of tensors
      pop();
      changeable_top(Kind::dictionary);
      return true;
    case 'Q':
      return push_storage(), true;
    case 'R':
      return call(), true;
    default:
      return false;
  }
}

bool Pickle::step_memo(unsigned char code) {
  switch (code) {
    case 'q':
      return remember(take_number(1)), true;
    case 'r':
      return remember(take_number(4)), true;
    case 0x94:
      return remember(memo_.size()), true;
    case 'h':
      return recall(take_number(1)), true;
    case 'j':
      return recall(take_number(4)), true;
    default:
      return false;
  }
}

// ---- what may be mentioned ----

void Pickle::push_name(std::string_view module, std::string_view name) {
  for (size_t k = 0; k < std::size(kAllowed); ++k) {
    if (kAllowed[k].module == module && kAllowed[k].name == name) {
      push({.kind = Value::Kind::name, .integer = static_cast<int64_t>(k)});
      return;
    }
  }
  refuse(fmt::format("asks for {}, which a state_dict never needs",
                     base::quoted(std::string(module) + "." + std::string(name))));
}

int64_t Pickle::size_of_value(Ref ref) const {
  if (of(ref).kind != Value::Kind::integer || of(ref).integer < 0)
    refuse("describes a tensor with something other than integers");
  return of(ref).integer;
}

std::vector<int64_t> Pickle::sizes(Ref ref) const {
  if (of(ref).kind != Value::Kind::tuple || of(ref).items.size() > kMostDimensions)
    refuse("describes a tensor with something other than integers");
  std::vector<int64_t> all;
  for (const Ref one : of(ref).items) all.push_back(size_of_value(one));
  return all;
}

// ("storage", torch.FloatStorage, "0", "cpu", elements); old files say of what it is a view, too.
void Pickle::push_storage() {
  const Value& id = of(pop());
  const auto is = [&](size_t k, Value::Kind kind) { return of(id.items[k]).kind == kind; };
  if (id.kind != Value::Kind::tuple || id.items.size() < 5 || id.items.size() > 6 ||
      !is(0, Value::Kind::text) || of(id.items[0]).text != "storage" || !is(1, Value::Kind::name) ||
      !is(2, Value::Kind::text))
    refuse("refers to a storage in a way PyTorch never does");
  const Allowed& type = kAllowed[of(id.items[1]).integer];
  if (type.what != Name::storage) refuse("refers to a storage in a way PyTorch never does");
  if (of(id.items[2]).text.size() > kMostKey) refuse("refers to a storage in a way PyTorch never does");
  if (id.items.size() == 6 && !is(5, Value::Kind::none)) refuse("has a storage that is a view of another");
  storages_.push_back({of(id.items[2]).text, type.dtype, size_of_value(id.items[4])});
  push({.kind = Value::Kind::storage, .integer = static_cast<int64_t>(storages_.size() - 1)});
}

void Pickle::call() {
  const Value arguments = of(pop()), function = of(pop());
  if (function.kind != Value::Kind::name || arguments.kind != Value::Kind::tuple)
    refuse("calls something that is not a function");
  switch (kAllowed[function.integer].what) {
    case Name::ordered_dict:
      if (!arguments.items.empty()) refuse("builds a dictionary from arguments");
      push({.kind = Value::Kind::dictionary});
      return;
    case Name::rebuild_tensor:
    case Name::rebuild_tensor_v2:
      push(rebuilt(arguments.items, kAllowed[function.integer].what == Name::rebuild_tensor_v2));
      return;
    case Name::rebuild_parameter:
      if (arguments.items.size() != 3 || of(arguments.items[0]).kind != Value::Kind::tensor)
        refuse("builds a parameter from something that is not a tensor");
      stack_.push_back(arguments.items[0]);
      return;
    case Name::storage:
      break;
  }
  refuse("calls a storage's type");
}

// (storage, offset, sizes, strides), and for the second version whether it has a gradient, hooks, and perhaps
// what else is known of it.
Pickle::Value Pickle::rebuilt(const std::vector<Ref>& arguments, bool second_version) {
  const size_t least = second_version ? 6 : 4, most = second_version ? 7 : 4;
  if (arguments.size() < least || arguments.size() > most || of(arguments[0]).kind != Value::Kind::storage)
    refuse("builds a tensor from something that is not a storage");
  PickledTensor tensor{.storage = storages_[static_cast<size_t>(of(arguments[0]).integer)],
                       .offset = size_of_value(arguments[1]),
                       .shape = sizes(arguments[2]),
                       .strides = sizes(arguments[3])};
  if (tensor.shape.size() != tensor.strides.size())
    refuse("has a tensor with different numbers of sizes and strides");
  tensors_.push_back(std::move(tensor));
  return {.kind = Value::Kind::tensor, .integer = static_cast<int64_t>(tensors_.size() - 1)};
}

// ---- what it was ----

std::map<std::string, PickledTensor> Pickle::tensors() const {
  const Value& root = of(stack_[0]);
  if (root.kind != Value::Kind::dictionary) refuse("contains something other than a dictionary of tensors");
  std::map<std::string, PickledTensor> named;
  for (size_t k = 0; k < root.items.size(); k += 2) {
    const Value &key = of(root.items[k]), &value = of(root.items[k + 1]);
    if (value.kind != Value::Kind::tensor) continue;
    if (key.kind != Value::Kind::text) refuse("has a tensor whose name is not a string");
    if (!named.emplace(key.text, tensors_[static_cast<size_t>(value.integer)]).second)
      refuse(fmt::format("contains tensor {} twice", base::quoted(key.text)));
  }
  if (named.empty()) refuse("has no tensors at its top level: expected a model's state_dict");
  return named;
}

std::vector<std::string> Pickle::texts() const {
  if (of(stack_[0]).kind != Value::Kind::list) refuse("contains something other than a list");
  std::vector<std::string> all;
  for (const Ref one : of(stack_[0]).items) {
    if (of(one).kind != Value::Kind::text) refuse("contains a list of something other than names");
    all.push_back(of(one).text);
  }
  return all;
}

int64_t Pickle::integer() const {
  if (of(stack_[0]).kind != Value::Kind::integer) refuse("contains something other than a number");
  return of(stack_[0]).integer;
}

}  // namespace lockstep::checkpoint
