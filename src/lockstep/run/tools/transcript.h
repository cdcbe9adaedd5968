// A text that grows token by token: what of it can be shown already, and where a stop string ends it.
//
// Only the newest tokens are decoded again when one is added, so that long texts cost no more than short
// ones. Characters are given whole, even where a token ends inside one.
//
//     Transcript transcript(dataset, prompt, {"\n\n"});
//     while (transcript.add(token)) show(transcript.text(), transcript.complete());
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::run {

using Decode = std::function<std::string(std::span<const int32_t>)>;

class Transcript {
 public:
  // `stops`: none of them empty. They are looked for behind the prompt.
  Transcript(Decode decode, std::vector<int32_t> prompt, std::vector<std::string> stops);
  bool add(int32_t token);  // false: a stop string is complete, and the text ends before it
  const std::string& text() const { return text_; }
  size_t prompt_bytes() const { return prompt_bytes_; }
  // Bytes of text() that no later token changes or takes back.
  size_t complete() const;
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  void decode_more();
  bool ends_at_stop();

  Decode decode_;
  std::vector<int32_t> tokens_;
  std::vector<std::string> stops_;
  std::string text_;
  size_t prompt_bytes_ = 0;
  size_t searched_ = 0;         // no stop string begins before this byte
  size_t done_bytes_ = 0;       // of text_: what tokens before `done_` say
  size_t from_ = 0, done_ = 0;  // tokens [from_, done_) are decoded again for what stands before a new one
  bool whole_ = false;          // decoding parts does not give parts: all is decoded every time
  bool ended_ = false;
};

}  // namespace lockstep::run
