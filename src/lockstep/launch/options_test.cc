#include "lockstep/launch/options.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::launch {
namespace {

// Sets a flag by its name, as the command line does.
void set(Words& words, const std::string& name, const std::string& value) {
  for (const Flag& flag : flags()) {
    if (name != flag.name) continue;
    if (flag.text) words.*flag.text = value;
    if (flag.on) words.*flag.on = true;
    return;
  }
  FAIL() << name << " is no flag";
}

using Given = std::vector<std::pair<std::string, std::string>>;

Options read(const Given& given) {
  Words words;
  for (const auto& [name, value] : given) set(words, name, value);
  return read_options(words);
}

TEST(LaunchOptions, DefaultsAreTorchruns) {
  const Options options = read({});
  EXPECT_EQ(options.min_nodes, 1);
  EXPECT_EQ(options.max_nodes, 1);
  EXPECT_EQ(options.nproc, 1);
  EXPECT_EQ(options.max_restarts, 0);
  EXPECT_EQ(options.grace, Duration(30000));
  EXPECT_EQ(options.monitor_interval, Duration(100));
  EXPECT_EQ(options.signals, (std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT}));
}

TEST(LaunchOptions, EveryFlagIsRead) {
  const Options o = read({{"nnodes", "2:4"},
                          {"nproc-per-node", "8"},
                          {"node-rank", "3"},
                          {"master-port", "1234"},
                          {"rdzv-backend", "c10d"},
                          {"rdzv-endpoint", "[::1]:29401"},
                          {"rdzv-id", "job7"},
                          {"rdzv-conf", "join_timeout=9,last_call_timeout=0.5,is_host=true,read_timeout=60"},
                          {"rdzv-secret-file", "secret"},
                          {"max-restarts", "3"},
                          {"monitor-interval", "0.25"},
                          {"grace", "2"},
                          {"role", "trainer"},
                          {"log-dir", "logs"},
                          {"redirects", "3"},
                          {"tee", "0:1,2:3"},
                          {"local-ranks-filter", "0,2"},
                          {"numa-binding", "core-complex"},
                          {"signals-to-handle", "SIGUSR1,TERM"},
                          {"start-method", "fork"},
                          {"event-log-handler", "null"},
                          {"virtual-local-rank", ""}});
  EXPECT_EQ(o.min_nodes, 2);
  EXPECT_EQ(o.max_nodes, 4);
  EXPECT_EQ(o.nproc, 8);
  EXPECT_EQ(o.node_rank, 3);
  EXPECT_EQ(o.master_port, 1234);
  EXPECT_EQ(o.endpoint_host, "::1");
  EXPECT_EQ(o.endpoint_port, 29401);
  EXPECT_EQ(o.run_id, "job7");
  EXPECT_EQ(o.join_timeout, Duration(9000));
  EXPECT_EQ(o.last_call, Duration(500));
  EXPECT_EQ(o.is_host, true);
  EXPECT_EQ(o.secret_file, "secret");
  EXPECT_EQ(o.max_restarts, 3);
  EXPECT_EQ(o.monitor_interval, Duration(250));
  EXPECT_EQ(o.grace, Duration(2000));
  EXPECT_EQ(o.role, "trainer");
  EXPECT_EQ(o.log_dir, "logs");
  EXPECT_EQ(o.redirects.of(5), kBoth);
  EXPECT_EQ(o.tee.of(0), kOut);
  EXPECT_EQ(o.tee.of(1), kNone);
  EXPECT_EQ(o.tee.of(2), kBoth);
  EXPECT_EQ(o.local_ranks_filter, (std::set<int>{0, 2}));
  EXPECT_EQ(o.numa_binding, "core-complex");
  EXPECT_EQ(o.signals, (std::vector<int>{SIGUSR1, SIGTERM}));
  EXPECT_TRUE(o.virtual_local_rank);
}

