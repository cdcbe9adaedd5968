#include "lockstep/chat/jinja/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::chat::jinja {

int64_t int_of(const Value& value) {
  if (const int64_t* number = value.get<int64_t>()) return *number;
  if (const bool* known = value.get<bool>()) return *known ? 1 : 0;
  fail(fmt::format("an integer is expected, not a {}", type_name(value)));
}

const std::string& str_of(const Value& value) {
  const std::string* text = value.get<std::string>();
  if (text == nullptr) fail(fmt::format("a string is expected, not a {}", type_name(value)));
  return *text;
}

namespace {

void require_defined(const Value& value) {
  if (const Undefined* undefined = value.get<Undefined>()) fail(undefined->what);
}

Undefined missing(const Value& of, const std::string& what) {
  const std::string owner = of.is_none() ? "None" : fmt::format("{} object", type_name(of));
  return {fmt::format("'{}' has no attribute '{}'", owner, what)};
}

std::optional<Value> own_attribute(const Value& of, std::string_view name) {
  if (const Object* object = of.object()) {
    if (const Value* found = object->find(name)) return *found;
    return object->computed ? object->computed(name) : std::nullopt;
  }
  return method(of, name);
}

std::optional<Value> own_item(const Value& of, const Value& key) {
  if (const Dict* dict = of.get<Dict>()) {
    const Value* found = dict->find(key);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  const bool is_index = key.get<int64_t>() != nullptr || key.get<bool>() != nullptr;
  const std::optional<int64_t> length = is_index && of.object() == nullptr ? length_of(of) : std::nullopt;
  const List* list = of.get<List>();
  if (!length || (list != nullptr && list->view != nullptr)) return std::nullopt;
  const int64_t index = int_of(key) + (int_of(key) < 0 ? *length : 0);
  if (index < 0 || index >= *length) return std::nullopt;
  if (list != nullptr) return list->items[static_cast<size_t>(index)];
  return Value(characters_of(str_of(of))[static_cast<size_t>(index)]);
}

}  // namespace

Value attribute(const Value& of, std::string_view name) {
  require_defined(of);
  if (std::optional<Value> own = own_attribute(of, name)) return *own;
  if (std::optional<Value> own = own_item(of, Value(name))) return *own;
  return missing(of, std::string(name));
}

Value item(const Value& of, const Value& key) {
  require_defined(of);
  if (std::optional<Value> own = own_item(of, key)) return *own;
  if (const std::string* name = key.get<std::string>()) {
    if (std::optional<Value> own = own_attribute(of, *name)) return *own;
  }
  return missing(of, to_str(key));
}

bool has_slices(const Value& of) {
  return of.get<std::string>() != nullptr || (of.get<List>() != nullptr && of.get<List>()->view == nullptr);
}

Value slice(const Value& of, const Value& first, const Value& last, const Value& step) {
  require_defined(of);
  const bool is_text = of.get<std::string>() != nullptr;
  if (!has_slices(of)) fail(fmt::format("'{}' object is not subscriptable", type_name(of)));
  const std::vector<Value> items = items_of(of);
  const auto count = static_cast<int64_t>(items.size());
  const int64_t by = step.is_none() ? 1 : int_of(step);
  if (by == 0) fail("slice step cannot be zero");
  const auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const int64_t at = int_of(value) + (int_of(value) < 0 ? count : 0);
    return by > 0 ? std::clamp<int64_t>(at, 0, count) : std::clamp<int64_t>(at, -1, count - 1);
  };
  const int64_t begin = bound(first, by > 0 ? 0 : count - 1), end = bound(last, by > 0 ? count : -1);
  List taken;
  if (const List* list = of.get<List>()) taken.tuple = list->tuple;
  for (int64_t at = begin; by > 0 ? at < end : at > end; at += by)
    taken.items.push_back(items[static_cast<size_t>(at)]);
  if (!is_text) return taken;
  std::string text;
  for (const Value& one : taken.items) text += str_of(one);
  return text;
}

