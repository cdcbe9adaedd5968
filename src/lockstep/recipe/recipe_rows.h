// What the rows of the table of recipe keys are made of, for the files that hold them:
//
//     make_key(MEMBER(optim.lr), always(), "The largest learning rate.", "3e-4", {.above = 0})
//
// The condition says when the key counts (recipe/key_condition.h).
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/recipe/choices.h"
#include "lockstep/recipe/recipe.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {

using Member = decltype(Key::member);

// What a value may be, beyond its type. Nothing set: anything of that type.
struct Limits {
  std::vector<std::string> choices = {};
  std::optional<double> at_least = {}, at_most = {}, above = {};
  std::string pattern = {}, form = {};
  std::vector<std::string> also = {};
  bool list = false;
  bool tables = false;
  Key::Names names = Key::Names::nothing;
};

inline Key make_key(std::string name, Key::Type type, Member member, Condition counts, std::string meaning,
                    const std::string& example, Limits limits = {}) {
  Key key;
  key.example = name + " = " + example;
  key.name = std::move(name);
  key.type = type;
  key.meaning = std::move(meaning);
  key.choices = std::move(limits.choices);
  key.at_least = limits.at_least;
  key.at_most = limits.at_most;
  key.above = limits.above;
  key.member = std::move(member);
  key.counts = std::move(counts);
  key.pattern = std::move(limits.pattern);
  key.form = std::move(limits.form);
  key.also = std::move(limits.also);
  key.list = limits.list;
  key.tables = limits.tables;
  key.names = limits.names;
  return key;
}

inline Key make_key(const std::string& name, Key::Type type, Member member, const ConditionOfKey& counts,
                    std::string meaning, const std::string& example, Limits limits = {}) {
  return make_key(name, type, std::move(member), counts(name), std::move(meaning), example,
                  std::move(limits));
}

template <class T>
constexpr Key::Type type_of() {
  if constexpr (std::is_same_v<T, bool>) return Key::Type::boolean;
  if constexpr (std::is_same_v<T, int64_t>) return Key::Type::integer;
  if constexpr (std::is_same_v<T, double>) return Key::Type::number;
  if constexpr (std::is_same_v<T, std::string>) return Key::Type::text;
  static_assert(std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
                std::is_same_v<T, std::string> || std::is_same_v<T, AutoInt>);
  return Key::Type::auto_integer;
}

// The key's name, type and place from the member itself, so that they cannot disagree.
// clang-format off
#define MEMBER(path) #path, type_of<decltype(std::declval<Recipe&>().path)>(), [](Recipe& r) { return &r.path; }
// clang-format on

constexpr double kMostSteps = 1e12;
constexpr double kMostWidth = 1 << 20;

// The sections, each with its rows, in the order of a recipe.
void add_run(std::vector<Key>& keys);
void add_model(std::vector<Key>& keys);
void add_data(std::vector<Key>& keys);
void add_batch(std::vector<Key>& keys);
void add_optim(std::vector<Key>& keys);
void add_tune(std::vector<Key>& keys);
void add_precision(std::vector<Key>& keys);
void add_parallel_and_memory(std::vector<Key>& keys);
void add_checkpoint(std::vector<Key>& keys);
void add_log(std::vector<Key>& keys);

}  // namespace lockstep::recipe
