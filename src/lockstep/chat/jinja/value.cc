#include "lockstep/chat/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/text/utf8.h"

namespace lockstep::chat::jinja {

void fail(const std::string& sentence) { throw Failure(sentence); }

Dict::Dict(std::initializer_list<std::pair<Value, Value>> all) {
  for (const auto& [key, value] : all) set(key, value);
}

const Value* Dict::find(const Value& key) const {
  for (const auto& [own, value] : items) {
    if (is_equal(own, key)) return &value;
  }
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  for (auto& [own, before] : items) {
    if (is_equal(own, key)) {
      before = std::move(value);
      return;
    }
  }
  items.emplace_back(key, std::move(value));
}

const Value* Object::find(std::string_view name) const {
  for (const auto& [own, value] : attributes) {
    if (own == name) return &value;
  }
  return nullptr;
}

const Value* Arguments::find(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [own, value] : named) {
    if (own == name) return &value;
  }
  return nullptr;
}

Value Arguments::get(size_t place, std::string_view name, Value otherwise) const {
  const Value* found = find(place, name);
  return found != nullptr ? *found : std::move(otherwise);
}

namespace {

constexpr int kDeepestJson = 500;

Value read_json(const nlohmann::ordered_json& json, int depth) {
  if (depth > kDeepestJson) fail("a message is nested too deeply");
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::object: {
      Dict dict;
      dict.items.reserve(json.size());
      for (const auto& [key, value] : json.items()) dict.items.emplace_back(key, read_json(value, depth + 1));
      return dict;
    }
    case nlohmann::ordered_json::value_t::array: {
      List list;
      list.items.reserve(json.size());
      for (const auto& value : json) list.items.push_back(read_json(value, depth + 1));
      return list;
    }
    case nlohmann::ordered_json::value_t::string:
      return json.get<std::string>();
    case nlohmann::ordered_json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_integer:
      return json.get<int64_t>();
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > INT64_MAX) fail(fmt::format("the number {} is beyond 64 bits with a sign", number));
      return static_cast<int64_t>(number);
    }
    case nlohmann::ordered_json::value_t::number_float:
      return json.get<double>();
    default:
      return None{};
  }
}

}  // namespace

Value Value::from_json(const nlohmann::ordered_json& json) { return read_json(json, 0); }

const void* Value::identity() const {
  if (const List* list = get<List>()) return list;
  if (const Dict* dict = get<Dict>()) return dict;
  if (const Function* function = get<Function>()) return function;
  if (const Generator* generator = get<Generator>()) return generator;
  return object();
}

std::string_view type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.get<bool>() != nullptr) return "bool";
  if (value.get<int64_t>() != nullptr) return "int";
  if (value.get<double>() != nullptr) return "float";
  if (value.get<std::string>() != nullptr) return "str";
  if (const List* list = value.get<List>())
    return list->view != nullptr ? list->view : list->tuple ? "tuple" : "list";
  if (const Generator* generator = value.get<Generator>()) return generator->type;
  if (value.get<Dict>() != nullptr) return "dict";
  if (const Object* object = value.object()) return object->type;
  return "function";
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const bool* known = value.get<bool>()) return *known;
  if (const int64_t* number = value.get<int64_t>()) return *number != 0;
  if (const double* number = value.get<double>()) return *number != 0;
  if (const std::string* text = value.get<std::string>()) return !text->empty();
  if (const List* list = value.get<List>()) return !list->items.empty();
  if (const Dict* dict = value.get<Dict>()) return !dict->items.empty();
  return true;
}

namespace {

struct Number {
  std::optional<int64_t> whole;
  double real = 0;
};

std::optional<Number> number_of(const Value& value) {
  if (const bool* known = value.get<bool>()) return Number{int64_t{*known}, *known ? 1.0 : 0.0};
  if (const int64_t* whole = value.get<int64_t>()) return Number{*whole, static_cast<double>(*whole)};
  if (const double* real = value.get<double>()) return Number{std::nullopt, *real};
  return std::nullopt;
}

bool same_items(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* other = b.find(item.first);
    return other != nullptr && is_equal(item.second, *other);
  });
}

// Keys and items are sets; values are equal to nothing but themselves.
bool same_views(const List& a, const List& b) {
  if (std::string_view(a.view) == "dict_values") return &a == &b;
  return a.items.size() == b.items.size() &&
         std::all_of(a.items.begin(), a.items.end(), [&](const Value& one) {
           return std::any_of(b.items.begin(), b.items.end(),
                              [&](const Value& other) { return is_equal(one, other); });
         });
}

}  // namespace

