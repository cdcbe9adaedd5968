// Rows of runs that grow, restart or are damaged; series; pictures and files made of them.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/see/flat_object.h"
#include "lockstep/see/histogram_log.h"
#include "lockstep/see/patiently.h"
#include "lockstep/see/prometheus.h"
#include "lockstep/see/proto.h"
#include "lockstep/see/ranks_now.h"
#include "lockstep/see/run_events.h"
#include "lockstep/see/run_log.h"
#include "lockstep/see/sink.h"
#include "lockstep/see/svg.h"
#include "lockstep/see/ticks.h"

namespace lockstep::see {
namespace {

std::string line_of(int64_t step, double loss) {
  return fmt::format(R"({{"loss":{},"step":{},"time":"2026-01-02T03:04:05.500Z","tokens":{},"mfu":null}})",
                     loss, step, step * 10) +
         "\n";
}

void append(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::app) << text; }

TEST(RunLog, ReadsWhatIsNewAndOnlyWholeLines) {
  const base::TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  folder.write("metrics.jsonl", line_of(1, 5) + "not json\n[1]\n{\"step\":null}\n" + line_of(2, 4));
  RunLog log(folder.path() + "/");
  EXPECT_TRUE(log.poll());
  ASSERT_EQ(log.rows().size(), 2U);
  EXPECT_EQ(log.left_out(), 3);
  EXPECT_EQ(log.rows()[1].step, 2);
  EXPECT_DOUBLE_EQ(log.rows()[0].seconds, 1767323045.5);
  EXPECT_EQ(log.rows()[0].values, (std::vector<std::pair<std::string, double>>{{"loss", 5}, {"tokens", 10}}));
  EXPECT_FALSE(log.poll());

  const std::string third = line_of(3, 3);
  append(path, third.substr(0, 20));  // the run is in the middle of a line
  EXPECT_FALSE(log.poll());
  append(path, third.substr(20));
  EXPECT_TRUE(log.poll());
  EXPECT_EQ(log.fresh(), 2U);
  EXPECT_FALSE(log.rewound_to());
  ASSERT_EQ(log.rows().size(), 3U);
  std::filesystem::remove(path);
  EXPECT_NE(base::refusal(761, [&] { log.poll(); }), "");
  EXPECT_NE(base::refusal(760, [&] { RunLog(folder.path() + "/other"); }), "");
}

// Lines come off the end and others take their place: shorter, longer or as long as those before.
TEST(RunLog, ARestartIsSeen) {
  for (const int again : {2, 5, 9}) {
    SCOPED_TRACE(again);
    const base::TemporaryFolder folder;
    std::string before, after;
    for (int step = 1; step <= 5; ++step) before += line_of(step, 10 - step);
    for (int step = 1; step <= again; ++step) after += line_of(step, step <= 3 ? 10 - step : 1.5);
    folder.write("metrics.jsonl", before);
    RunLog log(folder.path());
    log.poll();
    folder.write("metrics.jsonl", after);
    EXPECT_TRUE(log.poll());
    EXPECT_EQ(log.rewound_to(), std::min(3, again));
    EXPECT_EQ(log.fresh(), static_cast<size_t>(std::min(3, again)));
    EXPECT_EQ(log.rows().size(), static_cast<size_t>(again));
  }
}

// The quick reader takes what runs write, and what it takes is what the JSON parser says.
TEST(RunLog, PlainLinesAreReadQuicklyAndOthersRightly) {
  struct Line {
    const char* text;
    bool quick;
    bool row;
  };
  const Line lines[] = {
      {R"({"step":3,"loss":2.5,"time":"2026-01-02T03:04:05.500Z","mfu":null,"ok":true})", true, true},
      {R"( { "loss" : -1.5e-3 , "step" : 3 } )", true, true},
      {R"({"step":3,"note":"a\"b","loss":2})", false, true},
      {R"({"step":3,"inner":{"step":4,"loss":9},"loss":2})", false, true},
      {R"({"step":3,"list":[1,{"loss":3}],"loss":2})", false, true},
      {R"({"step":3.0,"loss":2})", false, false},
      {R"({"step":3,"loss":NaN})", false, false},
      {R"({"step":3,"loss":01})", false, false},
      {R"({"step":3,"loss":+1})", false, false},
      {R"({"step":3,"loss":1.})", false, false},
      {R"({"step":3,"loss":.5})", false, false},
      {R"({"step":3,"loss":1e999})", false, false},
      {R"({"step":3,"loss":2)", false, false},
      {R"({"step":3,"loss":2}x)", false, false},
      {R"({"loss":2})", false, false},
      {R"({})", false, false},
      {"", false, false},
  };
  for (const Line& line : lines) {
    const auto quick = read_flat_row(line.text);
    const auto row = parse_row(line.text);
    EXPECT_EQ(quick.has_value(), line.quick) << line.text;
    ASSERT_EQ(row.has_value(), line.row) << line.text;
    const nlohmann::json json = nlohmann::json::parse(line.text, nullptr, false);
    if (!row) continue;
    EXPECT_EQ(row->step, 3) << line.text;
    ASSERT_EQ(row->values.size(), 1U) << line.text;
    EXPECT_EQ(row->values[0].second, json["loss"].get<double>()) << line.text;
  }
  EXPECT_EQ(unix_seconds("2026-01-02T03:04:05.500Z"), 1767323045.5);
  for (const char* wrong :
       {"", "2026-01-02", "2026-13-02T03:04:05Z", "2026-02-30T03:04:05Z", "yesterday, at noon I said"})
    EXPECT_EQ(unix_seconds(wrong), 0) << wrong;
}

