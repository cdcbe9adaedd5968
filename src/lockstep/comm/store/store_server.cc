#include "lockstep/comm/store/store_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>
#include <unordered_map>

#include "lockstep/base/descriptor_limit.h"
#include "lockstep/base/error.h"
#include "lockstep/base/signals_blocked.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/store/store_channel.h"
#include "lockstep/comm/store/store_desk.h"
#include "lockstep/comm/store/store_handshake.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kListener = 0, kStop = 1, kFirstPeer = 2;
constexpr int kMostAtOnce = 64;  // connections taken up before the others are heard again

// Of this process's descriptors a quarter: so many ranks may be in the middle of their handshake, and the
// rest stays for those that are through, and for the launcher.
size_t limit_of_unauthenticated() {
  return std::max<size_t>(16, static_cast<size_t>(base::descriptor_limit()) / 4);
}

struct Peer {
  Channel channel;
  std::string address;
  ServerHandshake handshake;
  TimePoint handshake_deadline;
  uint32_t interest = EPOLLIN;
};

}  // namespace

struct StoreServer::State {
  explicit State(StoreServerOptions given);
  void run();
  void accept_all();
  void accept_without_descriptor();
  bool make_room();
  void make_way();
  void welcome(Socket socket);
  void on_event(uint64_t id);
  void hear(uint64_t id);
  void hear_unauthenticated(uint64_t id, Peer& peer, const Message& message);
  void hear_authenticated(uint64_t id, Message message);
  void deliver(std::vector<Reply> replies);
  void push_out(uint64_t id);
  void refuse(uint64_t id, const std::string& why);
  void close(uint64_t id);
  void expire(TimePoint now);
  int milliseconds_to_next(TimePoint now) const;
  std::string name(const Peer& peer) const;
  void report(const std::string& sentence);

  StoreServerOptions options;
  Socket listener, epoll, stop, spare;
  int port;
  StoreDesk desk;
  std::unique_ptr<TlsContext> tls;
  std::unordered_map<uint64_t, Peer> peers;
  std::set<std::pair<TimePoint, uint64_t>> unauthenticated;  // by the time their handshake must be over
  uint64_t next_id = kFirstPeer;
  std::atomic<int> authenticated{0};
  TimePoint minute = Clock::now();  // since when `reports` are counted
  int64_t reports = 0;
  std::thread thread;
};

StoreServer::State::State(StoreServerOptions given)
    : options(std::move(given)),
      listener(listen_at(options.address, options.port)),
      epoll(::epoll_create1(EPOLL_CLOEXEC)),
      stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      port(local_end(listener).port),
      desk(options.most_message_bytes, options.most_bytes) {
  if (options.tls) tls = std::make_unique<TlsContext>(TlsSide::server, options.secret);
  epoll_event event{EPOLLIN, {.u64 = kListener}};
  const bool watching = ::epoll_ctl(epoll.number(), EPOLL_CTL_ADD, listener.number(), &event) == 0;
  event.data.u64 = kStop;
  if (!watching || ::epoll_ctl(epoll.number(), EPOLL_CTL_ADD, stop.number(), &event) != 0) {
    throw base::ConfigError(513, fmt::format("the store cannot poll its sockets: {}", std::strerror(errno)));
  }
}

void StoreServer::State::run() {
  std::array<epoll_event, 256> events;
  for (;;) {
    const int count =
        ::epoll_wait(epoll.number(), events.data(), events.size(), milliseconds_to_next(Clock::now()));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kStop) return;
      if (event.data.u64 == kListener) {
        accept_all();
      } else {
        on_event(event.data.u64);
      }
    }
    expire(Clock::now());
  }
}

int StoreServer::State::milliseconds_to_next(TimePoint now) const {
  std::optional<TimePoint> next = desk.next_deadline();
  if (!unauthenticated.empty())
    next = std::min(next.value_or(TimePoint::max()), unauthenticated.begin()->first);
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - now).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

