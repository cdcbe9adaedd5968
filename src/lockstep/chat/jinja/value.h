// What a template computes with: Python's values, as Jinja has them. Lists and dictionaries never change once
// they are made (Hugging Face renders in a sandbox that forbids it), so copies share them; a namespace() is
// the exception.
//
//     Value message = Dict{{"role", "user"}, {"content", "Hi"}};
//     to_str(message) == "{'role': 'user', 'content': 'Hi'}"
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::chat::jinja {

class Value;
struct Arguments;

struct None {};
// A name or key that is not there: empty where it is printed, an error where something is asked of it.
struct Undefined {
  std::string what;  // "'messages' is undefined"
};
struct List {
  std::vector<Value> items;
  bool tuple = false;          // for printing alone
  const char* view = nullptr;  // "dict_keys" and the like: to walk over and to count, but without places
};
// What map() and select() give: to walk over once, and nothing else; true even when empty. Nothing is
// computed before somebody asks for it.
struct Generator {
  std::string type;  // "generator"
  std::function<std::optional<Value>()> next;
};
// In the order in which keys came.
struct Dict {
  Dict() = default;
  Dict(std::initializer_list<std::pair<Value, Value>> all);
  const Value* find(const Value& key) const;
  void set(const Value& key, Value value);
  std::vector<std::pair<Value, Value>> items;
};
// namespace() and `loop`: attributes by name. A namespace's may be set.
struct Object {
  std::string type;
  std::vector<std::pair<std::string, Value>> attributes;
  bool writable = false;
  std::function<std::optional<Value>(std::string_view)> computed =
      {};                                            // of attributes that are made on demand
  std::function<Value(const Arguments&)> call = {};  // `loop(...)`, where the loop is recursive
  const Value* find(std::string_view name) const;
};
struct Function {
  std::string name;
  std::function<Value(const Arguments&)> call;
};

class Value {
 public:
  using Kind = std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Object>,
                            std::shared_ptr<const Function>, std::shared_ptr<const Generator>>;
  Value() : kind_(Undefined{}) {}
  Value(Undefined value) : kind_(std::move(value)) {}
  Value(None) : kind_(None{}) {}
  Value(bool value) : kind_(value) {}
  Value(int value) : kind_(int64_t{value}) {}
  Value(int64_t value) : kind_(value) {}
  Value(size_t value) : kind_(static_cast<int64_t>(value)) {}
  Value(double value) : kind_(value) {}
  Value(const char* value) : kind_(std::string(value)) {}
  Value(std::string value) : kind_(std::move(value)) {}
  Value(std::string_view value) : kind_(std::string(value)) {}
  Value(List value) : kind_(std::make_shared<const List>(std::move(value))) {}
  Value(Dict value) : kind_(std::make_shared<const Dict>(std::move(value))) {}
  Value(std::shared_ptr<Object> value) : kind_(std::move(value)) {}
  Value(Function value) : kind_(std::make_shared<const Function>(std::move(value))) {}
  Value(Generator value) : kind_(std::make_shared<const Generator>(std::move(value))) {}
  // Objects keep their order. What JSON calls a number is an int or a float as Python's reader has it.
  static Value from_json(const nlohmann::ordered_json& json);

  template <class T>
  const T* get() const {  // null: of another kind
    if constexpr (std::is_same_v<T, List> || std::is_same_v<T, Dict> || std::is_same_v<T, Function> ||
                  std::is_same_v<T, Generator>) {
      const auto* held = std::get_if<std::shared_ptr<const T>>(&kind_);
      return held != nullptr ? held->get() : nullptr;
    } else {
      return std::get_if<T>(&kind_);
    }
  }
  Object* object() const {
    const auto* held = std::get_if<std::shared_ptr<Object>>(&kind_);
    return held != nullptr ? held->get() : nullptr;
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  const void* identity() const;  // equal for two names of one thing

 private:
  Kind kind_;
};

// What a function, filter or test is called with.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  // The argument at this place or of this name; null where it was not given.
  const Value* find(size_t place, std::string_view name) const;
  Value get(size_t place, std::string_view name, Value otherwise) const;
};

std::string_view type_name(const Value& value);  // as Python calls it: "str", "list", ...
bool is_true(const Value& value);
bool is_equal(const Value& a, const Value& b);
// -1, 0 or 1. Fails where Python has no order for the two.
int compare(const Value& a, const Value& b);
bool contains(const Value& all, const Value& one);  // `one in all`

std::string to_str(const Value& value);   // str(value)
std::string to_repr(const Value& value);  // repr(value)
std::string to_json(const Value& value, std::optional<int64_t> indent, bool ascii, bool sorted,
                    std::string_view item_separator, std::string_view key_separator);

// What `for` walks over: items of a list, keys of a dictionary, characters of a string, nothing of what is
// undefined; what a generator still has, which then has nothing left.
std::vector<Value> items_of(const Value& value);
std::function<std::optional<Value>()> walk(const Value& value);  // the same one by one
std::optional<int64_t> length_of(const Value& value);

// Appends. What a template computes may not fill the memory: fails where the text would be above 128 MiB.
void grow(std::string& text, std::string_view more);

// A string's characters: Python counts those, and not bytes.
std::vector<std::string_view> characters_of(std::string_view text);

// The sentence for a template's author; the caller adds the line.
[[noreturn]] void fail(const std::string& sentence);
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::chat::jinja