TEST(RunLog, KnowsTheEnd) {
  const base::TemporaryFolder folder;
  folder.write("metrics.jsonl", line_of(1, 5));
  const RunLog log(folder.path());
  EXPECT_FALSE(log.finished());
  folder.write("events.jsonl", "{\"event\":\"start\"}\n");
  EXPECT_FALSE(log.finished());
  folder.write("events.jsonl", "{\"event\":\"start\"}\n{\"event\":\"finished\"}\n");
  EXPECT_TRUE(log.finished());
}

TEST(Series, ThinnedKeepsEndsAndExtremes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::vector<Point> points;
  for (int i = 0; i < 100000; ++i)
    points.push_back({static_cast<double>(i), static_cast<double>(random() % 1000)});
  points[777].y = 5000, points[55555].y = -1;
  const std::vector<Point> thin = thinned(points, 400);
  EXPECT_LE(thin.size(), 400U);
  EXPECT_GE(thin.size(), 300U);
  EXPECT_EQ(thin.front().x, 0);
  EXPECT_EQ(thin.back().x, 99999);
  const auto by_y = [](const Point& a, const Point& b) { return a.y < b.y; };
  EXPECT_EQ(std::max_element(thin.begin(), thin.end(), by_y)->x, 777);
  EXPECT_EQ(std::min_element(thin.begin(), thin.end(), by_y)->x, 55555);
  EXPECT_TRUE(
      std::is_sorted(thin.begin(), thin.end(), [](const Point& a, const Point& b) { return a.x < b.x; }));
}

TEST(Series, SmoothingBeginsAtTheFirstValue) {
  const std::vector<Point> points{{0, 4}, {1, 4}, {2, 8}};
  const std::vector<Point> smooth = smoothed(points, 0.5);
  EXPECT_DOUBLE_EQ(smooth[0].y, 4);
  EXPECT_DOUBLE_EQ(smooth[1].y, 4);
  EXPECT_DOUBLE_EQ(smooth[2].y, (4 * 0.125 + 4 * 0.25 + 8 * 0.5) / 0.875);
}

TEST(Ticks, AreRoundNumbersInside) {
  struct Row {
    double low, high;
    std::vector<std::string> labels;
  };
  const Row rows[] = {{0, 8, {"0", "2", "4", "6", "8"}},
                      {2.31, 2.47, {"2.35", "2.40", "2.45"}},
                      {0, 52000, {"0", "20k", "40k"}},
                      {3, 3, {"3.00"}},
                      {-1, 1, {"-1.0", "-0.5", "0", "0.5", "1.0"}}};
  for (const Row& row : rows) {
    std::vector<std::string> labels;
    for (const Tick& tick : ticks(row.low, row.high, 4)) labels.push_back(tick.label);
    EXPECT_EQ(labels, row.labels) << row.low << " to " << row.high;
  }
  std::vector<std::string> labels;
  for (const Tick& tick : log_ticks(0.9, 20000, 6)) labels.push_back(tick.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"1", "10", "100", "1000", "10k"}));
}

