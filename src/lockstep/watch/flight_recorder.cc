#include "lockstep/watch/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::watch {

namespace {

using nlohmann::json;

constexpr size_t kMostValues = 4 << 20;

// The opcodes of Python's pickle protocols 2 to 4 that plain values are written with.
class PlainPickle {
 public:
  explicit PlainPickle(std::string_view bytes) : bytes_(bytes) {}

  json read() {
    while (true) {
      if (++steps_ > kMostValues) refuse("is too large");
      const auto op = static_cast<unsigned char>(take(1)[0]);
      if (op == '.') return pop();
      run(op);
    }
  }

 private:
  [[noreturn]] static void refuse(const std::string& why) {
    throw base::DataError(558, "the flight recorder's dump " + why);
  }
  std::string_view take(size_t count) {
    if (count > bytes_.size() - at_) refuse("is torn");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  uint64_t number(size_t count) {
    uint64_t value = 0;
    const std::string_view bytes = take(count);
    for (size_t i = count; i > 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
    return value;
  }
  int64_t small_long(size_t count) {  // two's complement, little endian
    if (count > 8) refuse("has a number that is too large");
    if (count == 0) return 0;
    const uint64_t value = number(count);
    const int shift = static_cast<int>(64 - 8 * count);
    return static_cast<int64_t>(value << shift) >> shift;
  }
  json pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back()))
      refuse("takes what is not there");
    json value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }
  std::vector<json> pop_to_mark() {
    if (marks_.empty()) refuse("has no beginning of a list");
    std::vector<json> values(std::make_move_iterator(stack_.begin() + static_cast<ptrdiff_t>(marks_.back())),
                             std::make_move_iterator(stack_.end()));
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }
  json& top() {
    if (stack_.empty()) refuse("takes what is not there");
    return stack_.back();
  }
  void set(json& dictionary, const json& key, json value) {
    if (!dictionary.is_object()) refuse("puts an entry into what is no dictionary");
    dictionary[key.is_string() ? key.get<std::string>() : key.dump()] = std::move(value);
  }
  void push(json value) { stack_.push_back(std::move(value)); }
  void text(size_t count) { push(std::string(take(count))); }
  void tuple(size_t count) {
    json values = json::array();
    for (size_t i = 0; i < count; ++i) values.insert(values.begin(), pop());
    push(std::move(values));
  }
  void memoize(uint64_t number) {
    if (number > kMostValues) refuse("is too large");
    memo_[number] = top();
  }
  void recall(uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) refuse("takes what is not there");
    push(found->second);
  }

  void run(unsigned char op) {
    switch (op) {
      case 0x80:
        take(1);
        return;  // PROTO
      case 0x95:
        take(8);
        return;  // FRAME
      case '}':
        return push(json::object());  // EMPTY_DICT
      case ']':                       // EMPTY_LIST
      case ')':
        return push(json::array());  // EMPTY_TUPLE
      case '(':
        return marks_.push_back(stack_.size());
      case 'N':
        return push(nullptr);
      case 0x88:
        return push(true);
      case 0x89:
        return push(false);
      case 'J':
        return push(static_cast<int64_t>(static_cast<int32_t>(number(4))));
      case 'K':
        return push(static_cast<int64_t>(number(1)));
      case 'M':
        return push(static_cast<int64_t>(number(2)));
      case 0x8a:
        return push(small_long(number(1)));  // LONG1
      case 'G': {                            // BINFLOAT, big endian
        const std::string_view bytes = take(8);
        uint64_t bits = 0;
        for (const char c : bytes) bits = bits << 8 | static_cast<unsigned char>(c);
        return push(std::bit_cast<double>(bits));
      }
      case 'U':  // SHORT_BINSTRING
      case 0x8c:
        return text(number(1));  // SHORT_BINUNICODE
      case 'T':                  // BINSTRING
      case 'X':
        return text(number(4));  // BINUNICODE
      case 'q':
        return memoize(number(1));
      case 'r':
        return memoize(number(4));
      case 0x94:
        return memoize(memo_.size());
      case 'h':
        return recall(number(1));
      case 'j':
        return recall(number(4));
      case 't': {
        json values = json::array();
        for (json& one : pop_to_mark()) values.push_back(std::move(one));
        return push(std::move(values));
      }
      case 0x85:
        return tuple(1);
      case 0x86:
        return tuple(2);
      case 0x87:
        return tuple(3);
      case 'a': {
        json value = pop();
        if (!top().is_array()) refuse("appends to what is no list");
        top().push_back(std::move(value));
        return;
      }
      case 'e': {
        std::vector<json> values = pop_to_mark();
        if (!top().is_array()) refuse("appends to what is no list");
        for (json& one : values) top().push_back(std::move(one));
        return;
      }
      case 's': {
        json value = pop();
        const json key = pop();
        return set(top(), key, std::move(value));
      }
      case 'u': {
        std::vector<json> values = pop_to_mark();
        if (values.size() % 2 != 0) refuse("has a key without a value");
        for (size_t i = 0; i < values.size(); i += 2) set(top(), values[i], std::move(values[i + 1]));
        return;
      }
      default:
        refuse(
            fmt::format("has an opcode that plain values do not need ({:#04x}); nothing of it was run", op));
    }
  }

  std::string_view bytes_;
  size_t at_ = 0, steps_ = 0;
  std::vector<json> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, json> memo_;
};

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

