// Methods of lists and dictionaries. Those that would change one are refused, as in the sandbox that Hugging
// Face renders in.
#include "lockstep/chat/jinja/methods.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/chat/jinja/operations.h"

namespace lockstep::chat::jinja {

namespace {

std::optional<Value> bound(std::span<const MethodRow> rows, const Value& self, std::string_view name) {
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const MethodRow& one) { return one.name == name; });
  if (row == rows.end()) return std::nullopt;
  return Value(Function{std::string(name), [self, &row = *row](const Arguments& a) {
                          if (a.positional.size() + a.named.size() > row.most)
                            fail(fmt::format("{}() takes at most {} argument(s)", row.name, row.most));
                          for (const auto& [keyword, value] : a.named) {
                            if (row.keywords != "*" && row.keywords.find(keyword) == std::string_view::npos)
                              fail(fmt::format("{}() takes no keyword argument '{}'", row.name, keyword));
                          }
                          return row.call(self, a);
                        }});
}

Value pairs_of(const Dict& dict) {
  List pairs;
  for (const auto& [key, value] : dict.items) pairs.items.emplace_back(List{{key, value}, true});
  pairs.view = "dict_items";
  return pairs;
}

constexpr MethodRow kDictMethods[] = {
    {"items", 0, [](const Value& s, const Arguments&) { return pairs_of(*s.get<Dict>()); }},
    {"keys", 0,
     [](const Value& s, const Arguments&) { return Value(List{.items = items_of(s), .view = "dict_keys"}); }},
    {"values", 0,
     [](const Value& s, const Arguments&) {
       List values;
       for (const auto& [key, value] : s.get<Dict>()->items) values.items.push_back(value);
       values.view = "dict_values";
       return Value(values);
     }},
    {"get", 2,
     [](const Value& s, const Arguments& a) {
       if (a.positional.empty()) fail("get expected at least 1 argument, got 0");
       const Value* found = s.get<Dict>()->find(a.positional[0]);
       return found != nullptr ? *found : a.get(1, "default", None{});
     }},
    {"copy", 0, [](const Value& s, const Arguments&) { return s; }},
};

constexpr MethodRow kListMethods[] = {
    {"index", 3,
     [](const Value& s, const Arguments& a) {
       const std::vector<Value>& items = s.get<List>()->items;
       if (a.positional.empty()) fail("an argument is missing");
       const Places places = places_of(static_cast<int64_t>(items.size()), a);
       for (int64_t i = places.first; i < places.last; ++i) {
         if (is_equal(items[static_cast<size_t>(i)], a.positional[0])) return Value(i);
       }
       fail(fmt::format("{} is not in list", to_repr(a.positional[0])));
     }},
    {"count", 1,
     [](const Value& s, const Arguments& a) {
       const std::vector<Value>& items = s.get<List>()->items;
       const Value wanted = a.get(0, "value", Value());
       return Value(static_cast<int64_t>(std::count_if(
           items.begin(), items.end(), [&](const Value& one) { return is_equal(one, wanted); })));
     }},
    {"copy", 0, [](const Value& s, const Arguments&) { return s; }},
};

constexpr std::string_view kChanging[] = {"append", "extend", "insert", "pop",        "remove", "reverse",
                                          "sort",   "clear",  "update", "setdefault", "popitem"};

}  // namespace

Places places_of(int64_t count, const Arguments& a) {
  const auto place = [&](size_t argument, int64_t otherwise) {
    const Value given = a.get(argument, "", None{});
    const int64_t at = given.is_none() ? otherwise : int_of(given);
    return at < 0 ? std::max<int64_t>(0, at + count) : at;
  };
  return {place(1, 0), std::min(place(2, count), count)};
}

std::optional<Value> method(const Value& of, std::string_view name) {
  if (of.get<std::string>() != nullptr) return bound(text_methods(), of, name);
  const bool dict = of.get<Dict>() != nullptr;
  if (!dict && (of.get<List>() == nullptr || of.get<List>()->view != nullptr)) return std::nullopt;
  std::optional<Value> found = dict ? bound(kDictMethods, of, name) : bound(kListMethods, of, name);
  if (found || (dict && of.get<Dict>()->find(Value(name)) != nullptr)) return found;
  if (std::find(std::begin(kChanging), std::end(kChanging), name) == std::end(kChanging)) return found;
  return Value(Function{std::string(name), [name = std::string(name)](const Arguments&) -> Value {
                          fail(fmt::format("{}() would change a value; templates may not", name));
                        }});
}

}  // namespace lockstep::chat::jinja