TEST(LaunchOptions, WrongWordsAreRefusedByName) {
  const std::vector<std::pair<Given, std::string>> rows = {
      {{{"nnodes", "0"}}, "--nnodes \"0\""},
      {{{"nnodes", "4:2"}}, "MIN at most MAX"},
      {{{"nnodes", "1:2:3"}}, "N or MIN:MAX"},
      {{{"nnodes", "two"}}, "--nnodes"},
      {{{"nnodes", "2"}}, "--rdzv-endpoint"},
      {{{"nnodes", "2"}, {"standalone", ""}}, "--standalone"},
      {{{"nproc-per-node", "many"}}, "a number, auto, cpu or gpu"},
      {{{"nproc-per-node", "0"}}, "--nproc-per-node"},
      {{{"nproc-per-node", "99999999999999999999"}}, "--nproc-per-node"},
      {{{"node-rank", "1"}}, "--node-rank"},
      {{{"node-rank", "-1"}}, "--node-rank"},
      {{{"master-port", "65536"}}, "--master-port"},
      {{{"rdzv-backend", "etcd"}}, "etcd is not supported"},
      {{{"rdzv-backend", "etcd-v2"}}, "etcd is not supported"},
      {{{"rdzv-backend", "zookeeper"}}, "c10d or static"},
      {{{"rdzv-endpoint", ":29400"}}, "HOST:PORT"},
      {{{"rdzv-endpoint", "host:port"}}, "--rdzv-endpoint"},
      {{{"rdzv-endpoint", "[::1]29400"}}, "--rdzv-endpoint"},
      {{{"rdzv-endpoint", "a host:1"}}, "--rdzv-endpoint"},
      {{{"rdzv-endpoint", "host:auto"}}, "--rdzv-id"},
      {{{"rdzv-endpoint", ":auto"}, {"rdzv-id", "a"}}, "HOST:PORT"},
      {{{"rdzv-endpoint", "host:29400:auto"}, {"rdzv-id", "a"}}, "HOST:PORT or HOST:auto, not both"},
      {{{"rdzv-endpoint", "[fd00::1]:29400:auto"}, {"rdzv-id", "a"}}, "HOST:PORT or HOST:auto, not both"},
      {{{"rdzv-conf", "join_timeot=3"}}, "join_timeout=..."},
      {{{"rdzv-conf", "join_timeout"}}, "KEY=VALUE"},
      {{{"rdzv-conf", "join_timeout=soon"}}, "seconds"},
      {{{"max-restarts", "-1"}}, "--max-restarts"},
      {{{"monitor-interval", "nan"}}, "--monitor-interval"},
      {{{"grace", "-1"}}, "--grace"},
      {{{"grace", ""}, {"redirects", "4"}}, "--redirects"},
      {{{"tee", "0:1:2"}}, "--tee"},
      {{{"local-ranks-filter", "0,x"}}, "--local-ranks-filter"},
      {{{"numa-binding", "moon"}}, "node, socket or core-complex"},
      {{{"signals-to-handle", "SIGKILL"}}, "--signals-to-handle"},
      {{{"signals-to-handle", "SIGNOPE"}}, "--signals-to-handle"},
      {{{"no-python", ""}, {"module", ""}}, "a module needs python"},
      {{{"start-method", "thread"}}, "spawn, fork or forkserver"},
  };
  for (const auto& [given, says] : rows) {
    try {
      read(given);
      ADD_FAILURE() << given[0].first << " " << given[0].second << " was taken";
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 530);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos)
          << error.what() << " should say " << says;
    }
  }
}

TEST(LaunchOptions, EnvironmentFillsWhatWasNotGiven) {
  Words words;
  words.nnodes = "1";
  take_environment(words, [](const std::string& name) -> std::optional<std::string> {
    if (name == "PET_NNODES") return "7";
    if (name == "PET_NPROC_PER_NODE") return "auto";
    if (name == "PET_MAX_RESTARTS") return "";
    if (name == "PET_STANDALONE") return "1";
    if (name == "PET_NO_PYTHON") return "0";
    return std::nullopt;
  });
  EXPECT_EQ(words.nnodes, "1");
  EXPECT_EQ(words.nproc_per_node, "auto");
  EXPECT_EQ(words.max_restarts, "");
  EXPECT_TRUE(words.standalone);
  EXPECT_FALSE(words.no_python);
}