TEST(Svg, NamesAreNoMarkupAndNothingIsDrawnPlainly) {
  const Series bad{.name = "<b>\"&", .points = {{1, 2}, {2, std::nan("")}, {3, 4}}};
  const Series good{.name = "good", .points = {{1, 1}, {2, 3}}};
  const std::string picture = draw_svg({{.title = "loss", .series = {bad, good}, .faint = {bad}}}, {});
  EXPECT_NE(picture.find("&lt;b&gt;&quot;&amp;"), std::string::npos);
  EXPECT_EQ(picture.find("<b>"), std::string::npos);
  EXPECT_EQ(picture.find("nan"), std::string::npos);
  EXPECT_NE(draw_svg({{.title = "loss", .series = {}, .faint = {}}}, {}).find("nothing to draw"),
            std::string::npos);
  const std::string logs =
      draw_svg({{.title = "x", .series = {{"a", {{0, -1}, {1, 0}}}}, .faint = {}}}, {.log_y = true});
  EXPECT_NE(logs.find("nothing to draw"), std::string::npos);
}

TEST(Csv, AFileIsWrittenAgainAfterARestart) {
  const base::TemporaryFolder folder;
  const std::string path = folder.path() + "/out.csv";
  const auto sink =
      open_csv(path, {.name = "a", .folder = {}, .recipe = {}, .keys = {}, .metrics = {"loss", "eval_loss"}});
  for (int step = 1; step <= 3; ++step)
    sink->row({.step = step, .seconds = 2, .values = {{"loss", 0.5 * step}}});
  sink->rewind(1);
  sink->row({.step = 2, .seconds = 3, .values = {{"eval_loss", 7}}});
  sink->flush();
  EXPECT_EQ(base::read_file(path), "step,time,loss,eval_loss\n1,2.000,0.5,\n2,3.000,,7\n");
  // A run that is followed may be asked for before its first evaluation; names are its user's.
  sink->row({.step = 3, .seconds = 4, .values = {{"loss", 2}, {"acc, \"top\" 1", 8}}});
  sink->flush();
  EXPECT_EQ(base::read_file(path),
            "step,time,loss,eval_loss,\"acc, \"\"top\"\" 1\"\n1,2.000,0.5,,\n2,3.000,,7,\n3,4.000,2,,8\n");
  EXPECT_NE(base::refusal(763, [&] { open_csv(folder.path() + "/no/out.csv", {}); }), "");
}

// A number that is none stands as a word; both readers of lines see it.
TEST(MetricTable, TellsMetricsThatEndInNoNumber) {
  MetricTable table;
  for (const char* line : {R"({"step":1,"loss":2.5,"lr":1})", R"({"step":2,"loss":"nan","lr":1})",
                           R"({"step":3, "loss":"inf", "grad_norm":"nan", "note":"a \" quote"})"})
    table.add(*parse_row(line));
  EXPECT_EQ(table.last("loss"), 2.5);
  EXPECT_EQ(table.last_word("loss"), "inf");
  EXPECT_EQ(table.last_word("grad_norm"), "nan");
  EXPECT_EQ(table.last_word("lr"), "");
  EXPECT_EQ(table.last_word("note"), "");
  table.add(*parse_row(R"({"step":4,"loss":2.25})"));
  EXPECT_EQ(table.last_word("loss"), "");
  EXPECT_EQ(table.last_words().size(), 1u);
}

