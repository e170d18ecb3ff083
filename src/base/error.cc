#include "milepost/base/error.h"

#include <fmt/format.h>

#include <cstring>

namespace milepost {
namespace {

// Length of the valid UTF-8 sequence at the start of `text`, 0 when it is not one or is a C1 control.
size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (byte(0) == 0xc2 && byte(1) < 0xa0) return 0;
  if (byte(0) == 0xe0 && byte(1) < 0xa0) return 0;
  if (byte(0) == 0xed && byte(1) >= 0xa0) return 0;
  if (byte(0) == 0xf0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xf4 && byte(1) >= 0x90) return 0;
  return length;
}

}  // namespace

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadArgument:
      return "bad_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kExists:
      return "exists";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kNoSpace:
      return "no_space";
    case ErrorCode::kLocked:
      return "locked";
    case ErrorCode::kBadFormat:
      return "bad_format";
    case ErrorCode::kTruncated:
      return "truncated";
    case ErrorCode::kOutOfBounds:
      return "out_of_bounds";
    case ErrorCode::kOverlap:
      return "overlap";
    case ErrorCode::kHole:
      return "hole";
    case ErrorCode::kDuplicate:
      return "duplicate";
    case ErrorCode::kChecksum:
      return "checksum";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kRefusedGlobal:
      return "refused_global";
    case ErrorCode::kPathEscape:
      return "path_escape";
    case ErrorCode::kMissingFile:
      return "missing_file";
    case ErrorCode::kMissingKey:
      return "missing_key";
    case ErrorCode::kShapeMismatch:
      return "shape_mismatch";
    case ErrorCode::kLossyCast:
      return "lossy_cast";
    case ErrorCode::kTooLarge:
      return "too_large";
    case ErrorCode::kBadManifest:
      return "bad_manifest";
  }
  return "unknown";
}

std::string printable(std::string_view text, size_t max_length) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (out.size() >= max_length) return out + "...";
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      if (const size_t length = utf8_sequence(text.substr(i))) {
        out.append(text, i, length);
        i += length;
        continue;
      }
    }
    switch (c) {
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\'':
        out += "\\'";
        break;
      default:
        if (c < 0x20 || c >= 0x7f) {
          out += fmt::format("\\x{:02x}", c);
        } else {
          out += static_cast<char>(c);
        }
    }
    ++i;
  }
  return out;
}

Error::Error(ErrorCode code, std::string what_happened, std::string hint)
    : code_(code), summary_(std::move(what_happened)), hint_(std::move(hint)) {
  rebuild();
}

Error& Error::set_path(std::string_view path) {
  if (path_.empty()) path_ = path;
  rebuild();
  return *this;
}

Error& Error::set_key(std::string_view key) {
  if (key_.empty()) key_ = key;
  rebuild();
  return *this;
}

Error& Error::set_offset(int64_t offset) {
  if (offset_ < 0) offset_ = offset;
  rebuild();
  return *this;
}

Error& Error::set_hint(std::string_view hint) {
  if (hint_.empty()) hint_ = hint;
  rebuild();
  return *this;
}

Error& Error::set_error_number(int error_number) {
  if (error_number_ == 0) error_number_ = error_number;
  rebuild();
  return *this;
}

void Error::rebuild() {
  std::string where;
  if (!path_.empty()) where += printable(path_, 400);
  if (!key_.empty()) where += fmt::format("{}entry '{}'", where.empty() ? "" : ": ", printable(key_));
  if (offset_ >= 0) where += fmt::format("{}at byte {}", where.empty() ? "" : ", ", offset_);
  text_ = where.empty() ? summary_ : where + ": " + summary_;
  if (error_number_ != 0) {
    const char* description = strerrordesc_np(error_number_);
    text_ += fmt::format(": {}", description != nullptr ? description : "unknown system error");
  }
  if (!hint_.empty()) text_ += "; " + hint_;
}

StorageError::StorageError(ErrorCode code, std::string what_happened, std::string_view path, int error_number)
    : Error(code, std::move(what_happened)) {
  set_path(path);
  set_error_number(error_number);
}

}  // namespace milepost
