#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/store/store_channel.h"
#include "lockstep/comm/store/store_handshake.h"
#include "lockstep/comm/store/store_server.h"
#include "lockstep/comm/store/store_timeout.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kMessageOverhead = 64;

// The next message within the deadline; nothing when there is none, and channel.problem() may say why.
std::optional<Message> hear(Channel& channel, int64_t most_bytes, TimePoint deadline) {
  for (;;) {
    if (std::optional<Message> message = channel.next(most_bytes)) return message;
    if (!channel.problem().empty() || !channel.flush()) return std::nullopt;
    const bool ready = channel.sending() ? wait_writable(channel.socket(), deadline)
                                         : wait_readable(channel.socket(), deadline);
    if (!ready) return std::nullopt;
    if (!channel.sending() && !channel.receive()) return std::nullopt;
  }
}

class StoreClient final : public Store {
 public:
  StoreClient(StoreClientOptions options, std::unique_ptr<TlsContext> tls, Channel channel,
              int64_t most_message_bytes)
      : options_(std::move(options)),
        tls_(std::move(tls)),
        channel_(std::move(channel)),
        most_message_bytes_(most_message_bytes) {}

  void set(const std::string& key, const std::string& value) override { ask({Code::set, 0, {key, value}}); }

  std::string get(const std::string& key, Duration timeout) override {
    return std::move(ask_waiting({Code::get, 0, {key}}, timeout).words[0]);
  }

  std::optional<std::string> try_get(const std::string& key) override {
    return maybe(ask({Code::try_get, 0, {key}}));
  }

  int64_t add(const std::string& key, int64_t amount) override {
    return ask({Code::add, amount, {key}}).number;
  }

  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override {
    return std::move(ask({Code::compare_set, 0, {key, expected, desired}}).words[0]);
  }

  void append(const std::string& key, const std::string& value) override {
    ask({Code::append, 0, {key, value}});
  }

  void wait(const std::vector<std::string>& keys, Duration timeout) override {
    ask_waiting({Code::wait, 0, keys}, timeout);
  }

  bool check(const std::vector<std::string>& keys) override {
    return ask({Code::check, 0, keys}).number != 0;
  }
  bool remove(const std::string& key) override { return ask({Code::remove, 0, {key}}).number != 0; }
  std::vector<std::string> keys() override { return ask({Code::keys, 0, {}}).words; }
  void push(const std::string& queue, const std::string& value) override {
    ask({Code::push, 0, {queue, value}});
  }

  std::optional<std::string> pop(const std::string& queue, Duration timeout) override {
    timeout = sane_timeout(timeout);
    return maybe(ask({Code::pop, timeout.count(), {queue}}, timeout));
  }

  int64_t queue_length(const std::string& queue) override {
    return ask({Code::queue_length, 0, {queue}}).number;
  }
  std::unique_ptr<Store> clone() override { return connect_store(options_); }

 private:
  static std::optional<std::string> maybe(Message reply) {
    if (reply.code != Code::ok) return std::nullopt;
    return std::move(reply.words[0]);
  }

  Message ask_waiting(Message request, Duration timeout) {
    timeout = sane_timeout(timeout);
    request.number = timeout.count();
    Message reply = ask(request, timeout);
    if (reply.code == Code::timed_out) throw_store_timeout(reply.words, timeout);
    return reply;
  }

  Message ask(const Message& request, Duration timeout = Duration::zero()) {
    check_size(request);
    if (!broken_.empty()) lost(broken_);
    if (!channel_.send(request)) lost(channel_.problem());
    std::optional<Message> reply =
        hear(channel_, most_message_bytes_, Clock::now() + timeout + options_.patience);
    if (!reply) lost(channel_.problem().empty() ? "it does not respond" : channel_.problem());
    if (reply->code == Code::refused && reply->words.size() == 1) throw base::CommError(516, reply->words[0]);
    const bool has_word = !reply->words.empty();
    const bool needs_word = request.code == Code::get || request.code == Code::try_get ||
                            request.code == Code::pop || request.code == Code::compare_set;
    if (reply->code < Code::ok || (reply->code == Code::ok && needs_word && !has_word))
      lost("it sent a malformed reply");
    return std::move(*reply);
  }

  void check_size(const Message& request) const {
    int64_t bytes = kMessageOverhead;
    for (const std::string& word : request.words) bytes += 4 + static_cast<int64_t>(word.size());
    if (bytes <= most_message_bytes_ && request.words.size() <= kMostWords) return;
    const std::string key = request.words.empty() ? "" : request.words[0];
    throw base::CommError(516, fmt::format("the store rejects key {}: a message of {} bytes exceeds {}",
                                           base::quoted(key), bytes, most_message_bytes_));
  }

