// A rendered conversation as tokens, each with a mark: trained on or not.
//
// Ids are those of the whole text, as apply_chat_template gives them: never those of its parts put together,
// unless they are the same. A token that reaches over the edge of a trained part counts as trained, as it
// does in Hugging Face's assistant mask.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/chat/trained.h"

namespace lockstep::chat {

struct EncodedChat {
  std::vector<int32_t> ids;
  std::vector<bool> trained;  // one for each
};

class ChatEncoder {
 public:
  ChatEncoder(const ChatTemplate& spoken, const text::Tokenizer& tokenizer, TrainOn train_on)
      : spoken_(spoken), tokenizer_(tokenizer), train_on_(train_on), encoder_(tokenizer.encoder()) {}
  // Fault 260 to 266. One thread at a time.
  EncodedChat encode(const Json& row);
  EncodedChat encode(const Rendered& rendered);

 private:
  std::vector<int32_t> ids_of(std::string_view text);
  bool by_pieces(const Rendered& rendered, EncodedChat& out);
  void by_beginnings(const Rendered& rendered, EncodedChat& out);
  size_t tokens_before(std::string_view text, size_t cut, bool round_up, const std::vector<int32_t>& ids);

  const ChatTemplate& spoken_;
  const text::Tokenizer& tokenizer_;
  TrainOn train_on_;
  std::unique_ptr<text::Encoder> encoder_;
};

}  // namespace lockstep::chat
