#include "lockstep/chat/trained.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text.h"
#include "lockstep/chat/fault.h"
#include "lockstep/chat/turn_finder.h"

namespace lockstep::chat {
namespace {

bool is_weightless(const Json& message) {
  const auto weight = message.find("weight");
  return weight != message.end() && weight->is_number() && weight->get<double>() == 0;
}

struct Turns {
  std::vector<size_t> all;      // the assistant's
  std::vector<size_t> trained;  // those of them that are asked for
};

Turns turns_of(const Conversation& conversation, TrainOn train_on) {
  Turns turns;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Json& message = conversation.messages[i];
    if (message["role"] != "assistant") continue;
    turns.all.push_back(i);
    if (!is_weightless(message)) turns.trained.push_back(i);
  }
  if (train_on == TrainOn::last && turns.trained.size() > 1) turns.trained = {turns.trained.back()};
  if (turns.trained.empty()) throw Fault{263, "has no message of the assistant to train on"};
  return turns;
}

// By the template's own marks.
std::vector<Span> marked(const jinja::Output& out, const Turns& turns) {
  std::vector<Span> spans;
  for (const auto& [begin, end] : out.generated) {
    if (begin < end) spans.push_back({begin, end});
  }
  if (spans.empty())
    throw Fault{263, "has no trained token: the chat template's {% generation %} marks nothing in it"};
  if (turns.trained.size() == turns.all.size()) return spans;
  std::vector<Span> chosen;
  if (spans.size() == turns.all.size()) {
    for (size_t i = 0; i < spans.size(); ++i) {
      if (std::find(turns.trained.begin(), turns.trained.end(), turns.all[i]) != turns.trained.end())
        chosen.push_back(spans[i]);
    }
    return chosen;
  }
  throw Fault{264, fmt::format("has {} messages of the assistant, but the chat template marks {} parts with "
                               "{{% generation %}}; set data.train_on=assistant",
                               turns.all.size(), spans.size())};
}

// White space behind the token that ends a turn is the template's, and no model is asked for it.
void drop_space(const std::string& text, const std::vector<text::SpecialToken>& special, Span& span) {
  size_t end = span.end;
  while (end > span.begin && (text[end - 1] == '\n' || text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
  const std::string_view said = std::string_view(text).substr(span.begin, end - span.begin);
  for (const text::SpecialToken& token : special) {
    if (!token.text.empty() && said.ends_with(token.text)) return span.end = end, void();
  }
}

// A model that is never shown the end of a turn never stops.
void check_stop(const std::string& text, const Conversation& conversation, size_t turn, const Span& span) {
  const Json& message = conversation.messages[turn];
  if (!message.contains("content")) return;
  const std::string content = text_of_content(message["content"], turn);
  const std::string_view words = base::trimmed(content);
  if (words.empty() ||
      !base::trimmed(std::string_view(text).substr(span.begin, span.end - span.begin)).ends_with(words))
    return;
  throw Fault{
      265,
      fmt::format("has a message {} behind which the chat template trains on no end-of-turn token, so the "
                  "model would not learn to stop; use a template that ends the assistant's messages with "
                  "one, inside {{% generation %}} where it has that (data.chat_template)",
                  turn + 1)};
}

}  // namespace

TrainOn train_on_of(std::string_view name) {
  return name == "last" ? TrainOn::last : name == "all" ? TrainOn::all : TrainOn::assistant;
}

Rendered render(const ChatTemplate& spoken, const Conversation& conversation, TrainOn train_on,
                const std::vector<text::SpecialToken>& special) {
  try {
    const Names names = spoken.names_of(conversation);
    jinja::Output out = spoken.render(names, names.messages.size(), Prompt::none);
    if (train_on == TrainOn::all) return {.text = out.text, .trained = {{0, out.text.size()}}};
    const Turns turns = turns_of(conversation, train_on);
    std::vector<Span> spans;
    if (spoken.marks_generation(names)) {
      spans = marked(out, turns);
    } else {
      const TurnFinder finder(spoken, conversation, names, out.text, special);
      for (const size_t turn : turns.trained)
        spans.push_back(finder.find(turn, spans.empty() ? 0 : spans.back().end));
      for (Span& span : spans) drop_space(out.text, special, span);
    }
    if (spans.size() == turns.trained.size()) {
      for (size_t i = 0; i < spans.size(); ++i)
        check_stop(out.text, conversation, turns.trained[i], spans[i]);
    }
    return {.text = std::move(out.text), .trained = std::move(spans)};
  } catch (const jinja::Failure& failure) {
    throw Fault{262, fmt::format("is refused by the chat template: {}", failure.what())};
  }
}

}  // namespace lockstep::chat
