#include "lockstep/run/tools/transcript.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "lockstep/text/utf8.h"

namespace lockstep::run {

Transcript::Transcript(Decode decode, std::vector<int32_t> prompt, std::vector<std::string> stops)
    : decode_(std::move(decode)), tokens_(std::move(prompt)), stops_(std::move(stops)) {
  constexpr size_t kBefore = 4;  // enough for a space or a joint that belongs to what stands before
  text_ = decode_(tokens_);
  prompt_bytes_ = done_bytes_ = text_.size();
  done_ = tokens_.size();
  from_ = done_ - std::min(done_, kBefore);
}

bool Transcript::add(int32_t token) {
  tokens_.push_back(token);
  decode_more();
  ended_ = ends_at_stop();
  return !ended_;
}

// What tokens [from_, done_) say is the beginning of what [from_, end) say; the rest is new. It becomes fixed
// once it ends with a whole character.
void Transcript::decode_more() {
  if (!whole_) {
    const std::span<const int32_t> all = tokens_;
    const std::string before = decode_(all.subspan(from_, done_ - from_)), now = decode_(all.subspan(from_));
    if (now.starts_with(before)) {
      text_.resize(done_bytes_);
      text_ += std::string_view(now).substr(before.size());
      if (now.size() == before.size() || text::complete_size(now) < now.size()) return;
      done_bytes_ = text_.size();
      from_ = std::exchange(done_, tokens_.size());
      return;
    }
    whole_ = true;
  }
  text_ = decode_(tokens_);
  done_bytes_ = searched_ = 0;
  prompt_bytes_ = std::min(prompt_bytes_, text_.size());
}

bool Transcript::ends_at_stop() {
  size_t end = std::string::npos, longest = 1;
  for (const std::string& stop : stops_) {
    end = std::min(end, text_.find(stop, std::max(prompt_bytes_, searched_)));
    longest = std::max(longest, stop.size());
  }
  searched_ = done_bytes_ - std::min(done_bytes_, longest - 1);  // a stop string may have begun there
  if (end == std::string::npos) return false;
  text_.resize(end);
  return true;
}

// Half a character, and what may become a stop string, wait for the next token.
size_t Transcript::complete() const {
  if (ended_) return text_.size();
  size_t size = text::complete_size(text_);
  const size_t behind = text_.size() - prompt_bytes_;
  for (const std::string& stop : stops_) {
    size_t part = std::min(stop.size() - 1, behind);
    while (part > 0 && !text_.ends_with(std::string_view(stop).substr(0, part))) --part;
    size = std::min(size, text_.size() - part);
  }
  return size;
}

}  // namespace lockstep::run
