// Jinja's filters of many items: sort, map, select, groupby and the like.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lockstep/chat/jinja/filters.h"
#include "lockstep/chat/jinja/operations.h"

namespace lockstep::chat::jinja {

namespace {

// "a.b.0": an attribute of an attribute; `otherwise` stands for what is not there, unless it is none.
Value path_of(const Value& value, const Value& path, const Value& otherwise = None{}) {
  const auto present = [&](Value found) {
    return found.is_undefined() && !otherwise.is_none() ? otherwise : found;
  };
  if (path.get<int64_t>() != nullptr) return present(item(value, path));
  Value found = value;
  std::string_view rest = str_of(path);
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.starts_with('-') && end == part.data() + part.size() && error == std::errc();
    const Value key = is_index ? Value(index) : Value(part);
    found = present(item(found, key));
    if (dot == std::string_view::npos) return found;
    rest.remove_prefix(dot + 1);
  }
}

// A text, that is; whatever else it is stays.
Value in_small_letters(const Value& value) {
  return value.get<std::string>() != nullptr ? call(*method(value, "lower"), {}) : value;
}

// By what an item is sorted or told apart: itself or its attribute, in small letters unless it is to be
// exact.
Value key_of(const Value& one, const Value& path, bool exact) {
  Value value = path.is_none() ? one : path_of(one, path);
  return exact ? value : in_small_letters(value);
}

Value sorted(Run&, const Value& input, const Arguments& a) {
  std::vector<Value> items = items_of(input);
  const bool reverse = is_true(a.get(0, "reverse", false)),
             exact = is_true(a.get(1, "case_sensitive", false));
  const Value path = a.get(2, "attribute", None{});
  const auto key = [&](const Value& one) {
    const std::string* paths = path.get<std::string>();
    if (paths == nullptr) return key_of(one, path, exact);
    // "a,b": by one, then by the other. A list even of one: equal items are never asked for their order then.
    List keys;
    for (std::string_view rest = *paths;;) {
      const size_t comma = rest.find(',');
      keys.items.push_back(key_of(one, Value(rest.substr(0, comma)), exact));
      if (comma == std::string_view::npos) return Value(keys);
      rest.remove_prefix(comma + 1);
    }
  };
  std::stable_sort(items.begin(), items.end(), [&](const Value& x, const Value& y) {
    return reverse ? compare(key(y), key(x)) < 0 : compare(key(x), key(y)) < 0;
  });
  return List{items};
}

Value dictsort(Run&, const Value& input, const Arguments& a) {
  const Dict* dict = input.get<Dict>();
  if (dict == nullptr) fail("dictsort takes a dictionary");
  const bool exact = is_true(a.get(0, "case_sensitive", false)),
             reverse = is_true(a.get(2, "reverse", false));
  const bool by_value = to_str(a.get(1, "by", "key")) == "value";
  auto items = dict->items;
  const auto key = [&](const std::pair<Value, Value>& one) {
    const Value& value = by_value ? one.second : one.first;
    return exact ? value : in_small_letters(value);
  };
  std::stable_sort(items.begin(), items.end(), [&](const auto& x, const auto& y) {
    return reverse ? compare(key(y), key(x)) < 0 : compare(key(x), key(y)) < 0;
  });
  List pairs;
  for (const auto& [name, value] : items) pairs.items.emplace_back(List{{name, value}, true});
  return pairs;
}

// An item at a time from `start`'s items, of which `next` makes one; nothing happens before somebody asks.
using Next = std::function<std::optional<Value>()>;
Value lazily(std::function<Next()> start) {
  return Generator{"generator", [start = std::move(start), next = Next()]() mutable -> std::optional<Value> {
                     if (!next) next = start();
                     return next();
                   }};
}

// Those of Jinja's filters that choose take anything false as empty, none among it.
Next walk_or_none(const Value& input) {
  return is_true(input) ? walk(input) : Next([] { return std::nullopt; });
}

Value map(Run& run, const Value& input, const Arguments& a) {
  return lazily([&run, input, a]() -> Next {
    if (!is_true(input)) return walk_or_none(input);
    Arguments rest = a;
    if (const Value* path = a.find(SIZE_MAX, "attribute"); path != nullptr && a.positional.empty()) {
      for (const auto& [name, value] : a.named) {
        if (name != "attribute" && name != "default")
          fail(fmt::format("Unexpected keyword argument '{}'", name));
      }
      return [items = walk(input), path = *path, otherwise = a.get(SIZE_MAX, "default", None{})]() {
        std::optional<Value> one = items();
        return one ? std::optional(path_of(*one, path, otherwise)) : std::nullopt;
      };
    }
    if (a.positional.empty()) fail("map requires a filter argument");
    rest.positional.erase(rest.positional.begin());
    return [&run, items = walk(input), name = to_str(a.positional[0]), rest]() {
      std::optional<Value> one = items();
      return one ? std::optional(filter(run, name, *one, rest)) : std::nullopt;
    };
  });
}

// select, reject, selectattr, rejectattr: those for which a test holds, or does not.
Value chosen(Run& run, const Value& input, const Arguments& a, bool by_attribute, bool wanted) {
  return lazily([&run, input, a, by_attribute, wanted]() -> Next {
    if (!is_true(input)) return walk_or_none(input);
    const size_t skipped = by_attribute ? 1 : 0;
    if (a.positional.size() < skipped) fail("Missing parameter for attribute name");
    const bool tested = a.positional.size() > skipped;
    Arguments rest{{}, a.named};
    if (tested)
      rest.positional.assign(a.positional.begin() + static_cast<ptrdiff_t>(skipped) + 1, a.positional.end());
    const std::string name = tested ? to_str(a.positional[skipped]) : "";
    const Value path = by_attribute ? a.positional[0] : Value(None{});
    return [&run, items = walk(input), name, rest, path, tested, wanted]() -> std::optional<Value> {
      while (std::optional<Value> one = items()) {
        const Value value = path.is_none() ? *one : path_of(*one, path);
        if ((tested ? test(run, name, value, rest) : is_true(value)) == wanted) return one;
      }
      return std::nullopt;
    };
  });
}

Value joined(Run&, const Value& input, const Arguments& a) {
  const std::string between = to_str(a.get(0, "d", ""));
  const Value path = a.get(1, "attribute", None{});
  std::string out;
  bool first = true;
  for (const Value& one : items_of(input)) {
    if (!std::exchange(first, false)) grow(out, between);
    grow(out, to_str(path.is_none() ? one : path_of(one, path)));
  }
  return out;
}

// What Python cannot look up in a set or a dictionary.
void require_hashable(const Value& value) {
  const List* list = value.get<List>();
  if (value.get<Dict>() != nullptr || (list != nullptr && !list->tuple))
    fail(fmt::format("unhashable type: '{}'", type_name(value)));
  if (list != nullptr) std::for_each(list->items.begin(), list->items.end(), require_hashable);
}

Value unique(Run&, const Value& input, const Arguments& a) {
  const bool exact = is_true(a.get(0, "case_sensitive", false));
  const Value path = a.get(1, "attribute", None{});
  return lazily([=]() -> Next {
    return [=, items = walk(input), seen = std::vector<Value>()]() mutable -> std::optional<Value> {
      while (std::optional<Value> one = items()) {
        Value key = key_of(*one, path, exact);
        require_hashable(key);
        if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return is_equal(other, key); }))
          continue;
        seen.push_back(std::move(key));
        return one;
      }
      return std::nullopt;
    };
  });
}

