#include "lockstep/plan/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::plan {
namespace {

constexpr int kMostRanks = 4096;
constexpr size_t kMostLayouts = 256;

struct Word {
  const char* name;
  int Layout::*number;
  int least, most;
};
constexpr Word kNumbers[] = {
    {"data", &Layout::data, 1, kMostRanks},       {"zero", &Layout::zero, 0, 3},
    {"shard", &Layout::shard, 1, kMostRanks},     {"tensor", &Layout::tensor, 1, kMostRanks},
    {"context", &Layout::context, 1, kMostRanks}, {"pipeline", &Layout::pipeline, 1, kMostRanks},
    {"chunks", &Layout::chunks, 2, 64},
};

[[noreturn]] void refuse(const std::string& layout, const std::string& why) {
  throw base::ConfigError(182, fmt::format("layout {}: {}", base::quoted(layout), why));
}

std::vector<std::string> pieces(const std::string& text, std::string_view separators) {
  std::vector<std::string> found;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    if (end > at) found.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return found;
}

void set_choice(const std::string& layout, const std::string& name, const std::string& value,
                std::string& into, const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) == choices.end())
    refuse(layout,
           fmt::format("{} must be one of {}, not {}", name, base::join(choices, ", "), base::quoted(value)));
  into = value;
}

void set_number(const std::string& layout, const Word& word, const std::string& value, Layout& made) {
  const std::optional<int> n = base::parse_number<int>(value);
  if (!n || *n < word.least || *n > word.most)
    refuse(layout, fmt::format("{} must be an integer from {} to {}, not {}", word.name, word.least,
                               word.most, base::quoted(value)));
  made.*word.number = *n;
}

void set_word(const std::string& layout, const std::string& name, const std::string& value, Layout& made) {
  for (const Word& word : kNumbers) {
    if (name == word.name) return set_number(layout, word, value, made);
  }
  if (name == "form") return set_choice(layout, name, value, made.form, {"ring", "heads"});
  if (name == "schedule")
    return set_choice(layout, name, value, made.schedule, {"gpipe", "1f1b", "interleaved", "zero-bubble"});
  if (name == "sequence") {
    std::string said = "true";
    set_choice(layout, name, value.empty() ? "true" : value, said, {"true", "false"});
    made.sequence = said == "true";
    return;
  }
  refuse(layout, fmt::format("unknown setting {}; expected data, zero, shard, tensor, sequence, context, "
                             "form, pipeline, schedule or chunks",
                             base::quoted(name)));
}

// Words that say nothing without another.
void check_sense(const std::string& words, const Layout& made, const std::set<std::string>& named) {
  const auto needs = [&](const char* word, bool there, const char* other) {
    if (named.contains(word) && !there) refuse(words, fmt::format("{} needs {}", word, other));
  };
  needs("zero", made.zero == 0 || made.data > 1, "data above 1");
  needs("shard", made.zero > 0 && made.data > 1, "zero and data above 1");
  needs("sequence", !made.sequence || made.tensor > 1, "tensor above 1");
  needs("form", made.context > 1, "context above 1");
  needs("schedule", made.pipeline > 1, "pipeline above 1");
  needs("chunks", made.schedule == "interleaved", "schedule=interleaved");
  if (made.ranks() > kMostRanks)
    refuse(words, fmt::format("{} ranks are more than {}", made.ranks(), kMostRanks));
}

}  // namespace

std::string Layout::words() const {
  std::vector<std::string> list;
  for (const Word& word : kNumbers) {
    const int n = this->*word.number;
    const bool usual = word.number == &Layout::chunks && schedule == "interleaved" && n == 2;
    if (n != Layout().*word.number && !usual) list.push_back(fmt::format("{}={}", word.name, n));
    if (word.number == &Layout::tensor && sequence) list.push_back("sequence");
    if (word.number == &Layout::context && n > 1 && form != "ring") list.push_back("form=" + form);
    if (word.number == &Layout::pipeline && n > 1) list.push_back("schedule=" + schedule);
  }
  return list.empty() ? "data=1" : base::join(list, ",");
}

