// The plugin: Arrow's and Parquet's readers behind data/arrow/columns.h.
#include "lockstep/data/arrow/columns.h"

#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <exception>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/arrow/json_arrow.h"
#include "lockstep/data/arrow/limited_pool_arrow.h"
#include "lockstep/data/arrow/values_arrow.h"
#include "lockstep/data/corpus/corpus.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMostMemory = int64_t{4} << 30;
constexpr int64_t kBatchBytes = int64_t{4} << 20;  // about so much text at once
constexpr int64_t kBuffer = int64_t{1} << 20;

// Never destroyed: Arrow's own threads give buffers back when a reader is long gone.
arrow::MemoryPool* pool() {
  static LimitedPool* const limited = new LimitedPool(kMostMemory);
  return limited;
}

[[noreturn]] void refuse(const ColumnQuery& query, std::string why) {
  why = why.substr(0, std::min(why.find('\n'), size_t{300}));
  throw base::DataError(276, fmt::format("{} cannot be read as {}: {}", query.file,
                                         query.form == ColumnForm::parquet ? "Parquet" : "Arrow", why));
}

void check(const ColumnQuery& query, const arrow::Status& status) {
  if (!status.ok()) refuse(query, status.message());
}
template <class Value>
Value taken(const ColumnQuery& query, arrow::Result<Value> result) {
  check(query, result.status());
  return std::move(result).ValueUnsafe();
}

// The column's number in the schema.
int find_column(const ColumnQuery& query, const arrow::Schema& schema) {
  const std::vector<int> found = schema.GetAllFieldIndices(query.field);
  if (found.empty()) refuse_column(query.file, query.field, schema.field_names());
  if (found.size() > 1)
    throw base::DataError(213, fmt::format("{} has {} columns named {}; rename all but one", query.file,
                                           found.size(), base::quoted(query.field, 60)));
  const arrow::DataType& type = *schema.field(found.front())->type();
  if (kind_of_type(type) == ValueKind::other) {
    throw base::DataError(
        213, fmt::format("{} has a column {} of type {}, which is neither text nor a list of tokens; name "
                         "another one with data.field or --field",
                         query.file, base::quoted(query.field, 60), base::quoted(type.ToString(), 60)));
  }
  return found.front();
}

// What all three forms have in common.
class AnyColumn : public Column {
 public:
  explicit AnyColumn(const ColumnQuery& query)
      : query_(query), file_(taken(query, arrow::io::ReadableFile::Open(query.file, pool()))) {
    size_ = taken(query, file_->GetSize());
  }
  bool holds_tokens() const override { return tokens_; }
  std::vector<std::string> names() const override { return names_; }

 protected:
  void find_index(const arrow::Schema& schema) {
    names_ = schema.field_names();
    if (query_.rows) return;
    index_ = find_column(query_, schema);
    tokens_ = kind_of_type(*schema.field(index_)->type()) == ValueKind::tokens;
  }
  // Of a batch that holds the wanted column alone, or all of them.
  void fill(const arrow::RecordBatch& batch, ColumnRows& rows) {
    rows = {.first = row_};
    try {
      if (query_.rows) {
        append_json(batch, rows);
      } else {
        append_rows(*batch.column(0), rows);
      }
    } catch (const std::exception& error) {
      refuse(query_, fmt::format("in the rows from {} on {}", row_ + 1, error.what()));
    }
    row_ += batch.num_rows();
  }
  std::vector<int> wanted() const { return query_.rows ? std::vector<int>{} : std::vector<int>{index_}; }

  ColumnQuery query_;
  std::shared_ptr<arrow::io::ReadableFile> file_;
  int index_ = 0;
  std::vector<std::string> names_;
  int64_t size_ = 0, row_ = 0;
  bool tokens_ = false;
};

class ParquetColumn final : public AnyColumn {
 public:
  explicit ParquetColumn(const ColumnQuery& query) : AnyColumn(query) {
    parquet::ReaderProperties properties(pool());
    properties.enable_buffered_stream();  // pages as they are needed, not whole row groups
    properties.set_buffer_size(kBuffer);
    parquet::arrow::FileReaderBuilder builder;
    check(query, builder.Open(file_, properties));
    parquet::ArrowReaderProperties how(false);
    how.set_pre_buffer(false);
    builder.memory_pool(pool())->properties(how);
    reader_ = taken(query, builder.Build());
    std::shared_ptr<arrow::Schema> schema;
    check(query, reader_->GetSchema(&schema));
    find_index(*schema);
    start(*schema);
  }

  bool next(ColumnRows& rows) override {
    std::shared_ptr<arrow::RecordBatch> batch;
    check(query_, batches_->ReadNext(&batch));
    if (!batch) return false;
    fill(*batch, rows);
    const int64_t place = rows_ > 0
                              ? static_cast<int64_t>(static_cast<double>(size_) * static_cast<double>(row_) /
                                                     static_cast<double>(rows_))
                              : size_;
    rows.taken = std::max<int64_t>(0, place - std::exchange(place_, place));
    return true;
  }

