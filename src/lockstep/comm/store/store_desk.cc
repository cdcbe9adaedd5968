#include "lockstep/comm/store/store_desk.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/comm/store/store_timeout.h"

namespace lockstep::comm {
namespace {

constexpr int64_t kReplyOverhead = 64;  // of a frame around one value

// Keys and queues may have the same names.
std::string until_key(const std::string& key) { return "k" + key; }
std::string until_queue(const std::string& queue) { return "q" + queue; }

bool waits_by_nature(Code code) { return code == Code::get || code == Code::wait || code == Code::pop; }

}  // namespace

StoreDesk::StoreDesk(int64_t most_message_bytes, int64_t most_bytes)
    : most_message_bytes_(most_message_bytes), table_({most_message_bytes - kReplyOverhead, most_bytes}) {}

bool StoreDesk::well_formed(const Message& request) {
  switch (request.code) {
    case Code::wait:
    case Code::check:
      return true;
    case Code::keys:
      return request.words.empty();
    case Code::get:
    case Code::try_get:
    case Code::add:
    case Code::remove:
    case Code::pop:
    case Code::queue_length:
      return request.words.size() == 1;
    case Code::set:
    case Code::append:
    case Code::push:
      return request.words.size() == 2;
    case Code::compare_set:
      return request.words.size() == 3;
    default:
      return false;
  }
}

std::vector<Reply> StoreDesk::ask(uint64_t peer, Message request, TimePoint now) {
  const Duration timeout =
      waits_by_nature(request.code) ? sane_timeout(Duration(request.number)) : Duration::zero();
  std::vector<ParkedRequest> todo;
  todo.push_back({peer, std::move(request), now + timeout});
  std::vector<Reply> replies;
  for (size_t i = 0; i < todo.size(); ++i) {  // grows while it runs
    ParkedRequest parked = std::move(todo[i]);
    std::optional<Message> reply = serve(parked.request);
    if (!reply && parked.deadline <= now) reply = timed_out(parked.request);
    if (reply) {
      for (ParkedRequest& woken : woken_by(parked.request)) todo.push_back(std::move(woken));
      replies.push_back({parked.peer, std::move(*reply)});
    } else {
      const std::string& missing = parked.request.words.back();
      const std::string until = parked.request.code == Code::pop ? until_queue(missing) : until_key(missing);
      waits_.park(std::move(parked), until);
    }
  }
  return replies;
}

std::vector<Reply> StoreDesk::expire(TimePoint now) {
  std::vector<Reply> replies;
  for (const ParkedRequest& parked : waits_.take_expired(now))
    replies.push_back({parked.peer, timed_out(parked.request)});
  return replies;
}

Message StoreDesk::timed_out(const Message& request) const {
  Message reply{Code::timed_out, 0, {}};
  for (const std::string& word : request.words) {
    if (!table_.find(word)) reply.words.push_back(word);
  }
  return reply;
}

std::vector<ParkedRequest> StoreDesk::woken_by(const Message& done) {
  switch (done.code) {
    case Code::set:
    case Code::add:
    case Code::compare_set:
    case Code::append:
      return waits_.take(until_key(done.words[0]));
    case Code::push:
      return waits_.take(until_queue(done.words[0]), 1);  // one value, one taker
    default:
      return {};
  }
}

std::optional<Message> StoreDesk::serve(Message& request) {
  try {
    switch (request.code) {
      case Code::wait:
      case Code::get:
        return serve_wait(request);
      case Code::pop: {
        std::optional<std::string> value = table_.pop(request.words[0]);
        if (!value) return std::nullopt;
        return Message{Code::ok, 0, {std::move(*value)}};
      }
      default:
        return serve_at_once(request);
    }
  } catch (const base::CommError& error) {  // the table's limits
    const std::string sentence = error.what();
    return Message{
        Code::refused, 0, {sentence.substr(0, sentence.rfind(" ["))}};  // the client adds the code again
  }
}

// What was seen is taken off the request, so that a wait for many keys looks at each once, whatever their
// order.
std::optional<Message> StoreDesk::serve_wait(Message& request) {
  if (request.code == Code::get) {
    const std::string* value = table_.find(request.words[0]);
    if (!value) return std::nullopt;
    return Message{Code::ok, 0, {*value}};
  }
  while (!request.words.empty() && table_.find(request.words.back())) request.words.pop_back();
  if (!request.words.empty()) return std::nullopt;
  return Message{};
}

Message StoreDesk::serve_at_once(const Message& request) {
  const std::vector<std::string>& words = request.words;
  switch (request.code) {
    case Code::set:
      table_.set(words[0], words[1]);
      return {};
    case Code::try_get: {
      const std::string* value = table_.find(words[0]);
      return value ? Message{Code::ok, 0, {*value}} : Message{Code::absent, 0, {}};
    }
    case Code::add:
      return {Code::ok, table_.add(words[0], request.number), {}};
    case Code::compare_set:
      return {Code::ok, 0, {table_.compare_set(words[0], words[1], words[2])}};
    case Code::append:
      table_.append(words[0], words[1]);
      return {};
    case Code::check:
      return {Code::ok,
              std::all_of(words.begin(), words.end(), [&](const auto& key) { return table_.find(key); }),
              {}};
    case Code::remove:
      return {Code::ok, table_.remove(words[0]), {}};
    case Code::keys:
      return list_keys();
    case Code::push:
      table_.push(words[0], words[1]);
      return {};
    case Code::queue_length:
      return {Code::ok, table_.queue_length(words[0]), {}};
    default:
      base::throw_bug(__FILE__, __LINE__, "well_formed(request)", "");
  }
}

Message StoreDesk::list_keys() const {
  Message reply{Code::ok, 0, table_.keys()};
  int64_t bytes = kReplyOverhead;
  for (const std::string& key : reply.words) bytes += 4 + static_cast<int64_t>(key.size());
  if (bytes <= most_message_bytes_ && reply.words.size() <= kMostWords) return reply;
  return {Code::refused, 0, {"the list of all keys exceeds the message size limit"}};
}

}  // namespace lockstep::comm
