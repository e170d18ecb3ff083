// JSON lines: one object a line.
//
// 1. Opening finds where the lines start that hold more than white space; that is all that is kept of them.
// 2. Reading a record parses its line as a whole, so that damage anywhere in it is seen, then takes the
// field.
#include <simdjson.h>

#include <algorithm>
#include <cstring>

#include "data/record_files.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

constexpr int64_t kScanBytes = 1 << 20;
constexpr int64_t kWindowBytes = 256 << 10;
constexpr int64_t kMaxRecordBytes = int64_t{1} << 30;

bool is_space(std::byte c) { return c == std::byte{' '} || c == std::byte{'\t'} || c == std::byte{'\r'}; }

// Where lines with content start, and at the end the file's size.
class LineIndex {
 public:
  explicit LineIndex(const ByteSource& source) {
    ByteVector chunk(kScanBytes);
    for (int64_t offset = 0; offset < source.size(); offset += kScanBytes) {
      const int64_t length = std::min(kScanBytes, source.size() - offset);
      const std::span<std::byte> bytes(chunk.data(), static_cast<size_t>(length));
      source.read_at(offset, bytes);
      scan(bytes, offset);
    }
    starts_.push_back(source.size());
    starts_.shrink_to_fit();
  }

  std::vector<int64_t> take() { return std::move(starts_); }

 private:
  void scan(Bytes bytes, int64_t offset) {
    const std::byte* at = bytes.data();
    const std::byte* const end = at + bytes.size();
    while (at < end) {
      if (is_blank_) {
        while (at < end && is_space(*at)) ++at;
        if (at == end) return;
        if (*at != std::byte{'\n'}) {
          is_blank_ = false;
          starts_.push_back(offset + (at - bytes.data()));
        }
      }
      at = static_cast<const std::byte*>(std::memchr(at, '\n', static_cast<size_t>(end - at)));
      if (!at) return;
      ++at;
      is_blank_ = true;
    }
  }

  std::vector<int64_t> starts_;
  bool is_blank_ = true;  // the line that is being looked at, so far
};

std::string_view type_name(simdjson::dom::element_type type) {
  using Type = simdjson::dom::element_type;
  switch (type) {
    case Type::ARRAY:
      return "an array";
    case Type::OBJECT:
      return "an object";
    case Type::STRING:
      return "a string";
    case Type::BOOL:
      return "a boolean";
    case Type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

class JsonLines final : public RecordFile {
 public:
  JsonLines(std::shared_ptr<const ByteSource> bytes, std::string path, std::string text_field)
      : bytes_(std::move(bytes)),
        path_(std::move(path)),
        field_(std::move(text_field)),
        starts_(LineIndex(*bytes_).take()) {}

  int64_t size() const override { return static_cast<int64_t>(starts_.size()) - 1; }

  void read(int64_t record, std::string* text) override {
    const std::string_view line = load(record);
    simdjson::dom::element document;
    // The window has room behind it, so the parser need not copy the line.
    if (const auto error = parser_.parse(line.data(), line.size(), false).get(document)) {
      fail(record, ErrorCode::kBadFormat, std::string("not valid JSON: ") + simdjson::error_message(error));
    }
    simdjson::dom::object object;
    if (document.get(object)) {
      fail(record, ErrorCode::kBadFormat,
           "is " + std::string(type_name(document.type())) + ", expected one object a line");
    }
    take_field(record, object, text);
  }

  // Blank lines have no number of their own in the index, so they are counted when somebody asks.
  std::string record_name(int64_t record) const override {
    int64_t line = 1;
    ByteVector chunk(kScanBytes);
    const int64_t end = starts_[static_cast<size_t>(record)];
    for (int64_t offset = 0; offset < end; offset += kScanBytes) {
      const std::span<std::byte> bytes(chunk.data(), static_cast<size_t>(std::min(kScanBytes, end - offset)));
      bytes_->read_at(offset, bytes);
      line += std::count(bytes.begin(), bytes.end(), std::byte{'\n'});
    }
    return "line " + std::to_string(line);
  }

 private:
  [[noreturn]] void fail(int64_t record, ErrorCode code, const std::string& what) const {
    FormatError error(code, record_name(record) + ": " + what,
                      "repair the line, or pass bad records over (--dataloader.on-bad-record=skip)");
    error.set_path(path_);
    throw error;
  }

  void take_field(int64_t record, const simdjson::dom::object& object, std::string* text) const {
    bool is_found = false;
    std::string others;
    for (const auto& [key, value] : object) {
      if (key != field_) {
        if (others.size() < 100) others += (others.empty() ? "'" : ", '") + printable(key, 40) + "'";
        continue;
      }
      if (is_found) fail(record, ErrorCode::kDuplicate, "field '" + field_ + "' occurs twice");
      std::string_view content;
      if (value.get(content)) {
        fail(record, ErrorCode::kBadFormat,
             "field '" + field_ + "' is " + std::string(type_name(value.type())) + ", expected a string");
      }
      text->assign(content);
      is_found = true;
    }
    if (is_found) return;
    fail(record, ErrorCode::kMissingKey,
         "no field '" + field_ + "' (it has " + (others.empty() ? "none" : others) +
             "; --dataloader.text-field names the one to read)");
  }

  // The line's bytes, in the window, with room behind them. Records read one after another share a window;
  // any other reads no more than itself.
  std::string_view load(int64_t record) {
    const int64_t begin = starts_[static_cast<size_t>(record)];
    const int64_t length = starts_[static_cast<size_t>(record) + 1] - begin;
    if (length > kMaxRecordBytes) {
      fail(record, ErrorCode::kTooLarge,
           "the line takes " + std::to_string(length) + " bytes, at most 1 GiB is read");
    }
    if (!range_in_window(begin, length)) {
      const int64_t wanted = begin == last_end_ ? std::max(length, kWindowBytes) : length;
      const int64_t size = std::min(wanted, bytes_->size() - begin);
      window_.resize(static_cast<size_t>(size) + simdjson::SIMDJSON_PADDING);
      window_begin_ = begin;
      window_end_ = begin;
      bytes_->read_at(begin, std::span(window_).first(static_cast<size_t>(size)));
      window_end_ = begin + size;
    }
    last_end_ = begin + length;
    return as_text(
        std::span(window_).subspan(static_cast<size_t>(begin - window_begin_), static_cast<size_t>(length)));
  }
  bool range_in_window(int64_t begin, int64_t length) const {
    return begin >= window_begin_ && begin <= window_end_ && window_end_ - begin >= length && length > 0;
  }

  std::shared_ptr<const ByteSource> bytes_;
  std::string path_, field_;
  std::vector<int64_t> starts_;
  ByteVector window_;
  int64_t window_begin_ = 0, window_end_ = 0, last_end_ = 0;
  simdjson::dom::parser parser_;
};

}  // namespace

std::unique_ptr<RecordFile> open_json_lines(std::shared_ptr<const ByteSource> bytes, std::string path,
                                            std::string text_field) {
  return std::make_unique<JsonLines>(std::move(bytes), std::move(path), std::move(text_field));
}

}  // namespace milepost::data
