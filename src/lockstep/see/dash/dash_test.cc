// The dashboard as a browser or a script asks it: who may look, what is found, what is damaged.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/file.h"
#include "lockstep/base/ring.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/see/dash/dash.h"
#include "lockstep/see/dash/page.h"
#include "lockstep/see/timeline.h"
#include "lockstep/watch/recorder.h"

namespace lockstep::see {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kLongAgo = "2026-01-02T03:04:05.500Z";

std::string line_of(int64_t step, double loss) {
  return fmt::format(R"({{"loss":{},"step":{},"time":"{}","tokens":{},"lr":null}})", loss, step, kLongAgo,
                     step * 10) +
         "\n";
}
std::string event_line(const char* name, int64_t step, const std::string& time = kLongAgo) {
  return json{{"event", name}, {"step", step}, {"why", "because"}, {"time", time}}.dump() + "\n";
}

struct Runs {
  base::TemporaryFolder folder;
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(folder.path() + "/" + path).parent_path());
    std::ofstream(folder.path() + "/" + path) << text;
  }
};

http::Request get(const std::string& target) {
  return *http::parse_request("GET " + target + " HTTP/1.1\r\n\r\n");
}
json ask(Api& api, const std::string& target) { return json::parse(api.answer(get(target)).body); }

TEST(Catalogue, FindsRunsAndTheirStates) {
  const Runs runs;
  struct Row {
    const char *name, *events, *state;
  };
  const std::string now = base::utc_timestamp();
  const std::string fresh = event_line("first_step", 1, now);
  const Row rows[] = {{"done", "finished", "finished"},   {"ill", "rank_failed", "failed"},
                      {"hung", "hang", "failed"},         {"asked", "preempted", "preempted"},
                      {"quiet", "first_step", "stopped"}, {"deep/er/still", "finished", "finished"}};
  for (const Row& row : rows) {
    runs.write(std::string(row.name) + "/metrics.jsonl", line_of(1, 5) + line_of(7, 4.5));
    runs.write(std::string(row.name) + "/events.jsonl", event_line("start", 0) + event_line(row.events, 7));
    runs.write(std::string(row.name) + "/config.toml", "[run]\nsteps = 9\n[model]\nfamily = \"gpt2\"\n");
  }
  runs.write("alive/metrics.jsonl", line_of(1, 5));
  runs.write("alive/events.jsonl", fresh);
  runs.write("new/config.toml", "not [toml");
  runs.write("too/deep/to/be/metrics.jsonl", line_of(1, 1));
  runs.write("no run/readme", "");
  Catalogue catalogue(runs.folder.path());
  catalogue.scan();
  for (const Row& row : rows) {
    const auto run = catalogue.find(row.name);
    ASSERT_TRUE(run) << row.name;
    EXPECT_EQ(run->state, row.state) << row.name;
    EXPECT_EQ(run->step, 7);
    EXPECT_EQ(run->steps, 9);
    EXPECT_EQ(run->loss, 4.5);
    EXPECT_EQ(run->about, "gpt2");
  }
  EXPECT_EQ(catalogue.find("alive")->state, "training");
  EXPECT_EQ(catalogue.find("new")->state, "stopped");
  EXPECT_EQ(catalogue.changed_since(0).size(), std::size(rows) + 2);
  for (const char* name : {"", ".", "..", "../..", "done/..", "deep", "no run", "too/deep"})
    EXPECT_FALSE(catalogue.find(name)) << name;

  // Only what has changed is told again.
  const uint64_t version = catalogue.version();
  catalogue.scan();
  EXPECT_TRUE(catalogue.changed_since(version).empty());
  std::ofstream(runs.folder.path() + "/quiet/metrics.jsonl", std::ios::app) << line_of(8, 4);
  fs::remove_all(runs.folder.path() + "/ill");
  catalogue.scan();
  const auto changed = catalogue.changed_since(version);
  ASSERT_EQ(changed.size(), 2U);
  EXPECT_TRUE(changed[0].name == "ill" && changed[0].gone);
  EXPECT_TRUE(changed[1].name == "quiet" && changed[1].step == 8);
  EXPECT_FALSE(catalogue.find("ill"));
}

