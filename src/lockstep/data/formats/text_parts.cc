#include "lockstep/data/formats/text_parts.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace lockstep::data {

TextParts::TextParts(const std::string& file, Cut cut) : path_(file), cut_(std::move(cut)) {
  if (is_packed(file)) {
    packed_ = open_packed(file);
    size_ = static_cast<int64_t>(std::filesystem::file_size(file));
  } else {
    file_ = base::MappedFile::open(file);
    size_ = file_.size();
  }
}

std::optional<CorpusPart> TextParts::next() { return packed_ ? next_packed() : next_mapped(); }

CorpusPart TextParts::part_of(std::string_view bytes, int64_t taken) {
  CorpusPart part{.bytes = bytes, .offset = at_, .first_line = line_, .taken = taken, .begins = !begun_};
  begun_ = true;
  at_ += static_cast<int64_t>(bytes.size());
  line_ += std::count(bytes.begin(), bytes.end(), '\n');
  return part;
}

// Only when more is asked for: whoever refuses the line does not wait until a file of a terabyte has been
// searched.
void TextParts::pass_over_mapped_line() {
  const std::string_view left = file_.text().substr(static_cast<size_t>(at_));
  const size_t newline = left.find('\n');
  taken_ = static_cast<int64_t>(newline == std::string_view::npos ? left.size() : newline + 1);
  at_ += taken_, ++line_;
}

std::optional<CorpusPart> TextParts::next_mapped() {
  if (std::exchange(in_long_line_, false)) pass_over_mapped_line();
  const std::string_view left = file_.text().substr(static_cast<size_t>(at_));
  if (left.empty()) return std::nullopt;
  const size_t most = cut_.pass_over_long_lines ? cut_.part + cut_.longest + 1 : left.size();
  const std::string_view near = left.substr(0, most);
  const size_t found = near.size() > cut_.part ? cut_.find(near, cut_.part) : std::string_view::npos;
  const size_t end = std::min(found, near.size());
  in_long_line_ = found == std::string_view::npos && near.size() < left.size();
  CorpusPart part = part_of(near.substr(0, end), static_cast<int64_t>(end) + std::exchange(taken_, 0));
  part.ends = end == left.size();
  return part;
}

// Appends what can be had at once; false at the end.
bool TextParts::read_more(std::string& text) {
  constexpr size_t kPiece = size_t{256} << 10;
  const size_t before = text.size();
  text.resize(before + kPiece);
  const size_t count = packed_->read(std::span(text).subspan(before));
  text.resize(before + count);
  return count > 0;
}

// The rest of a line of which the beginning was too long already.
void TextParts::pass_over_line() {
  std::string text;
  for (;;) {
    text.clear();
    if (!read_more(text)) {
      at_end_ = true;
      return;
    }
    const size_t newline = text.find('\n');
    at_ += static_cast<int64_t>(std::min(newline, text.size()));
    if (newline == std::string::npos) continue;
    ++line_, ++at_;
    rest_ = text.substr(newline + 1);
    return;
  }
}

std::optional<CorpusPart> TextParts::next_packed() {
  auto text = std::make_shared<std::string>(std::exchange(rest_, {}));
  size_t end = std::string::npos, from = cut_.part;
  bool too_long = false;
  for (;;) {
    if (text->size() > from) end = cut_.find(*text, from);
    if (end != std::string::npos || at_end_) break;
    // Looked at again when there is twice as much: a search from the beginning costs little that way.
    from = std::max(from, text->size() > cut_.part ? text->size() - 1 : 0);
    const size_t wanted = std::min(std::max(cut_.part, 2 * text->size()), cut_.part + cut_.longest) + 1;
    too_long = text->size() > cut_.part + cut_.longest;
    if (too_long) break;
    while (text->size() < wanted && !at_end_) at_end_ = !read_more(*text);
  }
  if (text->empty()) return std::nullopt;
  end = std::min(end, text->size());
  rest_ = text->substr(end);
  text->resize(end);
  CorpusPart part = part_of(*text, 0);
  if (too_long && cut_.pass_over_long_lines) pass_over_line();
  if (rest_.empty() && !at_end_) at_end_ = !read_more(rest_);
  part.ends = at_end_ && rest_.empty();
  part.taken = packed_->taken() - std::exchange(taken_, packed_->taken());
  part.keeps = std::move(text);
  return part;
}

}  // namespace lockstep::data
