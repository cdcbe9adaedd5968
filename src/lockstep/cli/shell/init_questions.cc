#include "lockstep/cli/shell/init_questions.h"

#include <fmt/format.h>

#include <filesystem>

#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/recipe/toml.h"

namespace lockstep::cli {

namespace {

struct Model {
  const char* name;
  const char* what;
  const char* family;
  const char* preset;  // null: the defaults
  const char* steps;
  const char* batch;
};
constexpr Model kModels[] = {
    {"tiny", "a minute on a CPU", nullptr, nullptr, "400", nullptr},
    {"124m", "GPT-2: one GPU", "gpt2", "124m", "10000", "64"},
    {"1b", "Llama: one large GPU or several", "llama", "1b", "20000", "128"},
    {"8b", "Llama: several large GPUs", "llama", "8b", "50000", "512"},
};

std::string text(const std::string& value) { return recipe::toml_string(value); }

class Questions {
 public:
  Questions(const Ask& ask, const std::function<void(const std::string&)>& say) : ask_(ask), say_(say) {}

  std::optional<Chosen> all(const std::string& name) {
    chosen_.emplace_back("run.name", text(name));
    const bool complete = data() && weights() && steps();
    return complete ? std::optional(chosen_) : std::nullopt;
  }

 private:
  // Until `fits` says nothing against it.
  std::optional<std::string> answer(const std::string& question, const std::string& otherwise,
                                    const std::function<std::string(const std::string&)>& fits) {
    while (true) {
      std::optional<std::string> given = ask_(question, otherwise);
      if (!given) return std::nullopt;
      std::string value(base::trimmed(*given));
      if (value.empty()) value = otherwise;
      const std::string why_not = fits(value);
      if (why_not.empty()) return value;
      say_(why_not);
    }
  }
  static std::string exists(const std::string& path) {
    std::error_code error;
    if (path.empty() || path.find("://") != std::string::npos || std::filesystem::exists(path, error))
      return "";
    return fmt::format("{} does not exist", base::quoted(path));
  }

  bool data() {
    const auto path = answer(
        "What shall it learn from? A text file, a folder or a store's address; empty: a made-up "
        "language, for a first try",
        "", exists);
    if (!path) return false;
    if (!path->empty()) chosen_.emplace_back("data.path", text(*path));
    has_data_ = !path->empty();
    return true;
  }

  bool weights() {
    const auto from =
        answer("Begin from a model? Its Hugging Face folder or a run; empty: from scratch", "", exists);
    if (!from) return false;
    if (from->empty()) return size();
    chosen_.emplace_back("model.from", text(*from));
    if (has_data_) chosen_.emplace_back("data.tokenizer", text(*from));
    const auto method = answer("Train all weights (full), or small ones beside them (lora)?", "lora",
                               [](const std::string& word) {
                                 return word == "full" || word == "lora" ? "" : "expected full or lora";
                               });
    if (!method) return false;
    chosen_.emplace_back("tune.method", text(*method));
    chosen_.emplace_back("optim.lr", *method == "lora" ? "2e-4" : "1e-5");
    steps_ = "500";
    return true;
  }

  bool size() {
    std::string question = "How large?", names;
    for (const Model& model : kModels) {
      question += fmt::format("\n  {:<5} {}", model.name, model.what);
      names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
    }
    const auto find = [](const std::string& word) -> const Model* {
      for (const Model& model : kModels) {
        if (word == model.name) return &model;
      }
      return nullptr;
    };
    const auto word = answer(question, "tiny", [&](const std::string& given) {
      return find(given) != nullptr ? "" : "expected one of " + names;
    });
    if (!word) return false;
    const Model& model = *find(*word);
    steps_ = model.steps;
    if (model.family == nullptr) return true;
    chosen_.emplace_back("model.family", text(model.family));
    chosen_.emplace_back("model.preset", text(model.preset));
    chosen_.emplace_back("batch.global", model.batch);
    return true;
  }

  bool steps() {
    const auto count = answer("How many steps?", steps_, [](const std::string& given) {
      const auto number = base::parse_number<int64_t>(given);
      return number && *number >= 1 && *number <= 1'000'000'000'000 ? "" : "expected an integer above 0";
    });
    if (count) chosen_.emplace_back("run.steps", *count);
    return count.has_value();
  }

  const Ask& ask_;
  const std::function<void(const std::string&)>& say_;
  Chosen chosen_;
  std::string steps_ = "400";
  bool has_data_ = false;
};

std::string first_sentence(const std::string& meaning) {
  const size_t end = meaning.find(". ");
  return end == std::string::npos ? meaning : meaning.substr(0, end + 1);
}

}  // namespace

std::optional<Chosen> ask_for_recipe(const std::string& name, const Ask& ask,
                                     const std::function<void(const std::string&)>& say) {
  return Questions(ask, say).all(name);
}

std::string short_recipe(const Chosen& chosen) {
  std::string out =
      "# A Lockstep recipe. Keys that are not here keep their defaults: `lockstep explain` lists them all,\n"
      "# `lockstep explain optim.lr` explains one, `lockstep plan THIS_FILE` foretells time and memory.\n";
  for (const recipe::Section& section : recipe::recipe_sections()) {
    std::string rows;
    for (const auto& [name, value] : chosen) {
      const recipe::Key* key = recipe::find_key(name);
      if (key == nullptr || key->section() != section.name) continue;
      rows += fmt::format("{:<28} # {}\n", fmt::format("{} = {}", key->last_part(), value),
                          first_sentence(key->meaning));
    }
    if (!rows.empty()) out += fmt::format("\n[{}]\n{}", section.name, rows);
  }
  return out;
}

}  // namespace lockstep::cli
