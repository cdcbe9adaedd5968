#include "lockstep/cli/text/tokenize_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/store/local.h"
#include "lockstep/text/utf8.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_line(int64_t number, const std::string& line, const std::string& expected) {
  throw base::DataError(246, fmt::format("line {} of standard input is {}, and {} expected", number,
                                         base::quoted(line, 60), expected));
}

void append_ids(const std::vector<int32_t>& ids, bool as_json, std::string& out) {
  char digits[16];
  if (as_json) out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += as_json ? ',' : ' ';
    out.append(digits, std::to_chars(digits, digits + sizeof digits, ids[i]).ptr);
  }
  out += as_json ? "]\n" : "\n";
}

std::vector<int32_t> read_ids(const std::string& line, int64_t number, bool as_json, int64_t vocab) {
  const std::string expected =
      fmt::format("{} from 0 to {} are", as_json ? "a JSON list of ids" : "ids", vocab - 1);
  std::vector<int32_t> ids;
  const auto take = [&](std::optional<int64_t> id) {
    if (!id || *id < 0 || *id >= vocab) refuse_line(number, line, expected);
    ids.push_back(static_cast<int32_t>(*id));
  };
  if (as_json) {
    const json list = json::parse(line, nullptr, false);
    if (!list.is_array()) refuse_line(number, line, expected);
    for (const json& one : list)
      take(one.is_number_integer() ? std::optional(one.get<int64_t>()) : std::nullopt);
    return ids;
  }
  std::string_view left = base::trimmed(line);
  while (!left.empty()) {
    const size_t end = std::min(left.find_first_of(" \t,"), left.size());
    take(base::parse_number<int64_t>(left.substr(0, end)));
    left = base::trimmed(left.substr(end));
    if (left.starts_with(',')) left = base::trimmed(left.substr(1));
  }
  return ids;
}

std::string read_text(const std::string& line, int64_t number) {
  const json text = json::parse(line, nullptr, false);
  if (!text.is_string()) refuse_line(number, line, "a JSON string is");
  return text.get<std::string>();
}

}  // namespace

int tokenize_lines(const LinesWanted& wanted) {
  constexpr size_t kHeld = size_t{1} << 20;
  const auto tokenizer = text::open_tokenizer(store::local_small_files(wanted.tokenizer));
  const auto encoder = tokenizer->encoder();
  std::ios::sync_with_stdio(false);
  std::vector<int32_t> ids;
  std::string out;
  const auto flush = [&] {
    std::fwrite(out.data(), 1, out.size(), stdout);
    out.clear();
  };
  int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (wanted.decode) {
      const std::string text =
          tokenizer->decode(read_ids(line, number, wanted.json, tokenizer->vocab()), wanted.skip_special);
      std::string store;
      out += wanted.json ? json(std::string(text::whole_utf8(text, store))).dump() : text;
      out += '\n';
    } else {
      ids.clear();
      encoder->encode(wanted.json ? read_text(line, number) : line, ids, wanted.encoding);
      append_ids(ids, wanted.json, out);
    }
    // Who talks to us line by line gets each answer at once.
    if (out.size() > kHeld || std::cin.rdbuf()->in_avail() <= 0) {
      flush();
      std::fflush(stdout);
    }
  }
  flush();
  return 0;
}

}  // namespace lockstep::cli
