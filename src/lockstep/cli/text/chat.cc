#include "lockstep/cli/text/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/chat/fault.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/tools/generate.h"
#include "lockstep/run/tools/transcript.h"
#include "lockstep/training/stop_signal.h"

namespace lockstep::cli {

namespace {

chat::ChatTemplate template_of(const recipe::Recipe& recipe, const std::string& folder,
                               const ModelText& text) {
  if (text.tokenizer() == nullptr) {
    throw base::ConfigError(199,
                            "the model has no tokenizer to read a chat template with; put its tokenizer.json "
                            "into the folder, or name "
                            "it with data.tokenizer");
  }
  const std::string& tokenizer = recipe.data.tokenizer;
  return chat::open_template({.file = recipe.data.chat_template,
                              .folders = {folder, tokenizer == "bytes" ? "" : tokenizer, recipe.model.from},
                              .tokenizer = text.tokenizer()});
}

nlohmann::ordered_json message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

struct Answer {
  std::string text;
  bool full = false;  // the context left it no more tokens
};

// Prints the answer as it grows.
Answer answer(run::Generator& generator, const ConverseOptions& o, const std::vector<int32_t>& prompt,
              const std::atomic<int>& stop, int64_t context) {
  run::SamplingOptions sampling = o.sampling;
  const int64_t left = context - static_cast<int64_t>(prompt.size());
  sampling.tokens = std::min(sampling.tokens, left);
  run::Transcript transcript([&](std::span<const int32_t> tokens) { return o.text.decode(tokens); }, prompt,
                             o.stops);
  const size_t begin = transcript.prompt_bytes();
  size_t printed = begin;
  const auto show = [&](size_t until) {
    if (until <= printed) return;
    print("{}", std::string_view(transcript.text()).substr(printed, until - printed));
    std::fflush(stdout);
    printed = until;
  };
  int64_t drawn_tokens = 0;
  bool ended = false;
  generator.run(
      {{prompt, 0}}, sampling,
      [&](size_t, const run::Drawn& drawn) {
        ++drawn_tokens;
        ended = o.text.ends(drawn.token) || !transcript.add(drawn.token);
        show(transcript.complete());
        return !ended;
      },
      &stop);
  show(transcript.text().size());
  print("\n");
  std::fflush(stdout);
  return {transcript.text().substr(begin), !ended && drawn_tokens >= left};
}

}  // namespace

ChatFormat::ChatFormat(const recipe::Recipe& recipe, const std::string& folder, const ModelText& text)
    : template_(template_of(recipe, folder, text)) {}

std::string ChatFormat::render(const nlohmann::ordered_json& messages, const std::string& where) const {
  for (const nlohmann::ordered_json& one : messages) {
    if (one.is_object() && one.contains("role") && one["role"].is_string()) continue;
    throw base::ConfigError(199,
                            fmt::format("{} has a message that is not an object with a \"role\"", where));
  }
  try {
    const chat::Names names = template_.names_of({.messages = messages});
    return template_.render(names, names.messages.size(), chat::Prompt::generation).text;
  } catch (const chat::jinja::Failure& failure) {
    throw base::ConfigError(199,
                            fmt::format("{} is refused by the chat template: {}", where, failure.what()));
  } catch (const chat::Fault& fault) {
    throw base::ConfigError(199, fmt::format("{} {}", where, fault.sentence));
  }
}

nlohmann::ordered_json conversation(const std::string& system, const std::string& user) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!system.empty()) messages.push_back(message("system", system));
  messages.push_back(message("user", user));
  return messages;
}

int converse(run::Session& session, const ConverseOptions& options) {
  const ChatFormat format(session.plan.recipe(), options.folder, options.text);
  constexpr int64_t kLongest = 32768;  // so many keys and values are kept, whatever the model could read
  const int64_t context = std::min(session.plan.model->context, kLongest);
  run::Generator generator(session, {.batch = 1, .longest = context});
  const bool person = ::isatty(STDIN_FILENO) == 1;
  if (person) remark("Ctrl-D ends the conversation, Ctrl-C an answer; the context has {} tokens\n", context);
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!options.system.empty()) messages.push_back(message("system", options.system));
  while (true) {
    std::string line;
    if (person) remark("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    messages.push_back(message("user", line));
    const std::vector<int32_t> prompt =
        options.text.encode(format.render(messages, "the conversation"), false);
    options.text.check_tokens(prompt, "the conversation");
    if (static_cast<int64_t>(prompt.size()) >= context) {
      remark("the conversation has filled the context of {} tokens; start another\n", context);
      return 0;
    }
    Answer said;
    {
      training::StopSignal signal;
      signal.arm();
      said = answer(generator, options, prompt, signal.value(), context);
    }
    messages.push_back(message("assistant", said.text));
    if (said.full)
      remark("the answer has filled the context of {} tokens; start another conversation\n", context);
  }
  if (person) print("\n");
  return 0;
}

}  // namespace lockstep::cli