// A run that wrote a moment ago: whoever holds its lock says whether it lives.
TEST(Catalogue, ARunThatWasKilledIsSeenAtOnce) {
  const Runs runs;
  const std::string now = base::utc_timestamp();
  for (const char* name : {"killed", "elsewhere", "odd"})
    runs.write(std::string(name) + "/events.jsonl", event_line("first_step", 1, now)),
        runs.write(std::string(name) + "/metrics.jsonl", line_of(1, 5));
  runs.write("elsewhere/.lock", "process 999999999 on a-host-that-is-not-this-one\n");
  runs.write("odd/.lock", "process x on " + base::host_name());
  int locked[2];
  ASSERT_EQ(::pipe(locked), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const base::FolderLock lock(runs.folder.path() + "/killed");
    if (::write(locked[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(locked[0], &byte, 1), 1);
  Catalogue catalogue(runs.folder.path());
  catalogue.scan();
  for (const char* name : {"killed", "elsewhere", "odd"}) EXPECT_EQ(catalogue.find(name)->state, "training");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  catalogue.scan();
  EXPECT_EQ(catalogue.find("killed")->state, "stopped");
  EXPECT_EQ(catalogue.find("elsewhere")->state, "training");
  for (const int end : locked) ::close(end);
}

// The page knows it by a name that JSON can hold.
TEST(Catalogue, ANameThatIsNoUtf8) {
  const Runs runs;
  runs.write(
      "b\xff"
      "d/metrics.jsonl",
      line_of(1, 5));
  Catalogue catalogue(runs.folder.path());
  catalogue.scan();
  ASSERT_TRUE(
      catalogue.find("b\xef\xbf\xbd"
                     "d"));
  EXPECT_EQ(catalogue
                .find("b\xef\xbf\xbd"
                      "d")
                ->folder,
            runs.folder.path() +
                "/b\xff"
                "d");
  EXPECT_FALSE(
      catalogue.find("c\xef\xbf\xbd"
                     "d"));
}

TEST(Catalogue, OneRunAndNoFolder) {
  const Runs runs;
  runs.write("one/metrics.jsonl", line_of(3, 2));
  Catalogue one(runs.folder.path() + "/one"), none(runs.folder.path() + "/none");
  one.scan(), none.scan();
  EXPECT_EQ(one.find(".")->step, 3);
  EXPECT_TRUE(none.changed_since(0).empty());
  EXPECT_NE(none.problem(), "");
}

TEST(Api, CurvesAreThinnedAndExactWhenZoomed) {
  const Runs runs;
  std::string lines;
  for (int step = 1; step <= 5000; ++step) lines += line_of(step, step == 3333 ? 99.5 : 1.0 / step);
  runs.write("a/metrics.jsonl", "garbage\n" + lines);
  runs.write("a/events.jsonl", event_line("start", 0) + event_line("hang", 2500));
  runs.write("empty/metrics.jsonl", "");
  runs.write("bare/config.toml", "");
  Api api(runs.folder.path());
  api.catalogue().scan();
  json answer =
      ask(api, "/api/series?run=a&run=empty&run=bare&run=none&metric=loss&metric=nothing&points=200");
  ASSERT_EQ(answer["lines"].size(), 1U);
  json line = answer["lines"][0];
  EXPECT_EQ(line["total"], 5000);
  EXPECT_EQ(line["exact"], false);
  EXPECT_LE(line["x"].size(), 210U);
  EXPECT_NE(std::find(line["y"].begin(), line["y"].end(), 99.5), line["y"].end()) << "the spike is gone";
  EXPECT_EQ(answer["metrics"], json({"loss", "tokens"}));
  EXPECT_EQ(answer["marks"].size(), 2U);
  EXPECT_EQ(answer["problems"].size(), 2U);  // bare has no metrics, none is no run

  answer = ask(api, "/api/series?run=a&metric=loss&x=tokens&from=33300&to=33400&points=200&smooth=0.5");
  line = answer["lines"][0];
  EXPECT_EQ(line["exact"], true);
  EXPECT_EQ(line["x"].size(), 13U);  // eleven, and one on each side
  EXPECT_EQ(line["raw"]["y"][4], 99.5);
  EXPECT_LT(line["y"][4], 60);
  EXPECT_TRUE(answer["marks"].empty());
  for (const char* wrong : {"smooth=1", "smooth=x", "x=y", "points=1e9", "from=nan"})
    EXPECT_EQ(api.answer(get(std::string("/api/series?run=a&") + wrong)).status, 400) << wrong;
}

TEST(Api, DetailsAndDifferences) {
  const Runs runs;
  runs.write("a/metrics.jsonl", line_of(1, 2) + "{\"step\":2,\"loss\":null}\nnonsense\n");
  runs.write("a/config.toml", "[run]\nname = \"a\"\n[optim]\nlr = 0.001\nbetas = [\"x\", \"y\"]\n");
  runs.write("a/record.json", "{\"build\":{\"version\":\"1\"}}");
  runs.write("b/metrics.jsonl", line_of(1, 2));
  runs.write("b/config.toml", "[run]\nname = \"a\"\n[optim]\nlr = 0.002\nnew_key = true\n");
  runs.write("b/record.json", "{");
  Api api(runs.folder.path());
  api.catalogue().scan();
  const json a = ask(api, "/api/run?run=a");
  EXPECT_EQ(a["last"]["loss"], 2);
  EXPECT_EQ(a["rows"], 2);
  EXPECT_EQ(a["left_out"], 1);
  EXPECT_EQ(a["record"]["build"]["version"], "1");
  EXPECT_TRUE(ask(api, "/api/run?run=b")["record"].is_null());
  const json differences = ask(api, "/api/compare?run=a&run=b")["keys"];
  EXPECT_EQ(differences.dump(),
            R"([{"key":"optim.lr","values":["0.001","0.002"]},{"key":"optim.betas","values":[)"
            R"("x, y",""]},{"key":"optim.new_key","values":["","true"]}])");
  for (const char* none :
       {"/api/run?run=../a", "/api/run", "/api/run?run=%2Fetc", "/api/timeline?run=c", "/api/x"})
    EXPECT_EQ(api.answer(get(none)).status, 404) << none;
}

TEST(Api, TheReceiptIsForecastAgainstActual) {
  const std::string forecast =
      R"({"machine":"a box","measured":true,"step_ms":90,"memory_gib":3,)"
      R"("parts":{"norms":20,"products":70,"bubble":0},"memory":{"tape":1,"weights":2}})";
  const std::string first = R"({"step":1,"step_ms":900,"mem_gib":2})"
                            "\n";
  const std::string others = R"({"step":2,"step_ms":100,"mem_gib":4})"
                             "\n"
                             R"({"step":3,"eval_loss":2})"
                             "\n"
                             R"({"step":4,"step_ms":100,"mem_gib":null})"
                             "\n";
  struct Row {
    const char* run;
    std::string forecast, metrics, problem;  // no problem and no forecast: no receipt
  };
  const Row rows[] = {{"good", forecast, first + others, ""},
                      {"trains", "", first + others, ""},
                      {"untimed", forecast, line_of(1, 2), "no timed step"},
                      {"torn", forecast.substr(0, 30), first, "is damaged"},
                      {"list", "[1]", first, "is damaged"},
                      {"typed", R"({"step_ms":1,"memory_gib":1,"machine":7})", first, ""},  // only a name
                      {"zero", R"({"step_ms":0,"memory_gib":0,"parts":[1],"memory":{"a":"b"}})", first, ""}};
  const Runs runs;
  for (const Row& row : rows) {
    runs.write(std::string(row.run) + "/metrics.jsonl", row.metrics);
    if (!row.forecast.empty()) runs.write(std::string(row.run) + "/forecast.json", row.forecast);
  }
  Api api(runs.folder.path());
  api.catalogue().scan();
  for (const Row& row : rows) {
    const json receipt = ask(api, std::string("/api/run?run=") + row.run)["receipt"];
    EXPECT_EQ(receipt.is_null(), row.forecast.empty()) << row.run;
    if (receipt.is_null()) continue;
    const std::string problem = receipt.value("problem", "");
    EXPECT_EQ(problem.empty(), row.problem.empty()) << row.run << ": " << problem;
    EXPECT_NE(problem.find(row.problem), std::string::npos) << row.run << ": " << problem;
  }
  const json good = ask(api, "/api/run?run=good")["receipt"];
  EXPECT_EQ(good["steps"], 2);  // without the first, which warms up
  EXPECT_EQ(good["actual_step_ms"], 100);
  EXPECT_NEAR(good["step_error"].get<double>(), -0.1, 1e-9);
  EXPECT_EQ(good["actual_memory_gib"], 4);
  EXPECT_NEAR(good["memory_error"].get<double>(), -0.25, 1e-9);
  EXPECT_EQ(good["parts"].dump(), R"([["products",70.0],["norms",20.0]])");
  EXPECT_EQ(good["memory"].dump(), R"([["weights",2.0],["tape",1.0]])");
  EXPECT_NE(good["why"], "");
}

TEST(Dash, OnlyWithTheToken) {
  const Runs runs;
  runs.write("a/metrics.jsonl", line_of(1, 2));
  Dash dash({.root = runs.folder.path(), .token = "secret", .port = 99});
  const auto status = [&](const std::string& target, const std::string& header) {
    return dash.answer(*http::parse_request("GET " + target + " HTTP/1.1\r\n" + header + "\r\n")).status;
  };
  struct Row {
    const char *target, *header;
    int status;
  };
  const Row rows[] = {{"/", "", 401},
                      {"/?token=wrong!", "", 401},
                      {"/?token=secret", "", 303},
                      {"/api/runs?token=secret", "", 401},
                      {"/api/runs", "Cookie: lockstep_dash_99=secret\r\n", 200},
                      {"/api/runs", "Cookie: lockstep_dash_98=secret\r\n", 401},
                      {"/api/runs", "Authorization: Bearer secret\r\n", 200},
                      {"/api/runs", "Authorization: Bearer secre\r\n", 401},
                      {"/dash.css", "", 401},
                      {"/dash.css", "Cookie: x=1; lockstep_dash_99=secret\r\n", 200},
                      {"/../page.cc", "Cookie: lockstep_dash_99=secret\r\n", 404}};
  for (const Row& row : rows)
    EXPECT_EQ(status(row.target, row.header), row.status) << row.target << row.header;
  EXPECT_NE(new_token(), new_token());
  EXPECT_EQ(new_token().size(), 32U);
}

// Nothing on the page comes from elsewhere, and every file that it names is there.
TEST(Dash, ThePageStandsAlone) {
  EXPECT_GE(page_files().size(), 8U);
  for (const PageFile& file : page_files()) {
    const std::string text(file.text);
    if (!file.path.ends_with(".svg")) {
      EXPECT_EQ(text.find("http:"), std::string::npos) << file.path;
    }
    EXPECT_EQ(text.find("https:"), std::string::npos) << file.path;
    EXPECT_EQ(text.find("innerHTML"), std::string::npos) << file.path;
    for (size_t at = text.find("from \"./"); at != std::string::npos; at = text.find("from \"./", at + 1)) {
      const std::string name = text.substr(at + 7, text.find('"', at + 6) - at - 7);
      EXPECT_NE(find_page_file(name), nullptr) << name;
    }
  }
  ASSERT_NE(find_page_file("/"), nullptr);
}

// A ring that has come round holds the end of some step first: that one is not whole, whatever came after. An
// evaluation's marks, which have step 0, are neither its first step nor anybody's.
TEST(Timeline, LeavesOutTheStepThatIsCutAndEvaluations) {
  constexpr int64_t kSteps = 9, kMarks = 10;
  for (const int evaluated_behind : {-1, 4, 8}) {
    SCOPED_TRACE(evaluated_behind);
    const Runs runs;
    fs::create_directories(runs.folder.path() + "/trace");
    base::RingWriter ring(watch::ring_path(runs.folder.path(), 0), {.rank = 0, .entries = 64});
    const auto mark = [&](int64_t step, int count) {
      for (int i = 0; i < count; ++i) {
        const uint64_t ticket = ring.enqueue({.step = step, .instruction = 0, .op = 1});
        ring.start(ticket);
        ring.finish(ticket);
      }
    };
    for (int64_t step = 0; step < kSteps; ++step) {
      mark(step, kMarks);
      if (step == evaluated_behind) mark(0, 5);
    }
    const Timeline timeline = timeline_of_rings(runs.folder.path(), {.steps = 16});
    std::map<int64_t, int> marks;
    for (const LaneTimes& lane : timeline.lanes) {
      for (const TimeSpan& span : lane.spans) ++marks[span.step];
    }
    const int64_t whole = evaluated_behind < 0 ? 6 : 5;  // 64 marks: four or nine of the step before are left
    EXPECT_EQ(static_cast<int64_t>(marks.size()), whole);
    EXPECT_EQ(timeline.first_step, kSteps - whole + 1);
    EXPECT_EQ(timeline.last_step, kSteps);
    for (const auto& [step, count] : marks) EXPECT_EQ(count, kMarks) << step;
  }
}

TEST(Timeline, ComesFromTheMarksOfWholeSteps) {
  const Runs runs;
  fs::create_directories(runs.folder.path() + "/trace");
  for (int rank = 0; rank < 2; ++rank) {
    base::RingWriter ring(watch::ring_path(runs.folder.path(), rank), {.rank = rank, .entries = 64});
    for (int64_t step = 0; step < 4; ++step) {
      const uint64_t ticket = ring.enqueue({.step = step, .instruction = 0, .op = 1});
      ring.start(ticket);
      if (step < 3 || rank == 0) ring.finish(ticket);  // rank 1 is inside its fourth
    }
    const json names{{"pid", ::getpid()},
                     {"groups", json::array()},
                     {"instructions", {"no such verb"}},
                     {"lanes", {"compute"}}};
    std::ofstream(watch::names_path(runs.folder.path(), rank)) << names.dump();
  }
  const Timeline timeline = timeline_of_rings(runs.folder.path(), {.steps = 2});
  EXPECT_EQ(timeline.problem, "");
  EXPECT_EQ(timeline.first_step, 2);
  EXPECT_EQ(timeline.last_step, 3);
  ASSERT_EQ(timeline.lanes.size(), 2U);
  EXPECT_EQ(timeline.lanes[1].rank, 1);
  EXPECT_EQ(timeline.lanes[1].spans.size(), 2U);
  EXPECT_EQ(timeline.lanes[0].spans[0].begin, 0);
  EXPECT_NE(timeline_of_rings(runs.folder.path() + "/none", {}).problem, "");

  runs.write("trace/profile.json", R"({"traceEvents":[
    {"name":"forward b0","ph":"X","ts":5,"dur":2,"pid":0,"tid":1,"args":{"step":7}},
    {"name":"kernel","ph":"X","ts":5,"dur":1,"pid":0,"tid":2},
    {"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"lane compute"}}]})");
  const Timeline profile = timeline_of_profile(runs.folder.path(), {});
  ASSERT_EQ(profile.lanes.size(), 1U);
  EXPECT_EQ(profile.lanes[0].name, "compute");
  EXPECT_EQ(profile.lanes[0].spans.size(), 1U);
  for (const char* wrong : {"", "{", "[]", R"({"traceEvents":[1]})", R"({"traceEvents":[{"args":3}]})"}) {
    runs.write("trace/profile.json", wrong);
    EXPECT_NE(timeline_of_profile(runs.folder.path(), {}).problem, "") << wrong;
  }
}

}  // namespace
}  // namespace lockstep::see