 private:
  // So many rows at once that their text is about kBatchBytes.
  void start(const arrow::Schema&) {
    const auto metadata = reader_->parquet_reader()->metadata();
    rows_ = metadata->num_rows();
    std::vector<int> groups, leaves;
    const parquet::SchemaDescriptor& schema = *metadata->schema();
    for (int leaf = 0; leaf < schema.num_columns(); ++leaf) {
      const bool own = schema.GetColumnRoot(leaf) == schema.group_node()->field(index_).get();
      if (query_.rows || own) leaves.push_back(leaf);
    }
    if (!query_.rows && leaves.size() != 1) refuse(query_, "its column is made of several");
    int64_t widest = 1;
    for (int group = 0; group < metadata->num_row_groups(); ++group) {
      const auto about = metadata->RowGroup(group);
      const int64_t rows = std::max<int64_t>(1, about->num_rows());
      int64_t bytes = 0;
      for (const int leaf : leaves) bytes += about->ColumnChunk(leaf)->total_uncompressed_size();
      widest = std::max(widest, bytes / rows);
      groups.push_back(group);
    }
    reader_->set_batch_size(std::clamp<int64_t>(kBatchBytes / widest, 1, 65536));
    batches_ = taken(query_, reader_->GetRecordBatchReader(groups, leaves));
  }

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  int64_t rows_ = 0, place_ = 0;
};

arrow::ipc::IpcReadOptions ipc_options(arrow::MemoryPool* pool) {
  arrow::ipc::IpcReadOptions options;
  options.memory_pool = pool;
  options.use_threads = false;
  return options;
}

class ArrowFileColumn final : public AnyColumn {
 public:
  explicit ArrowFileColumn(const ColumnQuery& query) : AnyColumn(query) {
    const auto first = taken(query, arrow::ipc::RecordBatchFileReader::Open(file_, ipc_options(pool())));
    find_index(*first->schema());
    arrow::ipc::IpcReadOptions options = ipc_options(pool());
    options.included_fields = wanted();
    reader_ = taken(query, arrow::ipc::RecordBatchFileReader::Open(file_, options));
  }

  bool next(ColumnRows& rows) override {
    if (batch_ >= reader_->num_record_batches()) return false;
    const auto batch = taken(query_, reader_->ReadRecordBatch(batch_++));
    fill(*batch, rows);
    rows.taken = size_ / reader_->num_record_batches();
    return true;
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int batch_ = 0;
};

class ArrowStreamColumn final : public AnyColumn {
 public:
  explicit ArrowStreamColumn(const ColumnQuery& query) : AnyColumn(query) {
    const auto first = taken(query, arrow::ipc::RecordBatchStreamReader::Open(file_, ipc_options(pool())));
    find_index(*first->schema());
    check(query, file_->Seek(0));
    arrow::ipc::IpcReadOptions options = ipc_options(pool());
    options.included_fields = wanted();
    reader_ = taken(query, arrow::ipc::RecordBatchStreamReader::Open(file_, options));
  }

  bool next(ColumnRows& rows) override {
    std::shared_ptr<arrow::RecordBatch> batch;
    check(query_, reader_->ReadNext(&batch));
    if (!batch) return false;
    fill(*batch, rows);
    const int64_t place = taken(query_, file_->Tell());
    rows.taken = place - std::exchange(place_, place);
    return true;
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
  int64_t place_ = 0;
};

// Parquet throws where Arrow returns; neither passes this door.
template <class Work>
auto guarded(const ColumnQuery& query, const Work& work) {
  try {
    return work();
  } catch (const base::Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    refuse(query, "it needs more memory than there is");
  } catch (const std::exception& error) {
    refuse(query, error.what());
  }
}

class GuardedColumn final : public Column {
 public:
  GuardedColumn(ColumnQuery query, std::unique_ptr<Column> column)
      : query_(std::move(query)), column_(std::move(column)) {}
  bool holds_tokens() const override { return column_->holds_tokens(); }
  std::vector<std::string> names() const override { return column_->names(); }
  bool next(ColumnRows& rows) override {
    return guarded(query_, [&] { return column_->next(rows); });
  }

 private:
  ColumnQuery query_;
  std::unique_ptr<Column> column_;
};

std::unique_ptr<Column> open(const ColumnQuery& query) {
  switch (query.form) {
    case ColumnForm::parquet:
      return std::make_unique<ParquetColumn>(query);
    case ColumnForm::arrow_file:
      return std::make_unique<ArrowFileColumn>(query);
    default:
      return std::make_unique<ArrowStreamColumn>(query);
  }
}

}  // namespace
}  // namespace lockstep::data

lockstep::data::Column* lockstep_open_column(const lockstep::data::ColumnQuery& query) {
  using namespace lockstep::data;
  return new GuardedColumn(query, guarded(query, [&] { return open(query); }));
}