bool is_equal(const Value& a, const Value& b) {
  const std::optional<Number> left = number_of(a), right = number_of(b);
  if (left && right)
    return left->whole && right->whole ? *left->whole == *right->whole : left->real == right->real;
  if (const std::string* text = a.get<std::string>()) {
    const std::string* other = b.get<std::string>();
    return other != nullptr && *text == *other;
  }
  if (const List* list = a.get<List>()) {
    const List* other = b.get<List>();
    if (other == nullptr || type_name(a) != type_name(b)) return false;
    if (list->view != nullptr) return same_views(*list, *other);
    return std::equal(list->items.begin(), list->items.end(), other->items.begin(), other->items.end(),
                      is_equal);
  }
  if (const Dict* dict = a.get<Dict>()) {
    const Dict* other = b.get<Dict>();
    return other != nullptr && same_items(*dict, *other);
  }
  if (a.is_undefined()) return b.is_undefined();
  if (a.is_none()) return b.is_none();
  return a.identity() != nullptr && a.identity() == b.identity();
}

int compare(const Value& a, const Value& b) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  const std::optional<Number> left = number_of(a), right = number_of(b);
  if (left && right)
    return left->whole && right->whole ? order(*left->whole, *right->whole) : order(left->real, right->real);
  const std::string *text = a.get<std::string>(), *other = b.get<std::string>();
  if (text != nullptr && other != nullptr) return order(*text, *other);  // UTF-8 has the order of characters
  const List *list = a.get<List>(), *second = b.get<List>();
  if (list != nullptr && second != nullptr && type_name(a) == type_name(b) && list->view == nullptr) {
    const size_t common = std::min(list->items.size(), second->items.size());
    for (size_t i = 0; i < common; ++i) {
      if (!is_equal(list->items[i], second->items[i])) return compare(list->items[i], second->items[i]);
    }
    return order(list->items.size(), second->items.size());
  }
  if (const Undefined* undefined = a.get<Undefined>()) fail(undefined->what);
  if (const Undefined* undefined = b.get<Undefined>()) fail(undefined->what);
  fail(fmt::format("'<' not supported between instances of '{}' and '{}'", type_name(a), type_name(b)));
}

bool contains(const Value& all, const Value& one) {
  if (const std::string* text = all.get<std::string>()) {
    const std::string* part = one.get<std::string>();
    if (part == nullptr)
      fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(one)));
    return text->find(*part) != std::string::npos;
  }
  if (const Dict* dict = all.get<Dict>()) return dict->find(one) != nullptr;
  const auto next = walk(all);
  while (const std::optional<Value> item = next()) {
    if (is_equal(*item, one)) return true;
  }
  return false;
}

void grow(std::string& text, std::string_view more) {
  constexpr size_t kLongest = size_t{128} << 20;
  if (more.size() > kLongest - std::min(text.size(), kLongest)) fail("a text above 128 MiB");
  text += more;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> all;
  all.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t size =
        std::min<size_t>(static_cast<size_t>(text::length_of_char(text[at])), text.size() - at);
    all.push_back(text.substr(at, size));
    at += size;
  }
  return all;
}

std::vector<Value> items_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (const List* list = value.get<List>()) return list->items;
  std::vector<Value> items;
  if (const Dict* dict = value.get<Dict>()) {
    for (const auto& [key, item] : dict->items) items.push_back(key);
    return items;
  }
  if (const std::string* text = value.get<std::string>()) {
    for (const std::string_view one : characters_of(*text)) items.emplace_back(one);
    return items;
  }
  if (const Generator* generator = value.get<Generator>()) {
    while (std::optional<Value> next = generator->next()) items.push_back(std::move(*next));
    return items;
  }
  fail(fmt::format("'{}' object is not iterable", type_name(value)));
}

std::function<std::optional<Value>()> walk(const Value& value) {
  if (value.get<Generator>() != nullptr) return [value] { return value.get<Generator>()->next(); };
  const bool is_list = value.get<List>() != nullptr;
  auto items = std::make_shared<const std::vector<Value>>(is_list ? std::vector<Value>() : items_of(value));
  return [value, items, is_list, at = size_t{0}]() mutable -> std::optional<Value> {
    const std::vector<Value>& all = is_list ? value.get<List>()->items : *items;
    return at < all.size() ? std::optional(all[at++]) : std::nullopt;
  };
}

std::optional<int64_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const List* list = value.get<List>()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = value.get<Dict>()) return static_cast<int64_t>(dict->items.size());
  if (const std::string* text = value.get<std::string>())
    return std::count_if(text->begin(), text->end(), [](char byte) { return !text::continues_char(byte); });
  return std::nullopt;
}

}  // namespace lockstep::chat::jinja
