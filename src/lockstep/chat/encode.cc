#include "lockstep/chat/encode.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text.h"
#include "lockstep/chat/fault.h"

namespace lockstep::chat {
namespace {

constexpr size_t kLongestToken = 128;  // bytes that are searched on each side of an edge

bool is_inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

std::string keys_text(const Json& row) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.items()) {
    if (keys.size() == 6) return base::join(keys, ", ") + ", ...";
    keys.push_back(base::quoted(key, 40));
  }
  return keys.empty() ? "no field" : base::join(keys, ", ");
}

}  // namespace

EncodedChat ChatEncoder::encode(const Json& row) {
  const Form* form = form_of(row);
  if (form == nullptr) {
    throw Fault{260, fmt::format("is not a conversation: it has {}, and one has {}",
                                 row.is_object() ? keys_text(row) : "no fields", forms_text())};
  }
  return encode(render(spoken_, form->read(row), train_on_, tokenizer_.special_tokens()));
}

EncodedChat ChatEncoder::encode(const Rendered& rendered) {
  EncodedChat out;
  out.ids = ids_of(rendered.text);
  out.trained.assign(out.ids.size(), false);
  if (train_on_ == TrainOn::all) {
    out.trained.assign(out.ids.size(), true);
  } else if (!by_pieces(rendered, out)) {
    by_beginnings(rendered, out);
  }
  const auto count = std::count(out.trained.begin(), out.trained.end(), true);
  if (count == 0) throw Fault{263, "has no token to train on"};
  if (train_on_ != TrainOn::all && static_cast<size_t>(count) == out.ids.size())
    throw Fault{
        266,
        "is trained on as a whole, with nothing before the assistant's words; set data.train_on=all if "
        "that is meant"};
  return out;
}

std::vector<int32_t> ChatEncoder::ids_of(std::string_view text) {
  std::vector<int32_t> ids;
  if (!text.empty()) encoder_->encode(text, ids, {.add_special = false});
  return ids;
}

// Where special tokens stand at the edges, parts have the tokens that the whole has.
bool ChatEncoder::by_pieces(const Rendered& rendered, EncodedChat& out) {
  size_t at = 0, token = 0;
  const auto piece = [&](size_t end, bool trained) {
    const std::vector<int32_t> ids = ids_of(std::string_view(rendered.text).substr(at, end - at));
    at = end;
    if (ids.size() > out.ids.size() - token ||
        !std::equal(ids.begin(), ids.end(), out.ids.begin() + static_cast<std::ptrdiff_t>(token)))
      return false;
    for (size_t i = 0; i < ids.size(); ++i) out.trained[token++] = trained;
    return true;
  };
  for (const Span& span : rendered.trained) {
    if (!piece(span.begin, false) || !piece(span.end, true)) return false;
  }
  return piece(rendered.text.size(), false) && token == out.ids.size();
}

// Slower, and always right: how many of the tokens begin a text that ends at the edge.
void ChatEncoder::by_beginnings(const Rendered& rendered, EncodedChat& out) {
  std::fill(out.trained.begin(), out.trained.end(), false);
  for (const Span& span : rendered.trained) {
    const size_t begin = tokens_before(rendered.text, span.begin, false, out.ids);
    const size_t end = tokens_before(rendered.text, span.end, true, out.ids);
    for (size_t i = begin; i < end; ++i) out.trained[i] = true;
  }
}

// Tokens of the text up to the cut; of one that reaches over it, up to its begin, or to its end (`round_up`).
size_t ChatEncoder::tokens_before(std::string_view text, size_t cut, bool round_up,
                                  const std::vector<int32_t>& ids) {
  for (size_t away = 0; away <= kLongestToken; ++away) {
    if (!round_up && away > cut) break;
    const size_t at = round_up ? cut + away : cut - away;
    if (at > text.size()) break;
    if (is_inside_character(text, at)) continue;
    const std::vector<int32_t> beginning = ids_of(text.substr(0, at));
    if (beginning.size() <= ids.size() && std::equal(beginning.begin(), beginning.end(), ids.begin()))
      return beginning.size();
  }
  throw Fault{
      264,
      "has a place between the chat template's words and the assistant's where the tokenizer does not let "
      "it be told which token is whose"};
}

}  // namespace lockstep::chat
