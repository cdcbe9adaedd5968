// lockstep generate: continues texts by a run's newest checkpoint, or by any model in a folder.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/remote.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/text/chat.h"
#include "lockstep/cli/text/generated_texts.h"
#include "lockstep/cli/text/model_text.h"
#include "lockstep/cli/text/prompts.h"
#include "lockstep/run/tools/generate.h"
#include "lockstep/training/stop_signal.h"

namespace lockstep::cli {

namespace {

struct Wanted {
  std::string folder, run, adapter, prompts_file, system;
  std::vector<std::string> words;  // key=value
  std::vector<std::string> prompt, stops;
  std::vector<WrittenPrompt> prompts;
  run::SamplingOptions sampling;
  int64_t samples = 1, batch = 8, seed = 1;
  bool json = false, ignore_eos = false, chat = false;
};

void declare(Arguments& arguments, Wanted& wanted) {
  run::SamplingOptions& options = wanted.sampling;
  arguments.positional("DIR", wanted.folder,
                       "a run, a checkpoint or a Hugging Face folder; default: runs/first");
  arguments.rest("key=value", wanted.words, "overrides of the recipe it was trained with");
  arguments.option("--run", wanted.run, "same as DIR");
  arguments.option("--adapter", wanted.adapter,
                   "a LoRA adapter to use with the model: PEFT's files, or a LoRA run");
  arguments.option("--prompt", wanted.prompt, "text to continue; may be given several times");
  arguments.option(
      "--prompts", wanted.prompts_file,
      "file of prompts: lines of text, or JSONL with \"prompt\" or \"messages\"; -: standard input");
  arguments.flag("--chat", wanted.chat,
                 "prompts are what a user says, through the model's chat template; without "
                 "--prompt: a conversation");
  arguments.option("--system", wanted.system, "with --chat: the system message");
  arguments.option("--tokens,--max-tokens", options.tokens, "number of tokens to generate, at most");
  arguments.option("--samples", wanted.samples, "texts per prompt");
  arguments.option("--batch", wanted.batch, "texts generated at once, at most");
  arguments.option("--temperature", options.temperature,
                   "0: always the most likely token (greedy); 1: sample from the model's distribution");
  arguments.option("--top-k", options.top_k, "sample only from the k most likely tokens; 0: all");
  arguments.option("--top-p", options.top_p,
                   "sample only from the most likely tokens that together have this probability; 1: all");
  arguments.option("--min-p", options.min_p,
                   "sample only from tokens at least this likely relative to the most likely one; 0: all");
  arguments.option("--repetition-penalty", options.repetition_penalty,
                   "above 1: tokens that are already in the text become less likely");
  arguments.option("--stop", wanted.stops, "end a text before this string; may be given several times");
  arguments.flag("--ignore-eos", wanted.ignore_eos, "continue behind the model's end tokens");
  arguments.option("--seed", wanted.seed, "random seed");
  arguments.flag("--json", wanted.json, "print a line of JSON per text");
  arguments.flag("--logprobs", options.logprobs, "with --json: the log-probability of each generated token");
  arguments.example("lockstep generate runs/first", "text from the default recipe's model");
  arguments.example("lockstep generate --prompt \"this dog\" --tokens 20", "twenty words that follow these");
  arguments.example("lockstep generate llama-1b --prompt \"The dog\"",
                    "a Hugging Face folder, by its own tokenizer");
  arguments.example("lockstep generate llama-1b --prompts prompts.jsonl --temperature 0 --json",
                    "the most likely text for each line of a file");
  arguments.example("lockstep generate llama-1b-instruct --chat", "a conversation");
}

void require(bool holds, const char* sentence) {
  if (!holds) throw base::ConfigError(109, sentence);
}

void check(const Wanted& wanted) {
  const run::SamplingOptions& o = wanted.sampling;
  require(o.tokens >= 1, "--tokens must be at least 1");
  require(o.top_k >= 0, "--top-k must be at least 0; 0 means all");
  require(std::isfinite(o.temperature) && o.temperature >= 0,
          "--temperature must be a number of at least 0, for example --temperature 0.8");
  require(o.top_p > 0 && o.top_p <= 1, "--top-p must be above 0 and at most 1; 1 means all");
  require(o.min_p >= 0 && o.min_p <= 1, "--min-p must be from 0 to 1; 0 means all");
  require(std::isfinite(o.repetition_penalty) && o.repetition_penalty > 0,
          "--repetition-penalty must be above 0; 1 means none");
  require(wanted.samples >= 1, "--samples must be at least 1");
  require(wanted.batch >= 1, "--batch must be at least 1");
  require(std::none_of(wanted.stops.begin(), wanted.stops.end(), [](const auto& s) { return s.empty(); }),
          "--stop must not be empty");
  require(wanted.prompt.empty() || wanted.prompts_file.empty(), "give --prompt or --prompts, not both");
  require(!o.logprobs || wanted.json, "--logprobs are printed with --json; add it");
  require(wanted.system.empty() || wanted.chat, "--system is for --chat; add it");
}

// The prompts as they are written; none: a text that nobody begins.
std::vector<WrittenPrompt> prompts_of(const Wanted& wanted) {
  if (!wanted.prompts_file.empty()) return read_prompts(wanted.prompts_file);
  std::vector<WrittenPrompt> prompts;
  for (const std::string& text : wanted.prompt) prompts.push_back({.text = text, .where = "--prompt"});
  if (prompts.empty() && !wanted.chat) prompts.push_back({.where = "the prompt"});
  return prompts;
}

// In tokens, through the chat template where there are messages.
std::vector<ModelText::Prompt> encode_prompts(const Wanted& wanted, const FolderModel& model,
                                              const recipe::Recipe& recipe, const ModelText& text) {
  std::vector<ModelText::Prompt> encoded;
  std::optional<ChatFormat> format;
  for (const WrittenPrompt& prompt : wanted.prompts) {
    if (prompt.messages.is_null() && !wanted.chat) {
      encoded.push_back(text.prompt(prompt.text, prompt.where));
      continue;
    }
    if (!format) format.emplace(recipe, model.folder, text);
    const nlohmann::ordered_json messages =
        prompt.messages.is_null() ? conversation(wanted.system, prompt.text) : prompt.messages;
    encoded.push_back(text.rendered(format->render(messages, prompt.where), prompt.where));
  }
  return encoded;
}

void say_speed(const run::GenerateTimes& times) {
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  };
  const double all = times.read_seconds + times.drawn_seconds;
  remark("{} tokens in {:.2f} s, {:.1f} tokens/s; {} prompt tokens in {:.2f} s, {:.1f} tokens/s\n",
         times.drawn_tokens, all, rate(times.drawn_tokens, all), times.read_tokens, times.read_seconds,
         rate(times.read_tokens, times.read_seconds));
}

int generate_texts(const Wanted& wanted, const OpenedModel& opened) {
  const FolderModel& model = opened.model;
  run::Session& session = *opened.session;
  const ModelText text(session.plan, model);
  if (wanted.chat && wanted.prompts.empty())
    return converse(session, {model.folder, text, wanted.sampling, wanted.stops, wanted.system});
  const std::vector<ModelText::Prompt> prompts = encode_prompts(wanted, model, session.plan.recipe(), text);
  std::vector<run::Request> requests;
  size_t longest = 0;
  for (const ModelText::Prompt& prompt : prompts) {
    longest = std::max(longest, prompt.tokens.size());
    for (int64_t sample = 0; sample < wanted.samples; ++sample)
      requests.push_back({prompt.tokens, static_cast<uint64_t>(sample)});
  }
  run::Generator generator(session, {.batch = std::min(wanted.batch, static_cast<int64_t>(requests.size())),
                                     .longest = static_cast<int64_t>(longest) + wanted.sampling.tokens});
  GeneratedTexts texts({.text = text,
                        .dataset = *session.plan.dataset,
                        .prompts = prompts,
                        .written = wanted.prompts,
                        .samples = wanted.samples,
                        .tokens = wanted.sampling.tokens,
                        .stops = wanted.stops,
                        .ignore_eos = wanted.ignore_eos,
                        .json = wanted.json,
                        .shows_prompts = !wanted.chat,
                        .logprobs = wanted.sampling.logprobs,
                        .named = {{"run", wanted.folder}, {"checkpoint", model.folder}}});
  training::StopSignal signal;
  signal.arm();
  generator.run(
      requests, wanted.sampling,
      [&](size_t request, const run::Drawn& drawn) {
        return texts.add(request, drawn) && signal.value().load() == 0;
      },
      &signal.value());
  texts.finish();
  if (!wanted.json) say_speed(generator.times());
  return 0;
}

// DIR, --run, or the default; a first word with "=" is a key.
void resolve_folder(Wanted& wanted) {
  if (wanted.folder.find('=') != std::string::npos && !std::filesystem::exists(wanted.folder))
    wanted.words.insert(wanted.words.begin(), std::exchange(wanted.folder, ""));
  if (!wanted.run.empty() && !wanted.folder.empty() && wanted.run != wanted.folder) {
    throw base::ConfigError(109, fmt::format("give one folder, not both {} and --run {}",
                                             base::quoted(wanted.folder), base::quoted(wanted.run)));
  }
  if (wanted.folder.empty()) wanted.folder = wanted.run.empty() ? "runs/first" : wanted.run;
  wanted.folder = checkpoint::local_model(wanted.folder);
  std::error_code error;
  if (!std::filesystem::is_directory(wanted.folder, error)) {
    throw base::ConfigError(162, fmt::format("{} is not a folder; expected a run, a checkpoint or a Hugging "
                                             "Face folder, for example lockstep generate runs/first",
                                             base::quoted(wanted.folder, 200)));
  }
}

}  // namespace

int generate_command(Arguments& arguments) {
  Wanted wanted;
  declare(arguments, wanted);
  if (!arguments.parse()) return 0;
  check(wanted);
  wanted.sampling.seed = static_cast<uint64_t>(wanted.seed);
  resolve_folder(wanted);
  wanted.words = with_adapter(wanted.adapter, std::move(wanted.words));
  wanted.prompts = prompts_of(wanted);
  return generate_texts(wanted, open_for_decoding(wanted.folder, wanted.words));
}

}  // namespace lockstep::cli
