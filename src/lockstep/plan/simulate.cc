#include "lockstep/plan/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/plan/meeting.h"
#include "lockstep/program/check.h"

namespace lockstep::plan {

using program::Among;
using program::Instruction;
using program::kLanes;

namespace {

constexpr size_t kMostProblems = 8;

struct Lane {
  std::vector<size_t> list;  // instructions, in order
  size_t next = 0;
  double clock = 0;
  int meeting = -1;    // where its next instruction waits for others
  bool awake = false;  // it is in the queue
  bool done() const { return next == list.size(); }
};

struct Arrival {
  int of_class = 0;
  size_t lane = 0, index = 0;
  double time = 0;
};

// One call of a group, or one message.
struct Meeting {
  std::vector<int> expected;  // classes; of a message, {sender, receiver}
  std::vector<Arrival> arrived;
  bool message = false;
  bool complete() const { return arrived.size() == expected.size(); }
};

// Which calls count together: a lane's group of classes, or a link from one class to another.
struct Channel {
  bool message = false;
  size_t lane = 0;            // of a collective
  Among group = Among::none;  // of a collective; of a message: the direction, where links are told apart
  std::vector<int> classes;
  auto operator<=>(const Channel&) const = default;
};

// The calls of a channel so far.
struct Line {
  Channel channel;
  std::vector<int> meetings = {};  // in the order of calls
  // How often a class has come. Of a class that sends to itself, sends and receives are counted apart.
  std::map<std::pair<int, bool>, size_t> calls = {};
};
constexpr size_t kAmong = static_cast<size_t>(Among::previous) + 1;

class Walker {
 public:
  Walker(const World& world, const Price& price, const Rules& rules)
      : world_(world), price_(price), rules_(rules) {
    walk_.classes = classes_of(world, rules.apart);
    for (const RankClass& one : walk_.classes.list) {
      const auto& list = program_of(one).instructions;
      walk_.spans.emplace_back(list.size());
      meeting_of_.emplace_back(list.size(), -1);
      lanes_.emplace_back();
      line_of_.emplace_back();
      line_of_.back().fill(-1);
      for (size_t n = 0; n < list.size(); ++n) lanes_.back()[lane_of(list[n])].list.push_back(n);
    }
  }

  Walk run() {
    for (int c = 0; c < static_cast<int>(lanes_.size()); ++c) wake(c);
    while (!awake_.empty()) {
      const auto [c, lane] = awake_.front();
      awake_.pop_front();
      lanes_[static_cast<size_t>(c)][lane].awake = false;
      advance(c, lane);
    }
    report_waiting();
    if (walk_.problems.empty()) check_launch_order();
    sum_up();
    return std::move(walk_);
  }

 private:
  static size_t lane_of(const Instruction& i) { return static_cast<size_t>(program::thread_of(i.lane)); }
  const program::Program& program_of(const RankClass& one) const {
    return *world_.programs[static_cast<size_t>(one.program)];
  }
  const RankClass& class_at(int c) const { return walk_.classes.list[static_cast<size_t>(c)]; }
  const Instruction& instruction(int c, size_t index) const {
    return program_of(class_at(c)).instructions[index];
  }
  std::string name(int c, size_t index) const {
    return call_name(class_at(c).first, index, instruction(c, index));
  }

  void wake(int c) {
    for (size_t at = 0; at < kLanes; ++at) {
      Lane& lane = lanes_[static_cast<size_t>(c)][at];
      if (lane.done() || lane.awake || lane.meeting >= 0) continue;
      lane.awake = true;
      awake_.emplace_back(c, at);
    }
  }

  // Runs a lane on until it has to wait.
  void advance(int c, size_t at) {
    Lane& lane = lanes_[static_cast<size_t>(c)][at];
    while (!lane.done() && lane.meeting < 0) {
      const size_t index = lane.list[lane.next];
      const Instruction& i = instruction(c, index);
      double ready = lane.clock;
      for (const int wait : i.waits) {
        const Span& span = walk_.spans[static_cast<size_t>(c)][static_cast<size_t>(wait)];
        if (span.end < 0) return;
        ready = std::max(ready, span.end);
      }
      if (meets(c, i)) {
        arrive({c, at, index, ready});
        continue;
      }
      finish({c, at, index, ready}, ready, ready + price(c, i));
    }
  }