  // The connection is of no use any more: a late reply would be taken for the next one's.
  [[noreturn]] void lost(const std::string& why) {
    broken_ = why;
    throw base::CommError(517, fmt::format("lost connection to the store at {}: {}", options_.endpoint, why));
  }

  StoreClientOptions options_;
  std::unique_ptr<TlsContext> tls_;
  Channel channel_;
  int64_t most_message_bytes_;
  std::string broken_;
};

}  // namespace

namespace {

// What a server says instead of a challenge that is no reason to give up where another run may have the port.
std::string passed_over(const Message& answer, const std::string& endpoint) {
  if (answer.code == Code::challenge) return "";
  if (answer.code == Code::elsewhere) return fmt::format("{}: another run's store is there", endpoint);
  if (answer.code == Code::refused && answer.words.size() == 1)
    return fmt::format("{}: the store there says {}", endpoint, base::quoted(answer.words[0]));
  return fmt::format("{}: another program is there", endpoint);
}

// Both sides' proofs. Nothing when the connection ended or was too slow: worth another try.
std::unique_ptr<Store> shake_hands(const StoreClientOptions& options, Socket socket, TimePoint deadline,
                                   std::string& problem, Door& door) {
  door = Door::silent;
  std::unique_ptr<TlsContext> tls;
  if (options.tls) tls = std::make_unique<TlsContext>(TlsSide::client, options.secret);
  Channel channel(std::move(socket), tls ? tls->open(options.who) : nullptr);
  ClientHandshake handshake(options.secret, options.who, options.run, parse_endpoint(options.endpoint).port);
  std::optional<Message> answer;
  if (channel.begin() && channel.send(handshake.hello()))
    answer = hear(channel, kMostHandshakeBytes, deadline);
  if (answer && !options.run.empty()) {
    problem = passed_over(*answer, options.endpoint);
    if (!problem.empty()) {
      door = Door::foreign;
      return nullptr;
    }
  }
  if (answer && channel.send(handshake.proof(*answer, options.endpoint))) {
    answer = hear(channel, kMostHandshakeBytes, deadline);
  }
  if (answer) {
    const int64_t most_bytes = handshake.check_welcome(*answer, options.endpoint);
    door = Door::ours;
    return std::make_unique<StoreClient>(options, std::move(tls), std::move(channel), most_bytes);
  }
  problem = channel.problem().empty() ? "it accepts connections but does not respond" : channel.problem();
  if (!options.run.empty()) problem = fmt::format("{}: {}", options.endpoint, problem);
  if (channel.misunderstood()) door = Door::foreign;
  // What was heard is no store's language, or TLS failed: trying again would not help.
  if (channel.misunderstood() && options.run.empty()) {
    throw base::ConfigError(
        515, fmt::format("protocol error between the store at {} and this process ({}): {}", options.endpoint,
                         options.who.empty() ? "unnamed" : options.who, problem));
  }
  return nullptr;
}

std::unique_ptr<Store> knock(const StoreClientOptions& options, const Endpoint& endpoint, TimePoint deadline,
                             std::string& problem, Door& door) {
  bool nobody = false;
  Socket socket = connect_once(endpoint, deadline, problem, &nobody);
  door = nobody ? Door::nobody : Door::silent;
  return socket ? shake_hands(options, std::move(socket), deadline, problem, door) : nullptr;
}

}  // namespace

std::unique_ptr<Store> try_connect_store_once(const StoreClientOptions& options, Duration within,
                                              std::string& problem, Door& door) {
  return knock(options, parse_endpoint(options.endpoint), Clock::now() + sane_timeout(within), problem, door);
}

std::unique_ptr<Store> try_connect_store_once(const StoreClientOptions& options, Duration within,
                                              std::string& problem) {
  Door door{};
  return try_connect_store_once(options, within, problem, door);
}

std::unique_ptr<Store> try_connect_store(const StoreClientOptions& options, Duration within,
                                         std::string& problem) {
  constexpr Duration kFirstPause{20}, kLongestPause{1000};
  const Endpoint endpoint = parse_endpoint(options.endpoint);
  const TimePoint deadline = Clock::now() + sane_timeout(within);
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    Door door{};
    if (std::unique_ptr<Store> store = knock(options, endpoint, deadline, problem, door)) return store;
    if (Clock::now() + pause >= deadline) return nullptr;
    std::this_thread::sleep_for(pause);
  }
}

std::unique_ptr<Store> connect_store(const StoreClientOptions& options) {
  std::string problem;
  if (std::unique_ptr<Store> store = try_connect_store(options, options.connect_timeout, problem))
    return store;
  const double seconds = std::chrono::duration<double>(options.connect_timeout).count();
  throw base::CommError(
      514, fmt::format("no store responded at {} within {} ({}): is node 0 running and reachable from here?",
                       options.endpoint, base::human_duration(seconds), problem));
}

}  // namespace lockstep::comm
