// Can these ranks share memory? Tried, not guessed: containers, users and hardened kernels say no in many
// ways.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines.h"
#include "lockstep/comm/shm/shm_segment.h"
#include "lockstep/comm/store/store_timeout.h"

namespace lockstep::comm {
namespace {

struct Member {
  std::string boot, segment;
};

// One member's word, "boot id" and "segment" on a line each, or the reason why it has none.
std::string introduce(const SharedSegment& probe) { return boot_id() + "\n" + probe.address().to_text(); }

Member parse(const std::string& text) {
  const size_t cut = text.find('\n');
  return cut == std::string::npos ? Member{} : Member{text.substr(0, cut), text.substr(cut + 1)};
}

std::string try_to_open(const std::vector<Member>& members, const std::vector<int>& ranks, int self) {
  for (size_t q = 0; q < members.size(); ++q) {
    SegmentAddress address;
    if (ranks[q] == self) continue;
    if (!SegmentAddress::from_text(members[q].segment, &address)) {
      return fmt::format("rank {} cannot create shared memory", ranks[q]);
    }
    try {
      SharedSegment::open(address);
    } catch (const base::CommError& error) {
      return fmt::format("rank {} cannot map rank {}'s memory ({})", self, ranks[q], error.what());
    }
  }
  return "";
}

class Survey {
 public:
  Survey(const GroupOptions& options, Store& store)
      : options_(options), store_(store), prefix_("probe/" + options.name + "/") {}

  void say(const std::string& what, const std::string& value) { store_.set(key(what, options_.self), value); }
  std::string ask(const std::string& what, int rank) {
    try {
      return store_.get(key(what, rank), options_.timeout);
    } catch (const StoreTimeoutError&) {
      throw base::CommError(
          521, fmt::format("cannot create group {}: rank {} did not join within {:g} s", options_.name, rank,
                           static_cast<double>(options_.timeout.count()) / 1000));
    }
  }

 private:
  std::string key(const std::string& what, int rank) const {
    return fmt::format("{}{}/{}", prefix_, what, rank);
  }

  const GroupOptions& options_;
  Store& store_;
  std::string prefix_;
};

}  // namespace

std::string why_not_shm(const GroupOptions& options, Store& store) {
  Survey survey(options, store);
  SharedSegment probe;
  try {
    probe = SharedSegment::create("lockstep-probe", SharedSegment::kHeaderBytes);
  } catch (const base::CommError&) {
    // The address stays empty, which says so to the others.
  }
  survey.say("member", introduce(probe));
  const int first = options.ranks[0];
  // The first looks whether all are on one host, so that large worlds do not ask everyone about everyone.
  if (options.self == first) {
    std::string apart;
    for (const int rank : options.ranks) {
      const Member member = parse(survey.ask("member", rank));
      if (apart.empty() && (member.boot.empty() || member.boot != boot_id())) {
        apart = fmt::format("rank {} is on a different host from rank {}", rank, first);
      }
    }
    survey.say("apart", apart);
  }
  if (const std::string apart = survey.ask("apart", first); !apart.empty()) return apart;

  std::vector<Member> members;
  for (const int rank : options.ranks) members.push_back(parse(survey.ask("member", rank)));
  survey.say("verdict", try_to_open(members, options.ranks, options.self));
  std::string reason;
  for (const int rank : options.ranks) {
    const std::string verdict = survey.ask("verdict", rank);
    if (reason.empty()) reason = verdict;
  }
  return reason;  // everyone has tried by now: the probes may go
}

}  // namespace lockstep::comm