  double price(int c, const Instruction& i) const {
    const RankClass& one = class_at(c);
    const double seconds = price_(one.first, program_of(one), i);
    LS_ASSERT(seconds >= 0, "a negative cost");
    return seconds;
  }

  void finish(const Arrival& who, double begin, double end) {
    Lane& lane = lanes_[static_cast<size_t>(who.of_class)][who.lane];
    walk_.spans[static_cast<size_t>(who.of_class)][who.index] = {begin, end};
    lane.clock = end;
    lane.meeting = -1;
    ++lane.next;
    wake(who.of_class);
  }

  // Whether others take part. A group of one is no meeting; a class may well meet itself.
  bool meets(int c, const Instruction& i) const {
    return i.among != Among::none && (is_message(i) || class_at(c).width[static_cast<size_t>(i.among)] > 1);
  }

  void arrive(const Arrival& who) {
    const Instruction& i = instruction(who.of_class, who.index);
    Line& line = line_of(who.of_class, who.lane, i);
    const size_t call = line.calls[{who.of_class, receives(i)}]++;
    if (line.meetings.size() <= call) {
      line.meetings.push_back(static_cast<int>(meetings_.size()));
      meetings_.push_back({.expected = line.channel.classes, .arrived = {}, .message = line.channel.message});
    }
    const int number = line.meetings[call];
    lanes_[static_cast<size_t>(who.of_class)][who.lane].meeting = number;
    meeting_of_[static_cast<size_t>(who.of_class)][who.index] = number;
    Meeting& meeting = meetings_[static_cast<size_t>(number)];
    if (!meeting.arrived.empty()) compare(meeting.arrived.front(), who);
    meeting.arrived.push_back(who);
    if (meeting.complete()) hold(number);
  }

  // Looked up once for each kind of call of a class.
  Line& line_of(int c, size_t lane, const Instruction& i) {
    const size_t kind = (lane * kAmong + static_cast<size_t>(i.among)) * 3 + (sends(i)      ? 1
                                                                              : receives(i) ? 2
                                                                                            : 0);
    int& known = line_of_[static_cast<size_t>(c)][kind];
    if (known < 0) {
      const Channel channel = channel_of(c, lane, i);
      known = number_of_.try_emplace(channel, static_cast<int>(lines_.size())).first->second;
      if (known == static_cast<int>(lines_.size())) lines_.push_back({.channel = channel});
    }
    return lines_[static_cast<size_t>(known)];
  }

  Channel channel_of(int c, size_t lane, const Instruction& i) const {
    const RankClass& one = class_at(c);
    const size_t among = static_cast<size_t>(i.among);
    if (!is_message(i)) return {false, lane, one.group[among], one.meets[among]};
    const int other = one.meets[among][0];
    const bool out = sends(i);
    const bool forward = out == (i.among == Among::next);
    const Among direction = !rules_.links_by_direction ? Among::none
                            : forward                  ? Among::next
                                                       : Among::previous;
    return {true, 0, direction, out ? std::vector{c, other} : std::vector{other, c}};
  }

  void compare(const Arrival& first, const Arrival& who) {
    // The same instruction of the same list. (A class that meets itself in a message is another matter.)
    const bool same =
        first.index == who.index && class_at(first.of_class).program == class_at(who.of_class).program;
    if (same) return;
    const std::string why =
        differs(program_of(class_at(first.of_class)), instruction(first.of_class, first.index),
                program_of(class_at(who.of_class)), instruction(who.of_class, who.index));
    if (why.empty()) return;
    complain(fmt::format("{} meets {}: {}", name(first.of_class, first.index), name(who.of_class, who.index),
                         why));
  }

  void complain(std::string sentence) {
    if (walk_.problems.size() < kMostProblems) walk_.problems.push_back(std::move(sentence));
  }