TEST(Patiently, GivesAnswersErrorsAndUp) {
  EXPECT_EQ(patiently("x", [] { return 3; }), 3);
  EXPECT_THROW(patiently("x", []() -> int { throw base::IoError(801, "no"); }), base::IoError);
  const auto asleep = [] {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return true;
  };
  const std::string said =
      base::refusal(768, [&] { patiently("runs/dead", asleep, std::chrono::milliseconds(20)); });
  EXPECT_NE(said.find("\"runs/dead\" has not answered for 20 ms"), std::string::npos) << said;
}

TEST(RanksNow, WhoWaitsLeastIsWaitedFor) {
  const auto mark = [](int64_t began, int64_t ended, int group) {
    base::RingEntry one;
    one.started_ns = began, one.finished_ns = ended, one.stamp.group = group;
    return one;
  };
  EXPECT_FALSE(watch::waiting_share({}));
  EXPECT_FALSE(watch::waiting_share({mark(5, 0, -1)}));
  EXPECT_DOUBLE_EQ(
      *watch::waiting_share({mark(100, 200, -1), mark(200, 300, 0), mark(300, 400, -1), mark(400, 0, 0)}),
      1.0 / 3);

  struct Row {
    std::vector<double> waits;
    std::vector<bool> slow;
  };
  for (const Row& row :
       {Row{{0.5, 0.5, 0.1, 0.6}, {false, false, true, false}}, Row{{0.2, 0.25}, {false, false}},
        Row{{0.05, 0.6}, {true, false}}, Row{{0.0}, {false}}}) {
    std::vector<RankNow> ranks(row.waits.size());
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r].alive = true, ranks[r].waits = row.waits[r];
    mark_stragglers(ranks);
    for (size_t r = 0; r < ranks.size(); ++r) EXPECT_EQ(ranks[r].straggler, row.slow[r]) << r;
  }
  EXPECT_TRUE(RanksNow("/nowhere").look().empty());
}

TEST(Mlflow, ARestartCutsEveryMetric) {
  const base::TemporaryFolder folder;
  const SinkRun run{
      .name = "it's", .folder = folder.path(), .recipe = {}, .keys = {{"optim.lr", "0.1"}}, .metrics = {}};
  const auto sink = open_mlflow(folder.path() + "/out", run);
  for (int step = 1; step <= 3; ++step)
    sink->row({.step = step, .seconds = 2, .values = {{"loss", 0.5 * step}, {"../up", 1}}});
  sink->flush();
  sink->rewind(1);
  sink->row({.step = 2, .seconds = 3.5, .values = {{"loss", 7}}});
  sink->flush();
  const auto experiment = std::filesystem::directory_iterator(folder.path() + "/out")->path();
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(experiment))
    if (entry.is_directory()) found = entry.path();
  EXPECT_EQ(base::read_file(found + "/metrics/loss"), "2000 0.5 1\n3500 7 2\n");
  EXPECT_EQ(base::read_file(found + "/metrics/_.._up"), "2000 1 1\n");
  EXPECT_EQ(base::read_file(found + "/params/optim.lr"), "0.1");
  EXPECT_NE(base::read_file(found + "/meta.yaml").find("run_name: 'it''s'\n"), std::string::npos);
  EXPECT_NE(base::refusal(803, [&] { open_mlflow("/dev/null/out", run); }), "");
  struct Ended {
    const char *event, *status;
  };
  for (const Ended& one : {Ended{"start", "1"}, Ended{"finished", "3"}, Ended{"oom", "4"},
                           Ended{"nonfinite", "4"}, Ended{"preempted", "5"}}) {
    folder.write("events.jsonl", fmt::format("{{\"event\":\"{}\"}}\n", one.event));
    sink->flush();
    const std::string meta = base::read_file(found + "/meta.yaml");
    EXPECT_NE(meta.find(fmt::format("\nstatus: {}\n", one.status)), std::string::npos) << one.event << meta;
  }
}

