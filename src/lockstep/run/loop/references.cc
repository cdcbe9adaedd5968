#include "lockstep/run/loop/references.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/round.h"
#include "lockstep/data/loader.h"
#include "lockstep/run/loop/evaluate.h"

namespace lockstep::run {

namespace {

constexpr const char* kFile = "reference.bin";
constexpr double kSecondsBetweenWords = 10;

std::span<const std::byte> bytes_of(const std::vector<double>& values) {
  return std::as_bytes(std::span(values));
}

std::string hash_of(const data::References& references) {
  return base::hex64(base::hash_combine(base::hash_bytes(bytes_of(references.train)),
                                        base::hash_bytes(bytes_of(references.eval))));
}

// What the numbers depend on: weights, samples, and how long those are.
std::string identity(Session& session) {
  const Plan& plan = session.plan;
  const std::string weights = session.parameters->hash();  // collective
  return fmt::format("weights {} data {} seq_len {}", weights, base::hex64(plan.dataset->content_hash()),
                     plan.recipe().data.seq_len);
}

class Computing {
 public:
  Computing(Session& session, const ReferenceOptions& options)
      : session_(session),
        options_(options),
        evaluator_(session),
        all_(session.plan.dataset->samples(data::Split::train) +
             session.plan.dataset->samples(data::Split::eval)) {}

  std::optional<data::References> run() {
    data::References made;
    for (const data::Split split : {data::Split::train, data::Split::eval}) {
      std::optional<std::vector<double>> sums =
          evaluator_.sequences(split, [&](int64_t done) { return go_on(done); });
      if (!sums) return std::nullopt;
      made.of(split) = std::move(*sums);
      before_ += session_.plan.dataset->samples(split);
    }
    return made;
  }

 private:
  // Of any rank. Collective.
  bool go_on(int64_t done) {
    const bool stop = options_.stop_signal != nullptr && options_.stop_signal->load() != 0;
    if (session_.ranks->sum(std::vector<double>{stop ? 1.0 : 0.0})[0] > 0) return false;
    const double now = static_cast<double>(base::monotonic_ns()) / 1e9;
    if (options_.progress && now - said_ >= kSecondsBetweenWords) {
      options_.progress(before_ + done, all_);
      said_ = now;
    }
    return true;
  }

  Session& session_;
  const ReferenceOptions& options_;
  Evaluator evaluator_;
  int64_t all_ = 0, before_ = 0;
  double said_ = static_cast<double>(base::monotonic_ns()) / 1e9;  // when, in seconds
};

// The first rank's, on every rank: the others add nothing to it.
data::References spread(const Session& session, data::References references) {
  const data::Dataset& dataset = *session.plan.dataset;
  for (const data::Split split : {data::Split::train, data::Split::eval}) {
    std::vector<double>& values = references.of(split);
    values.resize(static_cast<size_t>(dataset.samples(split)), 0);
    if (!values.empty()) values = session.ranks->sum(std::move(values));
  }
  return references;
}

// Empty where there is no file, or none that can be used.
data::References kept_references(const ReferenceOptions& options, const std::string& of) {
  const std::string path = options.folder + "/" + kFile;
  if (options.folder.empty() || !std::filesystem::exists(path)) return {};
  const base::ReadResult file = base::try_read_file(path, int64_t{64} << 30);
  ReadReferences read =
      file.problem.empty() ? read_references(file.text, of) : ReadReferences{{}, file.problem};
  if (read.problem.empty()) return std::move(read.references);
  if (options.warn)
    options.warn(
        fmt::format("{}: {}; the reference's log-probabilities are computed again", path, read.problem));
  return {};
}

}  // namespace

std::string write_references(const data::References& references, const std::string& of) {
  const nlohmann::json header = {{"reference", of},
                                 {"train", references.train.size()},
                                 {"eval", references.eval.size()},
                                 {"hash", hash_of(references)}};
  std::string text = header.dump() + "\n";
  for (const std::vector<double>* values : {&references.train, &references.eval})
    text.append(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(double));
  return text;
}

ReadReferences read_references(const std::string& text, const std::string& of) {
  const size_t end = std::min(text.find('\n'), text.size());
  const nlohmann::json header = nlohmann::json::parse(text.substr(0, end), nullptr, false);
  const auto count = [&](const char* key) {
    return header.is_object() && header.contains(key) && header[key].is_number_unsigned()
               ? header[key].get<uint64_t>()
               : UINT64_MAX;
  };
  const auto said = [&](const char* key) {
    return header.contains(key) && header[key].is_string() ? header[key].get<std::string>() : "";
  };
  const uint64_t train = count("train"), eval = count("eval"), there = (text.size() - end) / sizeof(double);
  if (train > there || eval > there || text.size() != end + 1 + (train + eval) * sizeof(double))
    return {{}, "the file is damaged"};
  ReadReferences read;
  read.references.train.resize(train);
  read.references.eval.resize(eval);
  const char* at = text.data() + end + 1;
  std::memcpy(read.references.train.data(), at, train * sizeof(double));
  std::memcpy(read.references.eval.data(), at + train * sizeof(double), eval * sizeof(double));
  if (said("hash") != hash_of(read.references)) return {{}, "the file is damaged"};
  if (said("reference") != of) return {{}, "it is of other weights or other data"};
  return read;
}

std::optional<data::References> find_references(Session& session, const ReferenceOptions& options) {
  const std::string of = identity(session);
  data::References kept;
  if (session.ranks->first()) kept = kept_references(options, of);
  const bool found = session.ranks->sum(std::vector<double>{kept.empty() ? 0.0 : 1.0})[0] > 0;
  if (found) return spread(session, std::move(kept));
  std::optional<data::References> made = Computing(session, options).run();
  if (made && session.ranks->first() && !options.folder.empty()) {
    base::make_folders(options.folder);
    base::write_file_durable(options.folder + "/" + kFile, write_references(*made, of));
  }
  return made;
}

}  // namespace lockstep::run