  void hold(int number) {
    const std::vector<Arrival> all = meetings_[static_cast<size_t>(number)].arrived;
    double begin = 0, seconds = 0;
    for (const Arrival& who : all) {
      begin = std::max(begin, who.time);
      seconds = std::max(seconds, price(who.of_class, instruction(who.of_class, who.index)));
    }
    for (const Arrival& who : all) finish(who, begin, begin + seconds);
  }

  // --- when nothing moves any more -----------------------------------------------------------------
  struct Stuck {
    int of_class = 0;
    size_t lane = 0;
    auto operator<=>(const Stuck&) const = default;
  };

  // Follows who waits for whom until it comes round, or to one that has nothing left to do. What only waits
  // for a circle that was told already is not told again.
  void report_waiting() {
    std::set<Stuck> told;
    for (int c = 0; c < static_cast<int>(lanes_.size()); ++c) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        if (lanes_[static_cast<size_t>(c)][lane].done()) continue;
        std::vector<Stuck> path;
        std::vector<std::string> chain;
        Stuck at{c, lane};
        bool more = true;
        while (more && told.insert(at).second) {
          path.push_back(at);
          more = waits_for(at, chain.emplace_back());
        }
        const auto circle = std::find(path.begin(), path.end(), at);
        if (more && circle == path.end()) continue;
        if (more) chain.erase(chain.begin(), chain.begin() + (circle - path.begin()));
        complain("deadlock: " + base::join(chain, "; "));
      }
    }
  }

  // What `at` waits for, in words; moves on to it. False when it is something that never comes.
  bool waits_for(Stuck& at, std::string& why) const {
    const Lane& lane = lanes_[static_cast<size_t>(at.of_class)][at.lane];
    const size_t index = lane.list[lane.next];
    const std::string who = name(at.of_class, index);
    if (lane.meeting < 0) {
      for (const int wait : instruction(at.of_class, index).waits) {
        if (walk_.spans[static_cast<size_t>(at.of_class)][static_cast<size_t>(wait)].end >= 0) continue;
        why = fmt::format("{} waits for #{}", who, wait);
        at.lane = lane_of(instruction(at.of_class, static_cast<size_t>(wait)));
        return true;
      }
    }
    const Meeting& meeting = meetings_[static_cast<size_t>(lane.meeting)];
    for (const int expected : meeting.expected) {
      const bool here = std::any_of(meeting.arrived.begin(), meeting.arrived.end(),
                                    [&](const Arrival& one) { return one.of_class == expected; });
      if (here && !(meeting.message && meeting.expected[0] == meeting.expected[1])) continue;
      const size_t lane_there = meeting.message ? other_lane(at, expected) : at.lane;
      const Lane& there = lanes_[static_cast<size_t>(expected)][lane_there];
      const int rank = class_at(expected).first;
      if (there.done()) {
        why = fmt::format("{} waits for rank {}, which never arrives", who, rank);
        return false;
      }
      why = fmt::format("{} waits for rank {}, which is at #{}", who, rank, there.list[there.next]);
      at = {expected, lane_there};
      return true;
    }
    why = who + " waits";
    return false;
  }

