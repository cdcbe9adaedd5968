// Which launchers a machine's lowest task can watch: those whose process numbers mean the same here.
#include "lockstep/launch/schedulers/neighbours.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace lockstep::launch {
namespace {

NodePlace task(const std::string& token, pid_t pid) {
  NodePlace place;
  place.card.token = token, place.card.pid = pid, place.card.host = "n1", place.card.machine = "m1";
  place.card.process_space = "pid:[1]";
  return place;
}

TEST(Neighbours, WatchesTasksOfTheSameMachineAndSpace) {
  struct Row {
    const char* name;
    std::function<void(NodeCard& other)> change;
    bool watched;
  };
  const Row rows[] = {
      {"a neighbour", [](NodeCard&) {}, true},
      {"of another machine", [](NodeCard& other) { other.machine = "m2"; }, false},
      {"of another host", [](NodeCard& other) { other.host = "n2"; }, false},
      {"in a container", [](NodeCard& other) { other.process_space = "pid:[2]"; }, false},
      {"of a space that is not known", [](NodeCard& other) { other.process_space = ""; }, false},
      {"without a number", [](NodeCard& other) { other.pid = 0; }, false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    State state;
    state.nodes = {task("own", ::getpid()), task("other", child)};
    row.change(state.nodes[1].card);
    Neighbours neighbours("own");
    neighbours.begin_round(state);
    neighbours.begin_round(state);  // the next one: nothing is watched twice
    std::vector<pollfd> sources;
    neighbours.add_sources(sources);
    EXPECT_EQ(sources.size(), row.watched ? 1u : 0u);
    EXPECT_TRUE(neighbours.take_gone().empty());
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::vector<std::string> gone = neighbours.take_gone();
    EXPECT_EQ(gone, row.watched ? std::vector<std::string>{"other"} : std::vector<std::string>{});
    EXPECT_TRUE(neighbours.take_gone().empty()) << "told once";
  }
}

}  // namespace
}  // namespace lockstep::launch