// Runs of so many items, the last filled up where something is given to fill it with.
Value batch(Run&, const Value& input, const Arguments& a) {
  const Value count = a.get(0, "linecount", Undefined{"batch takes a number"}),
              fill = a.get(1, "fill_with", None{});
  return lazily([=]() -> Next {
    return [items = walk(input), size = static_cast<size_t>(std::max<int64_t>(1, int_of(count))),
            fill]() -> std::optional<Value> {
      List run;
      while (run.items.size() < size) {
        std::optional<Value> one = items();
        if (!one) break;
        run.items.push_back(std::move(*one));
      }
      if (run.items.empty()) return std::nullopt;
      if (!fill.is_none()) run.items.resize(size, fill);
      return run;
    };
  });
}

// So many lists of nearly as many items each, the first ones longer.
Value sliced(Run&, const Value& input, const Arguments& a) {
  const Value count = a.get(0, "slices", Undefined{"slice takes a number"}),
              fill = a.get(1, "fill_with", None{});
  return lazily([=]() -> Next {
    const std::vector<Value> items = items_of(input);
    const int64_t slices = int_of(count), all = static_cast<int64_t>(items.size());
    if (slices == 0) fail("integer division or modulo by zero");
    return [=, number = int64_t{0}]() mutable -> std::optional<Value> {
      if (number >= slices) return std::nullopt;
      const int64_t each = all / slices, longer = all % slices;
      const int64_t begin = number * each + std::min(number, longer),
                    end = begin + each + (number < longer ? 1 : 0);
      List one{.items = {items.begin() + begin, items.begin() + end}};
      if (!fill.is_none() && number >= longer) one.items.push_back(fill);
      ++number;
      return one;
    };
  });
}