TEST(LaunchOptions, PortsAreDerivedFromTheIdWhereTheUserAsks) {
  const Options named = read({{"nnodes", "2"}, {"rdzv-endpoint", "[fd00::1]:auto"}, {"rdzv-id", "a"}});
  EXPECT_EQ(named.endpoint_host, "fd00::1");
  EXPECT_EQ(named.agreed_for, "run a");
  EXPECT_EQ(read({{"nnodes", "2"}, {"rdzv-endpoint", "host0"}}).agreed_for, "");
}

TEST(LaunchOptions, StaticNodesMeetAtTheMaster) {
  const Options options = read({{"nnodes", "2"}, {"master-addr", "host0"}, {"master-port", "29555"}});
  EXPECT_EQ(options.endpoint_host, "host0");
  EXPECT_EQ(options.endpoint_port, 29555);
  EXPECT_EQ(options.master_port, 0) << "the store has that port: ranks need another";
  EXPECT_EQ(read({{"master-port", "29555"}}).master_port, 29555);
}

TEST(LaunchOptions, CountsRanks) {
  EXPECT_EQ(local_ranks(read({{"nproc-per-node", "3"}}), 8, 2), 3);
  EXPECT_EQ(local_ranks(read({{"nproc-per-node", "auto"}}), 8, 2), 8);
  EXPECT_EQ(local_ranks(read({{"nproc-per-node", "auto"}}), 0, 2), 2);
  EXPECT_EQ(local_ranks(read({{"nproc-per-node", "cpu"}}), 8, 2), 2);
  EXPECT_EQ(local_ranks(read({{"nproc-per-node", "gpu"}}), 8, 2), 8);
  EXPECT_THROW(local_ranks(read({{"nproc-per-node", "gpu"}}), 0, 2), base::ConfigError);
}

TEST(LaunchOptions, PythonIsForScripts) {
  base::TemporaryFolder folder;
  const std::string script = folder.write("train.py", ""), text = folder.write("train", "");
  const std::string program = folder.write("program", "#!/bin/sh\n"),
                    python = folder.write("bin/python3", "");
  ::chmod(program.c_str(), 0755);
  ::chmod(python.c_str(), 0755);
  const Variable variable = [&](const std::string& name) -> std::optional<std::string> {
    return name == "PATH" ? std::optional(folder.path() + "/bin:/bin") : std::nullopt;
  };
  using Command = std::vector<std::string>;
  EXPECT_EQ(rank_command(read({}), {script, "--lr", "1"}, variable),
            (Command{python, "-u", script, "--lr", "1"}));
  EXPECT_EQ(rank_command(read({}), {text}, variable), (Command{python, "-u", text}));
  EXPECT_EQ(rank_command(read({{"module", ""}}), {"my.train"}, variable),
            (Command{python, "-u", "-m", "my.train"}));
  EXPECT_EQ(rank_command(read({}), {program, "x"}, variable), (Command{program, "x"}));
  EXPECT_EQ(rank_command(read({{"run-path", ""}, {"no-python", ""}}), {program}, variable),
            (Command{python, "-u", program}));
  EXPECT_EQ(rank_command(read({}), {"sh", "-c"}, variable), (Command{"/bin/sh", "-c"}));
  const std::vector<std::pair<Options, Command>> wrong = {{read({}), {}},
                                                          {read({}), {folder.path() + "/no.py"}},
                                                          {read({}), {"no-such-program"}},
                                                          {read({}), {folder.path()}},
                                                          {read({{"no-python", ""}}), {text}}};
  for (const auto& [options, command] : wrong) {
    EXPECT_THROW(rank_command(options, command, variable), base::ConfigError)
        << (command.empty() ? "" : command[0]);
  }
}

}  // namespace
}  // namespace lockstep::launch