void StoreServer::State::expire(TimePoint now) {
  deliver(desk.expire(now));
  while (!unauthenticated.empty() && unauthenticated.begin()->first <= now) {
    refuse(unauthenticated.begin()->second, "it did not finish the handshake in time");
  }
}

// ---- connections --------------------------------------------------------------------------------------

// A few at a time: a flood of callers must not keep ranks from being heard.
void StoreServer::State::accept_all() {
  for (int k = 0; k < kMostAtOnce; ++k) {
    int error = 0;
    Socket socket = accept_from(listener, error);
    if (socket) {
      welcome(std::move(socket));
    } else if (error == EMFILE || error == ENFILE) {
      return accept_without_descriptor();
    } else if (error != EINTR && error != ECONNABORTED) {
      return;
    }
  }
}

// An unauthenticated peer makes way. Where there is none, the caller is let go, or epoll would tell us of it
// for ever; that there may be no caller at all is known only with a descriptor to take it up with.
void StoreServer::State::accept_without_descriptor() {
  if (!unauthenticated.empty()) return make_way();
  int error = 0;
  spare = Socket();
  if (const Socket turned_away = accept_from(listener, error)) {
    report(fmt::format("the store rejected {}: this process cannot open more files",
                       to_text(far_end(turned_away))));
  }
  spare = Socket(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// Whoever has not proved itself makes way, the oldest first, so that idle peers cannot lock ranks out. A
// rank among them finds its connection closed, and tries again.
void StoreServer::State::make_way() {
  const uint64_t oldest = unauthenticated.begin()->second;
  report(fmt::format("the store dropped {}: it had not authenticated when another peer needed its slot",
                     name(peers.at(oldest))));
  close(oldest);
}

bool StoreServer::State::make_room() {
  while (unauthenticated.size() >= limit_of_unauthenticated()) make_way();
  if (static_cast<int>(peers.size()) < options.most_connections) return true;
  if (unauthenticated.empty()) return false;
  make_way();
  return true;
}

void StoreServer::State::welcome(Socket socket) {
  const std::string address = to_text(far_end(socket));
  const TimePoint deadline = Clock::now() + options.handshake_timeout;
  const bool room = make_room();
  const uint64_t id = next_id++;
  const int number = socket.number();
  Channel channel(std::move(socket), tls ? tls->open() : nullptr);
  peers.emplace(
      id, Peer{std::move(channel), address,
               ServerHandshake(options.secret, options.most_message_bytes, options.run, port), deadline});
  unauthenticated.insert({deadline, id});
  epoll_event event{EPOLLIN, {.u64 = id}};
  if (::epoll_ctl(epoll.number(), EPOLL_CTL_ADD, number, &event) != 0) return close(id);
  if (!room) refuse(id, fmt::format("all {} connections are in use", options.most_connections));
}

std::string StoreServer::State::name(const Peer& peer) const {
  std::string who = peer.handshake.who();
  if (who.empty() && peer.channel.tls()) who = peer.channel.tls()->who();
  return who.empty() ? peer.address : fmt::format("{} ({})", peer.address, base::quoted(who, kMostWhoBytes));
}

// A scan may come a thousand times a second; the log shall not grow with it.
void StoreServer::State::report(const std::string& sentence) {
  constexpr int64_t kMostInAMinute = 100;
  if (!options.log) return;
  if (Clock::now() - minute > std::chrono::minutes(1)) {
    if (reports > kMostInAMinute)
      options.log(fmt::format("the store rejected {} more peers", reports - kMostInAMinute));
    minute = Clock::now();
    reports = 0;
  }
  ++reports;
  if (reports <= kMostInAMinute) options.log(sentence);
  if (reports == kMostInAMinute) options.log("further rejections within this minute are only counted");
}

// Says so here and, as far as it still listens, there.
void StoreServer::State::refuse(uint64_t id, const std::string& why) {
  Peer& peer = peers.at(id);
  report(fmt::format("the store rejected {}: {}", name(peer), why));
  peer.channel.send({Code::refused, 0, {why}});
  peer.channel.flush();
  close(id);
}

void StoreServer::State::close(uint64_t id) {
  const auto found = peers.find(id);
  if (found->second.handshake.done()) --authenticated;
  unauthenticated.erase({found->second.handshake_deadline, id});
  desk.leave(id);
  peers.erase(found);  // closing the socket takes it out of epoll
}

// ---- messages -----------------------------------------------------------------------------------------

void StoreServer::State::on_event(uint64_t id) {
  if (!peers.contains(id)) return;  // closed by an event before this one
  push_out(id);
  if (peers.contains(id) && !peers.at(id).channel.sending()) hear(id);
}

void StoreServer::State::hear(uint64_t id) {
  Peer& peer = peers.at(id);
  const bool open = peer.channel.receive();
  // One request at a time: the next is taken up when the reply to the last has left.
  while (!peer.channel.sending() && !desk.waits(id)) {
    const bool known = peer.handshake.done();
    std::optional<Message> message =
        peer.channel.next(known ? options.most_message_bytes : kMostHandshakeBytes);
    if (!message) break;
    known ? hear_authenticated(id, std::move(*message)) : hear_unauthenticated(id, peer, *message);
    if (!peers.contains(id)) return;
  }
  if (!peer.channel.problem().empty()) {
    // A rank that is done just leaves; all else is worth a word.
    if (peer.handshake.done() && !open && !peer.channel.holds_input()) return close(id);
    if (!peer.channel.heard_anything()) return refuse(id, "it connected but sent nothing");
    return refuse(id, peer.channel.problem());
  }
  if (desk.waits(id) && peer.channel.holds_input()) return refuse(id, "it sent data out of turn");
  push_out(id);
}

void StoreServer::State::hear_unauthenticated(uint64_t id, Peer& peer, const Message& message) {
  const Message answer = peer.handshake.answer(message);
  if (answer.code == Code::refused) return refuse(id, answer.words[0]);
  peer.channel.send(answer);
  if (answer.code == Code::elsewhere) {  // a neighbour's, at the wrong door: no harm, and no word about it
    peer.channel.flush();
    return close(id);
  }
  if (peer.handshake.done()) {
    unauthenticated.erase({peer.handshake_deadline, id});
    ++authenticated;
  }
  push_out(id);
}

void StoreServer::State::hear_authenticated(uint64_t id, Message message) {
  if (!StoreDesk::well_formed(message)) return refuse(id, "a malformed request");
  deliver(desk.ask(id, std::move(message), Clock::now()));
}

void StoreServer::State::deliver(std::vector<Reply> replies) {
  for (Reply& reply : replies) {
    peers.at(reply.peer).channel.send(reply.message);
    push_out(reply.peer);
  }
}

// Sends what it can, and asks epoll for the rest. While a reply is under way nothing more is read from that
// peer.
void StoreServer::State::push_out(uint64_t id) {
  Peer& peer = peers.at(id);
  if (!peer.channel.flush()) return close(id);
  const uint32_t wanted = peer.channel.sending() ? EPOLLOUT : EPOLLIN;
  if (wanted == peer.interest) return;
  peer.interest = wanted;
  epoll_event event{wanted, {.u64 = id}};
  ::epoll_ctl(epoll.number(), EPOLL_CTL_MOD, peer.channel.socket().number(), &event);
}

// ---- the server from outside --------------------------------------------------------------------------

StoreServer::StoreServer(StoreServerOptions options) {
  LS_ASSERT(!options.secret.empty(), "a store without a secret");
  LS_ASSERT(options.most_message_bytes >= kMostHandshakeBytes && options.most_message_bytes <= INT32_MAX);
  base::raise_descriptor_limit(options.most_connections);
  state_ = std::make_unique<State>(std::move(options));
  const base::SignalsBlocked blocked;
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

StoreServer::~StoreServer() {
  ::eventfd_write(state_->stop.number(), 1);
  state_->thread.join();
}

int StoreServer::port() const { return state_->port; }
std::string StoreServer::endpoint() const { return to_text(local_end(state_->listener)); }
int StoreServer::connections() const { return state_->authenticated; }

}  // namespace lockstep::comm