// The newest frame outside of PyTorch: what the user wrote.
std::string place_of(const json& frames) {
  if (!frames.is_array()) return "";
  for (const json& frame : frames) {
    if (!frame.is_object()) continue;
    const std::string file = text_of(frame.value("filename", json()));
    if (file.empty() || file.find("/torch/") != std::string::npos) continue;
    const json line = frame.value("line", json());
    return fmt::format("{}:{} {}", file.substr(file.rfind('/') + 1),
                       line.is_number() ? line.get<int64_t>() : 0, text_of(frame.value("name", json())));
  }
  return "";
}

FlightCall call_of(const json& entry) {
  FlightCall call;
  const json group = entry.value("process_group", json());
  if (group.is_array() && group.size() == 2) {  // its number and what it is for
    const std::string number = text_of(group[0]), purpose = text_of(group[1]);
    call.group = purpose == "default_pg" ? purpose : fmt::format("group {} ({})", number, purpose);
  }
  call.name = text_of(entry.value("profiling_name", json()));
  const json sequence = entry.value("collective_seq_id", json());
  call.sequence = sequence.is_number_integer() ? sequence.get<int64_t>() : 0;
  call.completed = text_of(entry.value("state", json())) == "completed";
  call.where = place_of(entry.value("frames", json()));
  return call;
}

}  // namespace

json read_plain_pickle(std::string_view bytes) { return PlainPickle(bytes).read(); }

FlightDump read_flight_dump(std::string_view bytes) {
  FlightDump dump;
  try {
    const json all = read_plain_pickle(bytes);
    if (!all.is_object() || !all.contains("entries") || !all["entries"].is_array()) {
      dump.problem = "the flight recorder's dump has no entries";
      return dump;
    }
    for (const json& entry : all["entries"]) {
      if (entry.is_object()) dump.calls.push_back(call_of(entry));
    }
  } catch (const base::DataError& error) {
    dump.problem = error.what();
  } catch (const json::exception&) {
    dump.problem = "the flight recorder's dump is not as PyTorch writes it";
  }
  return dump;
}

Behind who_is_behind(const std::vector<std::pair<int, FlightDump>>& dumps) {
  std::map<std::string, std::map<int, const FlightCall*>> newest;  // by group, of each rank
  for (const auto& [rank, dump] : dumps) {
    for (const FlightCall& call : dump.calls) {
      const FlightCall*& best = newest[call.group][rank];
      if (best == nullptr || call.sequence >= best->sequence) best = &call;
    }
  }
  for (const auto& [group, ranks] : newest) {
    const auto [least, most] = std::minmax_element(
        ranks.begin(), ranks.end(),
        [](const auto& a, const auto& b) { return a.second->sequence < b.second->sequence; });
    if (least->second->sequence == most->second->sequence) continue;
    const FlightCall &behind = *least->second, &ahead = *most->second;
    return {.rank = least->first,
            .sentence = fmt::format("rank {} has entered {} collectives of {}, rank {} already {} ({}{})",
                                    least->first, behind.sequence, group, most->first, ahead.sequence,
                                    ahead.name, ahead.where.empty() ? "" : ", " + ahead.where)};
  }
  return {};
}

}  // namespace lockstep::watch
