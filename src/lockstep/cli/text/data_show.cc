// lockstep data show: samples as the model sees them, with what is trained on in colour.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/shown.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using terminal::Colour;

struct Wanted {
  std::vector<std::string> words;  // the path, and key=value
  std::string tokenizer, chat_template;
  int64_t sample = 0, count = 1;
  bool json = false;
};

// Text from a file must not command the terminal: control characters are written as they are called.
std::string visible(std::string_view text) {
  std::string shown;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    // U+0080 to U+009F are controls too: some terminals take U+009B for an escape sequence.
    const bool control_of_two =
        byte == 0xc2 && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xa0;
    const bool plain = text[at] == '\n' || text[at] == '\t' || (byte >= 0x20 && byte != 0x7f);
    if (control_of_two)
      shown += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[++at]));
    else
      shown += plain ? std::string(1, text[at]) : fmt::format("\\x{:02x}", byte);
  }
  return shown;
}

// A run would stop at a bad row; who looks wants to see the others, and which are bad.
recipe::Recipe recipe_of(const Wanted& wanted) {
  recipe::RecipeSource source;
  for (const std::string& word : wanted.words) {
    if (word.find('=') != std::string::npos) {
      source.overrides.push_back(word);
    } else if (word.ends_with(".toml")) {
      source.file = word;
    } else {
      source.overrides.insert(source.overrides.begin(), "data.path=" + word);
    }
  }
  if (!wanted.tokenizer.empty()) source.overrides.push_back("data.tokenizer=" + wanted.tokenizer);
  if (!wanted.chat_template.empty()) source.overrides.push_back("data.chat_template=" + wanted.chat_template);
  recipe::Resolved resolved = recipe::read_recipe(source);
  data::resolve_kind(resolved);
  recipe::Recipe& recipe = resolved.recipe;
  if (resolved.origin["data.on_error"] == "default") recipe.data.on_error = "skip";
  if (resolved.origin["data.seq_len"] == "default")
    recipe.data.seq_len = recipe.data.kind == "chat" || recipe.data.kind == "preference" ? 2048 : 64;
  recipe.data.eval_fraction = 0;
  recipe.data.eval_path.clear();
  return recipe;
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Samples of pairs come two and two.
std::string half_of(const data::Dataset& dataset, int64_t index) {
  if (!dataset.has_pairs()) return "";
  return index % 2 == 0 ? "chosen" : "rejected";
}

json to_json(const data::ShownSample& shown, int64_t index) {
  json parts = json::array();
  for (const data::ShownPart& part : shown.parts)
    parts.push_back({{"text", part.text}, {"trained", part.trained}, {"document", part.document}});
  return {{"sample", index},
          {"tokens", shown.tokens},
          {"trained", shown.trained},
          {"documents", shown.documents},
          {"trained_tokens", shown.trained_count},
          {"parts", parts}};
}

json to_json(const data::LengthStatistics& s) {
  return {{"documents", s.documents},
          {"tokens", s.tokens},
          {"trained_tokens", s.trained},
          {"min", s.least},
          {"median", s.median},
          {"p95", s.p95},
          {"max", s.most},
          {"too_long", s.too_long},
          {"skipped", s.skipped},
          {"faults", s.faults}};
}

// "sample 3 of 40", "pair 1 of 20, rejected".
std::string title_of(const data::Dataset& dataset, int64_t index) {
  const int64_t samples = dataset.samples(data::Split::train);
  if (!dataset.has_pairs()) return fmt::format("sample {} of {}", index, samples);
  return fmt::format("pair {} of {}, {}", index / 2, samples / 2, half_of(dataset, index));
}

void print_sample(const data::Dataset& dataset, int64_t index, int64_t seq_len,
                  const terminal::Terminal& terminal) {
  const data::ShownSample shown = data::show_sample(dataset, index, seq_len);
  const auto tokens = static_cast<int64_t>(shown.tokens.size());
  print("{}\n",
        terminal.paint(fmt::format("{}: {} tokens, {} trained on ({:.0f} %)", title_of(dataset, index),
                                   tokens, shown.trained_count, share(shown.trained_count, tokens)),
                       Colour::bold));
  int64_t document = 0;
  for (const data::ShownPart& part : shown.parts) {
    if (part.document != document) {
      document = part.document;
      print("\n{}\n", terminal.paint(fmt::format("--- document {} ---", document + 1), Colour::dim));
    }
    const std::string text = visible(part.text);
    if (terminal.colours) {
      print("{}", part.trained ? terminal.paint(text, Colour::green) : text);
    } else {
      print("{}", part.trained ? "\u27e6" + text + "\u27e7" : text);
    }
  }
  print("\n\n");
}

void print_statistics(const data::LengthStatistics& s, int64_t seq_len, const std::string& kind) {
  if (s.documents == 0) return;
  const bool chat = kind == "chat" || kind == "preference";
  print("{} {}{}: {} tokens{}; shortest {}, median {}, 95th percentile {}, longest {}\n", s.documents,
        kind == "preference" ? "answer"
        : chat               ? "conversation"
                             : "document",
        s.documents == 1 ? "" : "s", base::human_count(static_cast<double>(s.tokens)),
        chat ? fmt::format(", {:.0f} % trained on", share(s.trained, s.tokens)) : "", s.least, s.median,
        s.p95, s.most);
  print("{} longer than data.seq_len = {}{}\n", s.too_long == 1 ? "1 is" : fmt::format("{} are", s.too_long),
        seq_len, s.too_long > 0 && chat ? ", and would be truncated" : "");
}

void check(const Wanted& wanted, int64_t samples) {
  if (wanted.count < 1)
    throw base::ConfigError(109, fmt::format("--count {}: at least 1 is expected", wanted.count));
  if (wanted.sample >= 0 && wanted.sample < samples) return;
  throw base::ConfigError(
      109, fmt::format("--sample {}: there are {} samples, 0 to {}", wanted.sample, samples, samples - 1));
}

int show(const Wanted& wanted) {
  if (wanted.words.empty())
    throw base::ConfigError(109, "data show takes a path: lockstep data show chat.jsonl --tokenizer DIR");
  const recipe::Recipe recipe = recipe_of(wanted);
  const auto dataset = data::open_dataset(recipe);
  const int64_t samples = dataset->samples(data::Split::train), seq_len = recipe.data.seq_len;
  const int64_t together = dataset->has_pairs() ? 2 : 1;  // --sample and --count are of pairs
  check(wanted, samples / together);
  const data::LengthStatistics statistics = data::measure_documents(recipe, *dataset);
  const int64_t first = wanted.sample * together;
  const int64_t end = std::min(samples, first + std::min(wanted.count, samples) * together);
  if (wanted.json) {
    json report = {
        {"path", recipe.data.path}, {"kind", recipe.data.kind},        {"seq_len", seq_len},
        {"samples", samples},       {"describe", dataset->describe()}, {"statistics", to_json(statistics)},
        {"shown", json::array()}};
    for (int64_t i = first; i < end; ++i) {
      report["shown"].push_back(to_json(data::show_sample(*dataset, i, seq_len), i));
      if (dataset->has_pairs()) report["shown"].back()["answer"] = half_of(*dataset, i);
    }
    print("{}\n", report.dump(-1, ' ', false, json::error_handler_t::replace));
    return 0;
  }
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  for (int64_t i = first; i < end; ++i) print_sample(*dataset, i, seq_len, terminal);
  print("{}\n", visible(dataset->describe()));
  print_statistics(statistics, seq_len, recipe.data.kind);
  for (const std::string& remark : dataset->remarks()) print("{}\n", visible(remark));
  return 0;
}

}  // namespace