// Lists of the items whose attribute is the same, each behind what they have in common, in its order.
Value grouped(Run&, const Value& input, const Arguments& a) {
  const Value path = a.get(0, "attribute", None{}), otherwise = a.get(1, "default", None{});
  const bool exact = is_true(a.get(2, "case_sensitive", false));
  const auto key = [&](const Value& one) {
    const Value found = path_of(one, path, otherwise);
    return exact ? found : in_small_letters(found);
  };
  std::vector<Value> items = items_of(input);
  std::stable_sort(items.begin(), items.end(),
                   [&](const Value& x, const Value& y) { return compare(key(x), key(y)) < 0; });
  List groups;
  for (size_t at = 0; at < items.size();) {
    const Value common = key(items[at]), shown = path_of(items[at], path, otherwise);
    List group;
    for (; at < items.size() && is_equal(key(items[at]), common); ++at) group.items.push_back(items[at]);
    groups.items.emplace_back(List{{shown, group}, true});
  }
  return groups;
}

Value extreme(const Value& input, const Arguments& a, int sign) {
  const bool exact = is_true(a.get(0, "case_sensitive", false));
  const Value path = a.get(1, "attribute", None{});
  const std::vector<Value> items = items_of(input);
  if (items.empty()) return Undefined{"No aggregated item, sequence was empty."};
  const Value* best = &items.front();
  for (const Value& one : items) {
    if (&one != best && compare(key_of(one, path, exact), key_of(*best, path, exact)) * sign > 0) best = &one;
  }
  return *best;
}

Value sum(Run&, const Value& input, const Arguments& a) {
  const Value path = a.get(0, "attribute", None{});
  Value total = a.get(1, "start", 0);
  for (const Value& one : items_of(input))
    total = binary("+", total, path.is_none() ? one : path_of(one, path));
  return total;
}

Value reversed(Run&, const Value& input, const Arguments&) {
  if (input.get<std::string>() != nullptr) return slice(input, None{}, None{}, -1);
  std::vector<Value> items = items_of(input);
  std::reverse(items.begin(), items.end());
  if (input.get<Generator>() != nullptr) return List{items};
  return Generator{"reversed", walk(List{items})};
}

constexpr FilterRow kItemFilters[] = {
    {"batch", batch},
    {"dictsort", dictsort},
    {"first",
     [](Run&, const Value& v, const Arguments&) {
       std::optional<Value> first = walk(v)();
       return first ? *first : Value(Undefined{"No first item, sequence was empty."});
     }},
    {"groupby", grouped},
    {"items",
     [](Run&, const Value& v, const Arguments&) {
       return lazily([v]() -> Next {
         if (v.is_undefined()) return walk(v);
         if (v.get<Dict>() == nullptr) fail("Can only get item pairs from a mapping.");
         return walk(call(*method(v, "items"), {}));
       });
     }},
    {"join", joined},
    {"last",
     [](Run&, const Value& v, const Arguments&) {
       if (v.get<Generator>() != nullptr) fail(fmt::format("'{}' object is not reversible", type_name(v)));
       const std::vector<Value> items = items_of(v);
       return items.empty() ? Value(Undefined{"No last item, sequence was empty."}) : items.back();
     }},
    {"list", [](Run&, const Value& v, const Arguments&) { return Value(List{items_of(v)}); }},
    {"map", map},
    {"max", [](Run&, const Value& v, const Arguments& a) { return extreme(v, a, 1); }},
    {"min", [](Run&, const Value& v, const Arguments& a) { return extreme(v, a, -1); }},
    {"reject", [](Run& r, const Value& v, const Arguments& a) { return chosen(r, v, a, false, false); }},
    {"rejectattr", [](Run& r, const Value& v, const Arguments& a) { return chosen(r, v, a, true, false); }},
    {"reverse", reversed},
    {"select", [](Run& r, const Value& v, const Arguments& a) { return chosen(r, v, a, false, true); }},
    {"selectattr", [](Run& r, const Value& v, const Arguments& a) { return chosen(r, v, a, true, true); }},
    {"slice", sliced},
    {"sort", sorted},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const FilterRow> item_filters() { return kItemFilters; }

}  // namespace lockstep::chat::jinja