TEST(Prometheus, EveryNameIsSaidOnceAndLabelsAreEscaped) {
  PrometheusSample first{.run = "a\"b\\c\nd",
                         .step = 7,
                         .written = 12.5,
                         .finished = false,
                         .last = {{"loss", std::nan("")}, {"step_ms", 250}, {"unknown", 3}},
                         .events = {},
                         .ranks = {}};
  first.events = {{"restart", "", 3, 0}, {"start", "", 3, 0}, {"restart", "", 5, 0}};
  RankNow rank;
  rank.alive = true, rank.facts.rank = 3, rank.memory = 1024;
  first.ranks = {rank};
  PrometheusSample second = first;
  second.run = "b", second.finished = true, second.ranks.clear();
  const std::string text = prometheus_text({first, second});
  const std::string name = "a\\\"b\\\\c_d";
  for (const std::string& line :
       {"lockstep_step{run=\"" + name + "\"} 7\n", "lockstep_loss{run=\"" + name + "\"} NaN\n",
        std::string("lockstep_step_duration_seconds{run=\"b\"} 0.25\n"),
        std::string("lockstep_restarts_total{run=\"b\"} 2\n"),
        std::string("lockstep_finished{run=\"b\"} 1\n"),
        "lockstep_rank_resident_memory_bytes{run=\"" + name + "\",rank=\"3\"} 1024\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(text.find("unknown"), std::string::npos);
  const std::string help = "# HELP lockstep_step_duration_seconds ";
  EXPECT_NE(text.find(help), std::string::npos);
  EXPECT_EQ(text.find(help), text.rfind(help));
  EXPECT_EQ(text.find("wait_ratio"), std::string::npos) << "a name without a sample";
  // Two runs must not have one name: the whole answer would be refused.
  first.run = "größe", second.run = "grüße\xff";
  const std::string other = prometheus_text({first, second});
  EXPECT_NE(other.find("lockstep_step{run=\"größe\"} 7\n"), std::string::npos) << other;
  EXPECT_NE(other.find("lockstep_step{run=\"grüße\xef\xbf\xbd\"} 7\n"), std::string::npos) << other;
}

// The record's frame; what is in it the real TensorBoard reads (real_see).
// Lines as a run writes them, half written, of other programs, and after a restart.
TEST(HistogramLog, TellsEachRowOnceAndAgainBehindARestart) {
  const base::TemporaryFolder folder;
  const auto line = [](int64_t step, const char* block) {
    return fmt::format(
               R"({{"step":{},"block":"{}","count":3,"smallest":-1,"largest":2,"edges":[-2,0,4],"counts":[1,2]}})",
               step, block) +
           "\n";
  };
  HistogramLog log(folder.path());
  EXPECT_TRUE(log.poll().empty());
  folder.write("histograms.jsonl", line(2, "a") + "rubbish\n" +
                                       R"({"step":2,"block":"b","edges":[1],"counts":[1]})" + "\n" +
                                       R"({"step":2,"block":"b","edges":[2,1],"counts":[1]})" + "\n" +
                                       line(2, "b") + line(4, "a").substr(0, 30));
  std::vector<HistogramRow> rows = log.poll();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].block, "b");
  EXPECT_EQ(rows[1].edges, (std::vector<double>{-2, 0, 4}));
  EXPECT_TRUE(log.poll().empty());
  append(folder.path() + "/histograms.jsonl", line(4, "a").substr(30) + line(6, "a"));
  EXPECT_EQ(log.poll().size(), 2U);
  folder.write("histograms.jsonl", line(2, "a") + line(4, "a"));
  log.rewind(2);
  rows = log.poll();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].step, 4);
}

TEST(Tensorboard, RecordsHaveTheirChecksums) {
  const base::TemporaryFolder folder;
  open_tensorboard(folder.path(), {.name = "a", .folder = {}, .recipe = {}, .keys = {}, .metrics = {}})
      ->flush();
  const std::string path = std::filesystem::directory_iterator(folder.path() + "/a")->path().string();
  const std::string bytes = base::read_file(path);
  ASSERT_GT(bytes.size(), 16U);
  EXPECT_EQ(static_cast<size_t>(static_cast<unsigned char>(bytes[0])) + 16, bytes.size());
  EXPECT_NE(bytes.find("brain.Event:2"), std::string::npos);
  EXPECT_EQ(Proto().number(1, 300).text(2, "a").bytes(), std::string("\x08\xAC\x02\x12\x01"
                                                                     "a"));
}

}  // namespace
}  // namespace lockstep::see