int data_show(const std::vector<std::string>& words) {
  Arguments arguments("data show", "Print samples as the model sees them; what is trained on is in colour.",
                      words);
  Wanted wanted;
  arguments.rest(
      "PATH", wanted.words,
      "conversations, JSONL, text or tokens, as in data.path, or a recipe; then key=value, such as "
      "data.seq_len=4096");
  arguments.option("--tokenizer", wanted.tokenizer,
                   "a tokenizer's file, or a model's folder (data.tokenizer)");
  arguments.option("--template", wanted.chat_template, "a chat template's file (data.chat_template)");
  arguments.option("--sample", wanted.sample, "the first sample to print, from 0");
  arguments.option("--count", wanted.count, "how many to print");
  arguments.flag("--json", wanted.json, "print as JSON, with tokens");
  arguments.example("lockstep data show chat.jsonl --tokenizer Qwen3-8B/", "the first conversation");
  arguments.example("lockstep data show chat.jsonl --tokenizer Qwen3-8B/ data.train_on=last",
                    "with another mask");
  arguments.example("lockstep data show chat.jsonl --tokenizer Qwen3-8B/ data.pack=true", "packed documents");
  arguments.example("lockstep data show pairs.jsonl --tokenizer Qwen3-8B/ --sample 3",
                    "a pair of answers, the chosen one first");
  arguments.example("lockstep data show book.txt --count 3", "windows of a text");
  if (!arguments.parse()) return 0;
  return show(wanted);
}

}  // namespace lockstep::cli