  // The lane on which the other end of a message is handled: the first that still has one of the other kind.
  size_t other_lane(const Stuck& at, int other) const {
    const Lane& own = lanes_[static_cast<size_t>(at.of_class)][at.lane];
    const bool wants_recv = sends(instruction(at.of_class, own.list[own.next]));
    const auto& lanes = lanes_[static_cast<size_t>(other)];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      for (size_t n = lanes[lane].next; n < lanes[lane].list.size(); ++n) {
        const Instruction& there = instruction(other, lanes[lane].list[n]);
        if (wants_recv ? receives(there) : sends(there)) return lane;
      }
    }
    const program::Lane none = wants_recv ? program::Lane::recv : program::Lane::send;
    return lanes[static_cast<size_t>(none)].done() ? static_cast<size_t>(none) : at.lane;
  }

  // --- one order of launches for all ranks ----------------------------------------------------------
  // Each rank launches its meetings in list order. There is one order that suits all exactly when following
  // the lists never leads in a circle: meetings are taken away that no rank has another one before.
  void check_launch_order() {
    std::vector<std::vector<int>> lists;  // [class]: meetings in launch order
    std::vector<int> before(meetings_.size(), 0);
    for (size_t c = 0; c < meeting_of_.size(); ++c) {
      lists.emplace_back();
      for (const int number : meeting_of_[c]) {
        if (number < 0) continue;
        const Meeting& meeting = meetings_[static_cast<size_t>(number)];
        const bool counts = rules_.messages_in_launch_order && meeting.expected[0] != meeting.expected.back();
        if (!meeting.message || counts) lists.back().push_back(number);
      }
      for (size_t k = 1; k < lists.back().size(); ++k) ++before[static_cast<size_t>(lists.back()[k])];
    }
    std::vector<size_t> at(lists.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t c = 0; c < lists.size(); ++c) {
        while (at[c] < lists[c].size() && before[static_cast<size_t>(lists[c][at[c]])] == 0) {
          if (++at[c] < lists[c].size()) --before[static_cast<size_t>(lists[c][at[c]])];
          moved = true;
        }
      }
    }
    for (size_t c = 0; c < lists.size(); ++c) {
      if (at[c] >= lists[c].size()) continue;
      for (const Arrival& who : meetings_[static_cast<size_t>(lists[c][at[c]])].arrived) {
        const size_t other = static_cast<size_t>(who.of_class);
        if (other == c || at[other] >= lists[other].size() || lists[other][at[other]] == lists[c][at[c]])
          continue;
        complain(
            fmt::format("the ranks issue collectives in incompatible orders: {} is after {} there, but rank "
                        "{} has them the other way round, directly or through others",
                        name(who.of_class, who.index), call_at(who.of_class, lists[other][at[other]]),
                        class_at(static_cast<int>(c)).first));
        return;
      }
    }
  }

  std::string call_at(int c, int meeting) const {
    for (const Arrival& who : meetings_[static_cast<size_t>(meeting)].arrived) {
      if (who.of_class == c) return fmt::format("#{}", who.index);
    }
    return "another";
  }

  void sum_up() {
    double busy = 0;
    for (size_t c = 0; c < walk_.spans.size(); ++c) {
      const RankClass& one = walk_.classes.list[c];
      for (size_t n = 0; n < walk_.spans[c].size(); ++n) {
        const Span& span = walk_.spans[c][n];
        if (span.end < 0) continue;
        walk_.step_seconds = std::max(walk_.step_seconds, span.end);
        const bool computes =
            lane_of(program_of(one).instructions[n]) == static_cast<size_t>(program::Lane::compute);
        if (computes) busy += (span.end - span.begin) * static_cast<double>(one.size);
      }
    }
    const double whole = walk_.step_seconds * world_.ranks();
    walk_.bubble = whole > 0 ? 1 - busy / whole : 0;
  }

  const World& world_;
  const Price& price_;
  const Rules& rules_;
  Walk walk_;
  std::vector<std::array<Lane, kLanes>> lanes_;  // [class][lane]
  std::deque<std::pair<int, size_t>> awake_;
  std::vector<Meeting> meetings_;
  std::vector<std::vector<int>> meeting_of_;  // [class][instruction]
  std::vector<Line> lines_;
  std::map<Channel, int> number_of_;                           // of a line
  std::vector<std::array<int, kLanes * kAmong * 3>> line_of_;  // [class][kind of call]; -1: not looked up yet
};

}  // namespace

Walk simulate(const World& world, const Price& price, const Rules& rules) {
  return Walker(world, price, rules).run();
}

void check_world(const World& world, const Rules& rules) {
  const Walk walk = simulate(
      world, [](int, const auto&, const auto&) { return 1.0; }, rules);
  LS_ASSERT(walk.problems.empty(), base::join(walk.problems, "; "));
}

}  // namespace lockstep::plan
