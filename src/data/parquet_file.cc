// Parquet by Arrow's C++ library, where the build found one (cmake/MilepostArrow.cmake). Only the text column
// is read; its texts go to a spool one after another, since Parquet has no random access to rows.
#include "data/record_files.h"
#include "milepost/base/error.h"

#ifdef MILEPOST_WITH_PARQUET
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include <algorithm>
#endif

namespace milepost::data {

#ifndef MILEPOST_WITH_PARQUET

std::unique_ptr<RecordFile> open_parquet(const std::string& path, const std::string&,
                                         const std::shared_ptr<Storage>&, const std::string&) {
  FormatError error(ErrorCode::kUnsupported, "this build reads no Parquet",
                    "install what requirements/data.txt names (scripts/setup.sh) and build again, or "
                    "convert the file to JSON lines");
  error.set_path(path);
  throw error;
}

#else

namespace {

[[noreturn]] void fail(const std::string& path, ErrorCode code, const std::string& what,
                       const std::string& hint = "fetch or write the file again") {
  FormatError error(code, what, hint);
  error.set_path(path);
  throw error;
}

void check(const std::string& path, const arrow::Status& status) {
  if (!status.ok()) fail(path, ErrorCode::kBadFormat, "damaged Parquet file: " + printable(status.message()));
}

class ParquetRecords final : public RecordFile {
 public:
  ParquetRecords(std::string path, std::string field, std::vector<int64_t> starts, std::vector<int64_t> nulls,
                 std::shared_ptr<const ByteSource> texts)
      : path_(std::move(path)),
        field_(std::move(field)),
        starts_(std::move(starts)),
        nulls_(std::move(nulls)),
        texts_(std::move(texts)) {}

  int64_t size() const override { return static_cast<int64_t>(starts_.size()) - 1; }

  void read(int64_t record, std::string* text) override {
    if (std::binary_search(nulls_.begin(), nulls_.end(), record)) {
      fail(path_, ErrorCode::kBadFormat,
           record_name(record) + ": field '" + field_ + "' is null, expected a string",
           "repair the row, or pass bad records over (--dataloader.on-bad-record=skip)");
    }
    const int64_t begin = starts_[static_cast<size_t>(record)];
    text->resize(static_cast<size_t>(starts_[static_cast<size_t>(record) + 1] - begin));
    if (!text->empty()) texts_->read_at(begin, std::as_writable_bytes(std::span(*text)));
  }

  std::string record_name(int64_t record) const override { return "row " + std::to_string(record + 1); }

 private:
  std::string path_, field_;
  std::vector<int64_t> starts_, nulls_;
  std::shared_ptr<const ByteSource> texts_;
};

// Collects the texts of one column.
class Collector {
 public:
  Collector(const std::shared_ptr<Storage>& storage, const std::string& spool_folder)
      : spool_(storage, spool_folder) {}

  // False when the array holds no text.
  bool add(const arrow::Array& array) {
    switch (array.type_id()) {
      case arrow::Type::STRING:
        return add_all(static_cast<const arrow::StringArray&>(array));
      case arrow::Type::LARGE_STRING:
        return add_all(static_cast<const arrow::LargeStringArray&>(array));
      default:
        return false;
    }
  }

  std::unique_ptr<RecordFile> finish(const std::string& path, const std::string& field) {
    starts_.push_back(spool_.size());
    return std::make_unique<ParquetRecords>(path, field, std::move(starts_), std::move(nulls_),
                                            spool_.finish());
  }

 private:
  template <typename Array>
  bool add_all(const Array& array) {
    for (int64_t i = 0; i < array.length(); ++i) {
      if (array.IsNull(i)) nulls_.push_back(static_cast<int64_t>(starts_.size()));
      starts_.push_back(spool_.size());
      if (!array.IsNull(i)) spool_.append(array.GetView(i));
    }
    return true;
  }

  Spool spool_;
  std::vector<int64_t> starts_, nulls_;
};

int find_column(const std::string& path, const parquet::SchemaDescriptor& schema, const std::string& field) {
  std::string names;
  for (int i = 0; i < schema.num_columns(); ++i) {
    const std::string name = schema.Column(i)->path()->ToDotString();
    if (name == field) return i;
    if (names.size() < 100) names += (names.empty() ? "'" : ", '") + printable(name, 40) + "'";
  }
  fail(path, ErrorCode::kMissingKey, "no column '" + field + "' (it has " + names + ")",
       "name the column to read with --dataloader.text-field");
}

std::unique_ptr<RecordFile> read_texts(const std::string& path, const std::string& field,
                                       const std::shared_ptr<Storage>& storage,
                                       const std::string& spool_folder) {
  auto file = arrow::io::ReadableFile::Open(path);
  check(path, file.status());
  auto opened = parquet::arrow::OpenFile(*file, arrow::default_memory_pool());
  check(path, opened.status());
  const std::unique_ptr<parquet::arrow::FileReader> reader = std::move(*opened);
  reader->set_use_threads(false);
  const parquet::FileMetaData& metadata = *reader->parquet_reader()->metadata();
  const int column = find_column(path, *metadata.schema(), field);
  std::vector<int> groups(static_cast<size_t>(metadata.num_row_groups()));
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int>(i);

  Collector collector(storage, spool_folder);
  auto batches = reader->GetRecordBatchReader(groups, {column});
  check(path, batches.status());
  std::shared_ptr<arrow::RecordBatch> batch;
  for (check(path, (*batches)->ReadNext(&batch)); batch; check(path, (*batches)->ReadNext(&batch))) {
    if (!collector.add(*batch->column(0))) {
      fail(path, ErrorCode::kBadFormat,
           "column '" + field + "' is of type " + batch->column(0)->type()->ToString() + ", expected strings",
           "name the column to read with --dataloader.text-field");
    }
  }
  return collector.finish(path, field);
}

// "PAR1" at both ends: Arrow's own words for a file that is cut short do not say so.
void check_ends(const std::string& path, Storage& storage) {
  const std::unique_ptr<ByteSource> source = storage.open_read(path);
  std::string first(4, '\0'), last(4, '\0');
  if (source->size() >= 12) {
    source->read_at(0, std::as_writable_bytes(std::span(first)));
    source->read_at(source->size() - 4, std::as_writable_bytes(std::span(last)));
  }
  if (first != "PAR1" && first != "PARE") {
    fail(path, ErrorCode::kBadFormat, "is no Parquet file: it does not start with PAR1");
  }
  if (last != "PAR1" && last != "PARE") {
    fail(path, ErrorCode::kTruncated, "Parquet file is cut short: it does not end with PAR1");
  }
}

}  // namespace

std::unique_ptr<RecordFile> open_parquet(const std::string& path, const std::string& text_field,
                                         const std::shared_ptr<Storage>& storage,
                                         const std::string& spool_folder) {
  check_ends(path, *storage);
  try {
    return read_texts(path, text_field, storage, spool_folder);
  } catch (const parquet::ParquetException& e) {
    fail(path, ErrorCode::kBadFormat, "damaged Parquet file: " + printable(e.what()));
  }
}

#endif

}  // namespace milepost::data
