#include "lockstep/data/corpus/tokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/data/corpus/token_writer.h"
#include "lockstep/data/formats/parallel.h"
#include "lockstep/store/in_turn.h"
#include "lockstep/store/uri.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMostFaults = 20;  // that are told
constexpr const char* kDone = ".tokenize.jsonl";

// Encoders remember words: whoever needs one takes one that has been used before.
class Encoders {
 public:
  explicit Encoders(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::unique_ptr<text::Encoder> take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return tokenizer_.encoder();
    auto one = std::move(free_.back());
    free_.pop_back();
    return one;
  }
  void give_back(std::unique_ptr<text::Encoder> one) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(one));
  }

 private:
  const text::Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<text::Encoder>> free_;
};

// What the tokenizer puts around a text, which stands around a document and not around its parts.
struct Around {
  std::vector<int32_t> before, after;
};
Around around(const text::Tokenizer& tokenizer, const TokenizeOptions& options) {
  Around out;
  if (!options.encoding.add_special) return out;
  tokenizer.special_ids_around(out.before, out.after);
  const std::optional<int32_t> end = tokenizer.end_token();
  if (options.end_documents && end && (out.after.empty() || out.after.back() != *end))
    out.after.push_back(*end);
  return out;
}

struct Encoded {
  std::vector<int32_t> tokens;
  TokenizeCounts counts;
};

// How the documents of a file become tokens.
struct HowToEncode {
  const std::string& file;
  const TokenizeOptions& options;
  int64_t vocab;
  Around around;
};

// Tokens that somebody made before.
void check_ready(std::span<const int32_t> tokens, const HowToEncode& how) {
  const auto wrong =
      std::find_if(tokens.begin(), tokens.end(), [&](int32_t token) { return token >= how.vocab; });
  if (wrong == tokens.end()) return;
  throw base::DataError(232, fmt::format("{} holds token {}, but the tokenizer has {}; name the tokenizer "
                                         "that made it",
                                         how.file, *wrong, how.vocab));
}

void encode_part(const CorpusReader& reader, const CorpusPart& part, const HowToEncode& how,
                 text::Encoder& encoder, Encoded& out) {
  const TokenizeOptions& options = how.options;
  const Around& around = how.around;
  const text::EncodeOptions plain{.add_special = false, .parse_special = options.encoding.parse_special};
  out.tokens.clear();
  out.counts = {};
  const auto use = [&](const Document& document) {
    out.counts.documents += document.ends;
    if (reader.holds_tokens()) {  // taken as they are: whoever made them has ended documents or not
      check_ready(document.tokens, how);
      out.tokens.insert(out.tokens.end(), document.tokens.begin(), document.tokens.end());
      return;
    }
    out.counts.text_bytes += static_cast<int64_t>(document.text.size());
    if (document.begins) out.tokens.insert(out.tokens.end(), around.before.begin(), around.before.end());
    encoder.encode(document.text, out.tokens, plain);
    if (document.ends) out.tokens.insert(out.tokens.end(), around.after.begin(), around.after.end());
  };
  const auto bad = [&](const BadDocument& document) {
    if (options.on_error == OnError::stop)
      throw base::DataError(document.number,
                            document.sentence +
                                "; correct or remove it, or leave such documents out: --on-error skip, and "
                                "data.on_error=skip in training");
    ++out.counts.skipped;
    if (out.counts.faults.size() < kMostFaults) out.counts.faults.push_back(document.sentence);
  };
  reader.each_document(part, use, bad);
  out.counts.bytes = part.taken;
  out.counts.tokens = static_cast<int64_t>(out.tokens.size());
}

void add_counts(TokenizeCounts& sum, const TokenizeCounts& one) {
  sum.bytes += one.bytes;
  sum.text_bytes += one.text_bytes;
  sum.documents += one.documents;
  sum.tokens += one.tokens;
  sum.skipped += one.skipped;
  for (const std::string& fault : one.faults) {
    if (sum.faults.size() < kMostFaults) sum.faults.push_back(fault);
  }
}

// By a thread of its own, or when it is asked for where the machine gives no more threads.
template <class Work>
auto in_background(const Work& work) {
  try {
    return std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, work);
  }
}

// Which file or object, as it was when it was tokenized.
json identity_of(const TokenizeJob& job, const std::string& file) {
  if (const auto object = job.objects.find(file); object != job.objects.end())
    return {{"input", store::parse_uri(file).shown()},
            {"bytes", object->second.size},
            {"modified", object->second.changed_ns}};
  std::error_code error;
  const auto time = fs::last_write_time(file, error).time_since_epoch().count();
  return {{"input", fs::absolute(file, error).lexically_normal().string()},
          {"bytes", static_cast<int64_t>(fs::file_size(file, error))},
          {"modified", static_cast<int64_t>(time)}};
}

// Names that are alike in two folders become two files.
std::string stem_of(const std::string& folder, const std::string& file) {
  std::error_code error;
  const fs::path path = store::is_uri(file) ? fs::path(store::parse_uri(file).shown())
                                            : fs::absolute(file, error).lexically_normal();
  return (fs::path(folder) / fmt::format("{}-{}", path.filename().string(),
                                         base::hex64(base::hash_text(path.string())).substr(0, 8)))
      .string();
}

int64_t input_bytes(const TokenizeJob& job, const std::string& file) {
  const auto object = job.objects.find(file);
  return object != job.objects.end() ? object->second.size : corpus_bytes(file);
}

struct Settings {
  std::string tokenizer, how;  // how documents became tokens
};

