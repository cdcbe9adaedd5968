#include "lockstep/data/documents/encoded_records.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/chat/fault.h"
#include "lockstep/data/formats/parallel.h"
#include "lockstep/data/formats/records.h"
#include "lockstep/data/formats/unpack.h"

namespace lockstep::data {
namespace {

using chat::Fault;

constexpr size_t kLongestRecord = size_t{64} << 20;
const std::vector<std::string> kPlainEndings = {".jsonl", ".ndjson", ".json"};

chat::Json parsed(std::string_view text) {
  if (text.size() > kLongestRecord) throw Fault{214, "is longer than 64 MiB"};
  try {
    return chat::Json::parse(text);
  } catch (const chat::Json::exception& error) {
    std::string why = error.what();  // "[json...] parse error at line 1, column 5: syntax error ..."
    if (const size_t tag = why.find("] "); tag != std::string::npos) why = why.substr(tag + 2);
    if (const size_t colon = why.find(": "); colon != std::string::npos) why = why.substr(colon + 2);
    why.resize(std::min({why.size(), why.find("; last read"), size_t{120}}));
    throw Fault{210, "is not JSON: " + why};
  }
}

struct Reader {
  const RecordFile& file;
  const RecordOptions& options;
  const std::function<RecordEncoder()>& make_encoder;

  DocumentStore read(size_t first, size_t last) const {
    DocumentStore store;
    const RecordEncoder encode = make_encoder();
    for (size_t i = first; i < last; ++i) {
      const Record& record = file.records()[i];
      try {
        encode(parsed(file.text(record)), store);
      } catch (const Fault& fault) {
        const std::string sentence = fmt::format("{} {}", file.where(record), fault.sentence);
        if (options.on_error == OnError::stop)
          throw base::DataError(fault.number, fmt::format("{}; data.on_error=skip leaves such {}s out",
                                                          sentence, options.unit));
        store.add_fault(fmt::format("{} [{}]", sentence, base::code_name(fault.number)));
      }
    }
    return store;
  }
};

}  // namespace

DocumentStore encode_records(const std::vector<std::string>& files, const RecordOptions& options,
                             const std::function<RecordEncoder()>& make_encoder) {
  DocumentStore all;
  for (const std::string& path : files) {
    const RecordFile file(path);
    const auto pieces = file.pieces();
    std::vector<DocumentStore> stores(pieces.size());
    const Reader reader{file, options, make_encoder};
    parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
      const auto& [first, last] = pieces[static_cast<size_t>(i)];
      stores[static_cast<size_t>(i)] = reader.read(first, last);
    });
    for (DocumentStore& store : stores) {
      all.append(store);
      store = {};
    }
  }
  all.shrink();
  return all;
}

std::vector<uint32_t> words_of(const chat::EncodedChat& encoded, size_t longest) {
  const auto begin =
      encoded.trained.begin() + (encoded.trained.empty() ? 0 : 1);  // the first token is never predicted
  const auto first = std::find(begin, encoded.trained.end(), true);
  if (first == encoded.trained.end()) throw Fault{263, "has no token to train on behind its first"};
  const size_t size = std::min(encoded.ids.size(), longest);
  if (static_cast<size_t>(first - encoded.trained.begin()) >= size) {
    throw Fault{
        269,
        fmt::format("has {} tokens before the first that is trained on, which is beyond data.seq_len = {}; "
                    "raise data.seq_len, or shorten it",
                    first - encoded.trained.begin(), longest - 1)};
  }
  std::vector<uint32_t> words(size);
  for (size_t i = 0; i < size; ++i)
    words[i] = static_cast<uint32_t>(encoded.ids[i]) | (encoded.trained[i] ? DocumentStore::kTrained : 0);
  return words;
}

const std::vector<std::string>& record_endings() {
  static const std::vector<std::string> endings = [] {
    std::vector<std::string> all = with_packing(kPlainEndings);
    all.insert(all.end(), {".parquet", ".arrow", ".feather", ".arrows"});
    return all;
  }();
  return endings;
}

std::vector<std::string> keys_of_records(std::string_view ending, const std::string& file) {
  if (std::find(kPlainEndings.begin(), kPlainEndings.end(), ending) == kPlainEndings.end()) return {};
  return first_keys(file);
}

}  // namespace lockstep::data
