// A torch.save archive (spec dcp-format, section 3.1), of which torch's reader needs:
//
//   1. all records lie below one top folder, that of the directory's first record, of any name
//   2. data.pkl: the object; data/N: its storages
//   3. version: a decimal number from 1 to 10; old writers have it as .data/version
//   4. byteorder: "little" or "big"; without it little
//   5. constants.pkl makes it a TorchScript archive, which holds a program
//
// Before torch 1.6 a file was a row of pickles, the first of them a magic number.
#include "format/torch_zip_archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "format/zip_error.h"
#include "milepost/base/error.h"
#include "milepost/format/torch_zip.h"

namespace milepost::torch_zip {
namespace {

using zip::fail;

constexpr int64_t kMaxVersion = 10;
constexpr int64_t kMaxSmallBytes = 64;
constexpr size_t kFewRecords = 16;
constexpr int64_t kMaxPickleBytes = int64_t{1} << 30;
// PROTO 2, LONG1 of ten bytes: 0x1950a86a20f9469cfc6c
constexpr std::string_view kPreZipMagic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

}  // namespace

void refuse_pre_zip(const ByteSource& source) {
  std::array<std::byte, kPreZipMagic.size()> start;
  if (source.size() < static_cast<int64_t>(start.size())) return;
  source.read_at(0, start);
  if (as_text(start) != kPreZipMagic) return;
  fail(source, ErrorCode::kUnsupported, 0,
       "the file has torch's legacy layout from before version 1.6, not a zip archive",
       "load it with torch and save it again with torch.save");
}

void refuse_legacy(const ByteSource& file) {
  refuse_pre_zip(file);
  std::array<std::byte, 4> start;
  if (file.size() < static_cast<int64_t>(start.size())) return;
  file.read_at(0, start);
  if (as_text(start) == "PK\3\4") Archive archive(file);
}

Archive::Archive(const ByteSource& source) : source_(source) {
  try {
    records_ = zip::read_directory(source);
  } catch (const FormatError&) {
    refuse_pre_zip(source);
    throw;
  }
  if (records_.empty()) fail(source, ErrorCode::kBadFormat, -1, "the zip archive is empty");
  top_bytes_ = records_[0].name.find('/') + 1;
  if (top_bytes_ == 0) {
    fail(source, ErrorCode::kBadFormat, -1,
         fmt::format("not a torch.save archive: record '{}' lies in no folder", printable(records_[0].name)));
  }
  if (records_.size() > kFewRecords) {
    index_.reserve(records_.size());
    for (size_t i = 0; i < records_.size(); ++i) index_.emplace(name_below_top(records_[i]), i);
  }
  if (find("constants.pkl") != nullptr) {
    fail(source, ErrorCode::kUnsupported, -1,
         "the file is a TorchScript archive: a program, not a checkpoint",
         "save the module's state_dict() with torch.save");
  }
  const zip::Record* pickle = find("data.pkl");
  if (pickle == nullptr) {
    fail(source, ErrorCode::kBadFormat, -1,
         fmt::format("not a torch.save archive: there is no record '{}data.pkl'",
                     printable(records_[0].name.substr(0, top_bytes_))));
  }
  pickle_ = static_cast<size_t>(pickle - records_.data());
  check_version();
  read_byte_order();
}

std::string_view Archive::name_below_top(const zip::Record& record) const {
  std::string_view top = std::string_view(records_[0].name).substr(0, top_bytes_);
  std::string_view name = record.name;
  return name.substr(0, top_bytes_) == top ? name.substr(top_bytes_) : std::string_view();
}

zip::Record* Archive::find(std::string_view name) {
  if (!index_.empty()) {
    auto it = index_.find(name);
    return it == index_.end() ? nullptr : &records_[it->second];
  }
  for (zip::Record& record : records_) {
    if (record.name.size() == top_bytes_ + name.size() && name_below_top(record) == name) return &record;
  }
  return nullptr;
}

std::string Archive::read_small(zip::Record& record) {
  return std::string(as_text(zip::read_record(source_, record, kMaxSmallBytes, false)));
}

void Archive::check_version() {
  zip::Record* record = find("version");
  if (record == nullptr) record = find(".data/version");
  if (record == nullptr)
    fail(source_, ErrorCode::kBadFormat, -1, "not a torch.save archive: there is no version record");
  std::string text = read_small(*record);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  int64_t version = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size() || version < 1) {
    fail(source_, ErrorCode::kBadFormat, record->data_offset,
         fmt::format("archive version '{}' is not a number from 1 on", printable(text)));
  }
  if (version > kMaxVersion) {
    fail(source_, ErrorCode::kUnsupported, record->data_offset,
         fmt::format("archive version {} is newer than the {} that can be read", version, kMaxVersion));
  }
}

void Archive::read_byte_order() {
  zip::Record* record = find("byteorder");
  if (record == nullptr) return;
  std::string text = read_small(*record);
  big_endian_ = text == "big";
  if (!big_endian_ && text != "little") {
    fail(source_, ErrorCode::kUnsupported, record->data_offset,
         fmt::format("unknown byte order '{}'", printable(text)));
  }
}

ByteVector Archive::read_pickle() {
  return zip::read_record(source_, pickle_record(), kMaxPickleBytes, true);
}

zip::Record& Archive::storage(std::string_view key, int64_t expected_bytes) {
  zip::Record* record = find(fmt::format("data/{}", key));
  if (record == nullptr) {
    fail(source_, ErrorCode::kBadFormat, -1,
         fmt::format("storage '{}' has no record 'data/{}'", printable(key), printable(key)));
  }
  if (record->method != zip::kStored) {
    fail(source_, ErrorCode::kUnsupported, record->header_offset,
         fmt::format("record '{}' is compressed; tensors are read from stored records only",
                     printable(record->name)),
         "load the file with torch and save it again");
  }
  if (expected_bytes >= 0 && record->size != expected_bytes) {
    fail(source_, ErrorCode::kBadFormat, record->header_offset,
         fmt::format("record '{}' has {} bytes, but the pickle says {}", printable(record->name),
                     record->size, expected_bytes));
  }
  zip::locate(source_, *record);
  return *record;
}

}  // namespace milepost::torch_zip