// Lines of what is finished, by input.
std::unordered_map<std::string, json> read_done(const std::string& folder, const Settings& settings) {
  std::unordered_map<std::string, json> done;
  const base::ReadResult read = base::try_read_file((fs::path(folder) / kDone).string());
  size_t begin = 0;
  while (begin < read.text.size()) {
    const size_t end = read.text.find('\n', begin);
    if (end == std::string::npos) break;  // a line that was not finished
    const json line = json::parse(std::string_view(read.text).substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (!line.is_object() || !line.contains("input") || !line["input"].is_string()) continue;
    if (line.value("tokenizer", "") != settings.tokenizer || line.value("how", "") != settings.how) {
      throw base::ConfigError(
          247,
          fmt::format("{} holds tokens of another tokenizer, or made with other options: {} of tokenizer "
                      "{}, not {} of {}; name another --out, or remove the folder",
                      folder, line.value("how", "?"), line.value("tokenizer", "?"), settings.how,
                      settings.tokenizer));
    }
    done[line["input"].get<std::string>()] = line;
  }
  return done;
}

bool is_done(const std::unordered_map<std::string, json>& done, const json& identity) {
  const auto found = done.find(identity["input"].get<std::string>());
  if (found == done.end()) return false;
  const json& line = found->second;
  if (line.value("bytes", int64_t{-1}) != identity["bytes"] ||
      line.value("modified", int64_t{-1}) != identity["modified"])
    return false;
  std::error_code error;
  for (const json& file : line.value("files", json::array())) {
    if (!file.is_string() || !fs::is_regular_file(file.get<std::string>(), error)) return false;
  }
  return true;
}

}  // namespace

TokenizeCounts tokenize_file(const std::string& file, const text::Tokenizer& tokenizer,
                             const TokenizeOptions& options,
                             const std::function<void(std::span<const int32_t>)>& tokens,
                             const std::function<void(int64_t)>& progress) {
  CorpusOptions corpus = options.corpus;
  corpus.may_cut = tokenizer.cuts_between_words();
  const std::unique_ptr<CorpusReader> reader = open_corpus(file, corpus);
  const HowToEncode how{
      .file = file, .options = options, .vocab = tokenizer.vocab(), .around = around(tokenizer, options)};
  Encoders encoders(tokenizer);
  const size_t parts_a_round = 4 * std::max<size_t>(1, std::thread::hardware_concurrency());
  std::vector<Encoded> encoded(parts_a_round);
  TokenizeCounts sum;
  const auto read_parts = [&] {
    std::vector<CorpusPart> parts;
    while (parts.size() < parts_a_round) {
      std::optional<CorpusPart> part = reader->next_part();
      if (!part) break;
      parts.push_back(std::move(*part));
    }
    return parts;
  };
  for (std::vector<CorpusPart> parts = read_parts(); !parts.empty();) {
    // What comes next is read, and unpacked, while this is encoded.
    std::future<std::vector<CorpusPart>> next = in_background(read_parts);
    parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t index) {
      const auto i = static_cast<size_t>(index);
      auto encoder = encoders.take();
      encode_part(*reader, parts[i], how, *encoder, encoded[i]);
      encoders.give_back(std::move(encoder));
    });
    for (size_t i = 0; i < parts.size(); ++i) {
      tokens(encoded[i].tokens);
      add_counts(sum, encoded[i].counts);
    }
    if (progress) progress(sum.bytes);
    parts = next.get();
  }
  return sum;
}

TokenizeResult tokenize_files(const TokenizeJob& job, const text::Tokenizer& tokenizer,
                              const std::function<void(const TokenizeProgress&)>& progress) {
  base::make_folders(job.folder);
  const base::FolderLock lock(job.folder);
  const Settings settings{base::hex64(tokenizer.hash()),
                          fmt::format("field {}, special {}, in text {}", job.options.corpus.field,
                                      job.options.encoding.add_special, job.options.encoding.parse_special)};
  const auto done = read_done(job.folder, settings);
  base::LineWriter lines((fs::path(job.folder) / kDone).string());
  TokenizeResult result;
  TokenizeProgress now{.file = {},
                       .files_done = 0,
                       .files = static_cast<int64_t>(job.inputs.size()),
                       .bytes_done = 0,
                       .bytes = 0,
                       .tokens = 0};
  std::vector<std::string> wanted;
  for (const std::string& file : job.inputs) {
    now.bytes += input_bytes(job, file);
    if (!is_done(done, identity_of(job, file))) wanted.push_back(file);
  }
  store::InTurn in_turn(wanted, job.objects);
  size_t turn = 0;
  for (const std::string& file : job.inputs) {
    json line = identity_of(job, file);
    now.file = file;
    const int64_t before = now.bytes_done;
    if (turn == wanted.size() || file != wanted[turn]) {
      ++result.done_before;
    } else {
      TokenWriter writer(stem_of(job.folder, file), tokenizer.vocab(), tokenizer.hash());
      const TokenizeCounts counts = tokenize_file(
          in_turn.local(turn++), tokenizer, job.options,
          [&](std::span<const int32_t> tokens) { writer.add(tokens); },
          [&](int64_t bytes) {
            now.bytes_done = before + bytes;
            now.tokens = result.counts.tokens + writer.tokens();
            if (progress) progress(now);
          });
      const std::vector<std::string> made = writer.finish();
      line.update({{"tokenizer", settings.tokenizer},
                   {"how", settings.how},
                   {"files", made},
                   {"tokens", counts.tokens},
                   {"documents", counts.documents},
                   {"skipped", counts.skipped}});
      lines.write(line.dump());
      result.files.insert(result.files.end(), made.begin(), made.end());
      add_counts(result.counts, counts);
    }
    ++now.files_done;
    now.bytes_done = before + input_bytes(job, file);
    now.tokens = result.counts.tokens;
    if (progress) progress(now);
  }
  return result;
}

}  // namespace lockstep::data