namespace {

struct Pair {
  bool whole = false;
  int64_t a = 0, b = 0;
  double x = 0, y = 0;
};

std::optional<Pair> numbers(const Value& a, const Value& b) {
  const auto read = [](const Value& value, int64_t& whole, double& real) -> std::optional<bool> {
    if (const double* number = value.get<double>()) return real = *number, false;
    if (value.get<int64_t>() == nullptr && value.get<bool>() == nullptr) return std::nullopt;
    whole = int_of(value);
    real = static_cast<double>(whole);
    return true;
  };
  Pair pair;
  const std::optional<bool> left = read(a, pair.a, pair.x), right = read(b, pair.b, pair.y);
  if (!left || !right) return std::nullopt;
  pair.whole = *left && *right;
  return pair;
}

[[noreturn]] void too_large() { fail("a number beyond 64 bits"); }
int64_t sum(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? (too_large(), 0) : out;
}
int64_t difference(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_sub_overflow(a, b, &out) ? (too_large(), 0) : out;
}
int64_t product(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? (too_large(), 0) : out;
}

// Python's: toward minus infinity, the remainder with the divisor's sign.
int64_t floor_divided(int64_t a, int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) return difference(0, a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

int64_t power(int64_t base, int64_t exponent) {
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) result = product(result, base);  // 64 times at most
  return result;
}

Value calculate(std::string_view operation, const Pair& p) {
  if (operation == "+") return p.whole ? Value(sum(p.a, p.b)) : Value(p.x + p.y);
  if (operation == "-") return p.whole ? Value(difference(p.a, p.b)) : Value(p.x - p.y);
  if (operation == "*") return p.whole ? Value(product(p.a, p.b)) : Value(p.x * p.y);
  if (operation == "**") return p.whole && p.b >= 0 ? Value(power(p.a, p.b)) : Value(std::pow(p.x, p.y));
  if (p.y == 0) fail("division by zero");
  if (operation == "/") return p.x / p.y;
  if (operation == "//") return p.whole ? Value(floor_divided(p.a, p.b)) : Value(std::floor(p.x / p.y));
  if (p.whole) return p.b == -1 ? int64_t{0} : p.a - floor_divided(p.a, p.b) * p.b;
  const double rest = std::fmod(p.x, p.y);
  return rest != 0 && (rest < 0) != (p.y < 0) ? rest + p.y : rest;
}

// A list's items are copied, and a text among them with all it holds.
void check_size(const List& list) {
  constexpr size_t kMost = size_t{128} << 20;
  size_t bytes = list.items.size() * sizeof(Value);
  for (const Value& one : list.items) {
    if (const std::string* text = one.get<std::string>()) bytes += text->size();
  }
  if (bytes > kMost) fail("a list that is too long");
}

Value repeated(const Value& of, int64_t times) {
  const int64_t length = length_of(of).value_or(0);
  if (times > 0 && length > 10'000'000 / times) fail("a repetition that is too long");
  std::string text;
  List list;
  const List* part = of.get<List>();
  if (part != nullptr) list.tuple = part->tuple;
  for (int64_t i = 0; length > 0 && i < times; ++i) {
    if (part == nullptr) {
      grow(text, str_of(of));
      continue;
    }
    if ((i & (i - 1)) == 0) check_size(list);  // each time that it has doubled
    list.items.insert(list.items.end(), part->items.begin(), part->items.end());
  }
  return part != nullptr ? Value(list) : Value(text);
}

}  // namespace

Value binary(std::string_view operation, const Value& a, const Value& b) {
  if (const std::optional<Pair> pair = numbers(a, b)) return calculate(operation, *pair);
  require_defined(a);
  if (operation == "%" && a.get<std::string>() != nullptr) return formatted(str_of(a), b);
  require_defined(b);
  const bool texts = a.get<std::string>() != nullptr && b.get<std::string>() != nullptr;
  if (operation == "+" && texts) {
    std::string both = str_of(a);
    grow(both, str_of(b));
    return both;
  }
  const List *left = a.get<List>(), *right = b.get<List>();
  const bool alike =
      left != nullptr && right != nullptr && type_name(a) == type_name(b) && left->view == nullptr;
  if (operation == "+" && alike) {
    List both = *left;
    both.items.insert(both.items.end(), right->items.begin(), right->items.end());
    check_size(both);
    return both;
  }
  const auto repeats = [](const Value& value) {
    return value.get<std::string>() || (value.get<List>() && value.get<List>()->view == nullptr);
  };
  const auto counts = [](const Value& value) { return value.get<int64_t>() || value.get<bool>(); };
  if (operation == "*" && repeats(a) && counts(b)) return repeated(a, int_of(b));
  if (operation == "*" && repeats(b) && counts(a)) return repeated(b, int_of(a));
  fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", operation, type_name(a),
                   type_name(b)));
}

Value negated(const Value& value) {
  require_defined(value);
  if (const double* number = value.get<double>()) return -*number;
  return binary("-", Value(0), value);
}

Value call(const Value& function, const Arguments& arguments) {
  require_defined(function);
  if (const Function* known = function.get<Function>()) return known->call(arguments);
  if (const Object* object = function.object(); object != nullptr && object->call)
    return object->call(arguments);
  fail(fmt::format("'{}' object is not callable", type_name(function)));
}

}  // namespace lockstep::chat::jinja
