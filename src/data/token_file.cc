#include "data/token_file.h"

#include <algorithm>
#include <cstring>

#include "milepost/base/checked_math.h"
#include "milepost/base/checksum.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

constexpr char kMagic[] = "MPTOKEN1";
constexpr int64_t kHeadBytes = 80;
constexpr int64_t kBlockBytes = 1 << 20;
constexpr uint64_t kBadRecord = uint64_t{1} << 63;

struct Head {
  char magic[8];
  uint32_t id_bytes, crc_ends, crc_ids, zero;
  char key[32];
  int64_t first_document, num_documents, num_ids;
};
static_assert(sizeof(Head) == kHeadBytes);

[[noreturn]] void fail(const ByteSource& source, ErrorCode code, const std::string& what) {
  FormatError error(code, "token cache: " + what, "it is made again");
  error.set_path(source.name());
  throw error;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

Head read_head(const ByteSource& source, const TokenFileIdentity& identity) {
  Head head;
  if (source.size() < kHeadBytes) fail(source, ErrorCode::kTruncated, "the file is shorter than its head");
  source.read_at(0, std::as_writable_bytes(std::span(&head, 1)));
  if (std::memcmp(head.magic, kMagic, 8) != 0 || head.zero != 0 ||
      head.id_bytes != static_cast<uint32_t>(identity.id_bytes) ||
      std::string_view(head.key, 32) != identity.key || head.first_document != identity.first_document ||
      head.num_documents != identity.num_documents) {
    fail(source, ErrorCode::kBadFormat, "the head is not that of this part of the data set");
  }
  int64_t ids_size = 0, size = 0;
  if (head.num_ids < 0 || !checked_mul(head.num_ids, identity.id_bytes, &ids_size) ||
      !checked_add(kHeadBytes + 8 * identity.num_documents, ids_size, &size) || size != source.size()) {
    fail(source, ErrorCode::kTruncated, "the file's size is not what its head says");
  }
  return head;
}

}  // namespace

TokenFile::TokenFile(std::unique_ptr<ByteSource> source, const TokenFileIdentity& identity, bool check)
    : source_(std::move(source)), id_bytes_(identity.id_bytes) {
  const Head head = read_head(*source_, identity);
  num_ids_ = head.num_ids;
  ids_offset_ = kHeadBytes + 8 * identity.num_documents;
  ends_.resize(static_cast<size_t>(identity.num_documents));
  source_->read_at(kHeadBytes, std::as_writable_bytes(std::span(ends_)));
  uint64_t last = 0;
  for (uint64_t end : ends_) {
    const uint64_t at = end & ~kBadRecord;
    if (at < last) fail(*source_, ErrorCode::kBadFormat, "documents' ends are not in order");
    last = at;
  }
  if (last != static_cast<uint64_t>(num_ids_) || crc32(0, bytes_of(ends_)) != head.crc_ends) {
    fail(*source_, ErrorCode::kChecksum, "documents' ends differ from what was written");
  }
  if (check) check_ids(head.crc_ids);
}

void TokenFile::check_ids(uint32_t expected) const {
  ByteVector block(kBlockBytes);
  uint32_t crc = 0;
  for (int64_t at = ids_offset_; at < source_->size(); at += kBlockBytes) {
    const std::span<std::byte> part(block.data(),
                                    static_cast<size_t>(std::min(kBlockBytes, source_->size() - at)));
    source_->read_at(at, part);
    crc = crc32(crc, part);
  }
  if (crc != expected) fail(*source_, ErrorCode::kChecksum, "ids differ from what was written");
}

int64_t TokenFile::begin(int64_t document) const {
  return document == 0 ? 0 : static_cast<int64_t>(ends_[static_cast<size_t>(document) - 1] & ~kBadRecord);
}

int64_t TokenFile::count(int64_t document) const { return begin(document + 1) - begin(document); }

bool TokenFile::read(int64_t document, std::vector<int32_t>* ids) {
  if (ends_[static_cast<size_t>(document)] & kBadRecord) return false;
  const auto num_ids = static_cast<size_t>(count(document));
  if (num_ids == 0) return true;
  const int64_t offset = ids_offset_ + begin(document) * id_bytes_;
  const size_t old_size = ids->size();
  ids->resize(old_size + num_ids);
  const std::span<int32_t> out = std::span(*ids).subspan(old_size);
  if (id_bytes_ == 4) {
    source_->read_at(offset, std::as_writable_bytes(out));
    return true;
  }
  narrow_.resize(num_ids);
  source_->read_at(offset, std::as_writable_bytes(std::span(narrow_)));
  std::copy(narrow_.begin(), narrow_.end(), out.begin());
  return true;
}

TokenFileWriter::TokenFileWriter(Storage& storage, const std::string& path, TokenFileIdentity identity)
    : identity_(std::move(identity)),
      file_(storage.open_write(path, {.expected_size_bytes = -1, .direct = false})),
      offset_(kHeadBytes + 8 * identity_.num_documents) {}

void TokenFileWriter::add(std::span<const int32_t> ids, bool is_bad) {
  num_ids_ += std::ssize(ids);
  ends_.push_back(static_cast<uint64_t>(num_ids_) | (is_bad ? kBadRecord : 0));
  if (identity_.id_bytes == 4) {
    const Bytes bytes = std::as_bytes(ids);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  } else {
    for (int32_t id : ids) {
      buffer_.push_back(static_cast<std::byte>(id));
      buffer_.push_back(static_cast<std::byte>(id >> 8));
    }
  }
  if (std::ssize(buffer_) >= kBlockBytes) flush();
}

void TokenFileWriter::flush() {
  if (buffer_.empty()) return;
  const Bytes bytes = buffer_;
  file_->write_at(offset_, {&bytes, 1});
  crc_ids_ = crc32(crc_ids_, bytes);
  offset_ += std::ssize(bytes);
  buffer_.clear();
}

void TokenFileWriter::finish() {
  flush();
  Head head{.magic = {},
            .id_bytes = static_cast<uint32_t>(identity_.id_bytes),
            .crc_ends = crc32(0, bytes_of(ends_)),
            .crc_ids = crc_ids_,
            .zero = 0,
            .key = {},
            .first_document = identity_.first_document,
            .num_documents = identity_.num_documents,
            .num_ids = num_ids_};
  std::memcpy(head.magic, kMagic, 8);
  std::memcpy(head.key, identity_.key.data(), 32);
  const std::array<Bytes, 2> parts{std::as_bytes(std::span(&head, 1)), bytes_of(ends_)};
  file_->write_at(0, parts);
  file_->close();
}

}  // namespace milepost::data