std::vector<std::string> Layout::overrides() const {
  std::vector<std::string> list;
  const auto add = [&](const char* key, const std::string& value) {
    list.push_back(fmt::format("parallel.{}={}", key, value));
  };
  if (zero > 0) add("zero", std::to_string(zero));
  if (shard > 0) add("shard", std::to_string(shard));
  if (tensor > 1) add("tensor", std::to_string(tensor));
  if (sequence) add("sequence", "true");
  if (context > 1) add("context", std::to_string(context));
  if (context > 1) add("context_form", form);
  if (pipeline > 1) add("pipeline", std::to_string(pipeline));
  if (pipeline > 1) add("schedule", schedule);
  if (chunks > 1) add("chunks", std::to_string(chunks));
  return list;
}

Layout parse_layout(const std::string& words) {
  Layout made;
  std::set<std::string> named;
  for (const std::string& piece : pieces(words, ",")) {
    const size_t equals = piece.find('=');
    std::string name = piece.substr(0, equals);
    if (name == "context_form") name = "form";  // the recipe's word
    const std::string value = equals == std::string::npos ? "" : piece.substr(equals + 1);
    if (!named.insert(name).second) refuse(words, fmt::format("{} is given twice", name));
    set_word(words, name, value, made);
  }
  if (named.empty()) refuse(words, "it is empty; write it like data=2,tensor=2");
  if (made.schedule == "interleaved" && !named.contains("chunks")) made.chunks = 2;
  check_sense(words, made, named);
  return made;
}

std::vector<Layout> parse_layouts(const std::string& list) {
  std::vector<Layout> layouts;
  for (const std::string& words : pieces(list, "; \t\n")) {
    const Layout layout = parse_layout(words);
    if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end()) layouts.push_back(layout);
    if (layouts.size() > kMostLayouts)
      throw base::ConfigError(182, fmt::format("--layouts lists more than {}; give fewer", kMostLayouts));
  }
  if (layouts.empty()) throw base::ConfigError(182, "--layouts is empty; write it like \"data=4 tensor=2\"");
  return layouts;
}

std::vector<Layout> usual_layouts(int64_t ranks) {
  static const char* const kUsual =
      "data=2 data=4 data=4,zero=1 data=4,zero=2 data=4,zero=3 data=4,zero=3,shard=2 "
      "tensor=2 tensor=2,sequence tensor=4 tensor=4,sequence "
      "context=2 context=2,form=heads context=4 context=4,form=heads "
      "pipeline=2,schedule=gpipe pipeline=2,schedule=1f1b pipeline=2,schedule=interleaved "
      "pipeline=2,schedule=zero-bubble pipeline=4,schedule=gpipe pipeline=4,schedule=1f1b "
      "pipeline=4,schedule=interleaved pipeline=4,schedule=zero-bubble "
      "data=2,tensor=2 data=2,zero=1,tensor=2 data=2,context=2 data=2,zero=3,pipeline=2 tensor=2,pipeline=2 "
      "data=2,zero=3,tensor=2,pipeline=2 data=2,context=2,tensor=2 data=8 data=8,zero=3,shard=4";
  std::vector<Layout> layouts = parse_layouts(kUsual);
  std::erase_if(layouts, [&](const Layout& layout) { return layout.ranks() > ranks; });
  return layouts;
}

void take_layout_off(recipe::Recipe& recipe) {
  static const recipe::Recipe defaults;
  recipe.parallel.data = recipe::AutoInt();
  for (const recipe::Key& key : recipe::recipe_keys()) {
    const std::string name = key.last_part();
    const bool layout = key.section() == "parallel" &&
                        (name == "zero" || name == "shard" || name == "tensor" || name == "sequence" ||
                         name == "context" || name == "context_form" || name == "pipeline" ||
                         name == "schedule" || name == "chunks" || name == "stages" || name == "auto");
    if (!layout) continue;
    recipe::Recipe clean = defaults;
    std::visit(
        [](auto* to, auto* from) {
          if constexpr (std::is_same_v<decltype(to), decltype(from)>) *to = *from;
        },
        key.member(recipe), key.member(clean));
  }
}

}  // namespace lockstep::plan
