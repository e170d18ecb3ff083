// Errors: one family of exceptions, each a record first (code and fields) and a text second.
//
// Every failure of the library is thrown as a class derived from `Error`. The fields say where: the file
// (`path`), the tensor or entry (`key`), the byte (`offset`), the system's `error_number`. `what()` is built
// from them in one place:
//
//   model/__0_0.distcp: entry 'layers.0.wq.weight', at byte 4096: record is cut short (want 512 bytes, 100
//   left); copy the file again or restore it from a backup
//
// Context is added once, by the first caller that knows it (`set_path`, `set_key`: a field already set
// stays), while the exception passes through: `catch (Error& e) { e.set_key(name); throw; }`.
//
// Threads: an Error is a plain value; ThreadPool carries the first one of a parallel job to its caller.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace milepost {

// Stable codes, for `--json` output and tests. Names are part of the interface (`error_code_name`); numbers
// are not.
enum class ErrorCode : uint8_t {
  kBadArgument,    // a flag, an option or a call's argument is wrong
  kNotFound,       // no such file, folder or checkpoint
  kExists,         // the destination exists and overwriting was not asked for
  kIo,             // the system refused a read, write, sync or rename; see error_number
  kNoSpace,        // the disk is full, or would be
  kLocked,         // another process works on the same destination
  kBadFormat,      // bytes are not what the format demands
  kTruncated,      // a file or record ends too early
  kOutOfBounds,    // an offset, length, index or box leaves its container
  kOverlap,        // two things claim the same bytes or elements
  kHole,           // bytes or elements that nothing covers
  kDuplicate,      // a name occurs twice
  kChecksum,       // stored and computed checksums differ
  kUnsupported,    // well-formed, but a feature this version does not handle
  kRefusedGlobal,  // a pickle names a class or function that is not on the fixed list
  kPathEscape,     // a relative path leaves the checkpoint's folder
  kMissingFile,    // a file that the index names is absent
  kMissingKey,     // a tensor or entry is absent
  kShapeMismatch,  // shapes differ
  kLossyCast,      // a cast that loses information and was not asked for
  kTooLarge,       // a count or size beyond what the file or the limit can justify
  kBadManifest,    // manifest incomplete or hashes differ
};

// The code's name as printed in JSON: "bad_argument", "truncated", ...
std::string_view error_code_name(ErrorCode code);

class Error : public std::exception {
 public:
  // `what_happened`: what failed and what was expected, without path, key or offset. `hint`: what the reader
  // can do; may be empty.
  Error(ErrorCode code, std::string what_happened, std::string hint = {});

  ErrorCode code() const { return code_; }
  const std::string& path() const { return path_; }
  const std::string& key() const { return key_; }
  int64_t offset() const { return offset_; }  // byte in `path`; -1 when unknown
  int error_number() const { return error_number_; }
  const std::string& summary() const { return summary_; }  // without the fields and the hint
  const std::string& hint() const { return hint_; }
  const char* what() const noexcept override { return text_.c_str(); }

  // Each sets its field when it is still unset and rebuilds the text. Control characters in paths and keys
  // are escaped in the text only.
  Error& set_path(std::string_view path);
  Error& set_key(std::string_view key);
  Error& set_offset(int64_t offset);
  Error& set_hint(std::string_view hint);
  Error& set_error_number(int error_number);  // its text is appended to the summary

 private:
  void rebuild();

  ErrorCode code_;
  std::string summary_, hint_, path_, key_;
  int64_t offset_ = -1;
  int error_number_ = 0;
  std::string text_;
};

// A bad configuration, flag or argument.
class ValueError : public Error {
 public:
  explicit ValueError(std::string what_happened, std::string hint = {},
                      ErrorCode code = ErrorCode::kBadArgument)
      : Error(code, std::move(what_happened), std::move(hint)) {}
};

// A file is not what it claims to be, or asks for what is refused.
class FormatError : public Error {
 public:
  FormatError(ErrorCode code, std::string what_happened, std::string hint = {})
      : Error(code, std::move(what_happened), std::move(hint)) {}
};

// The system failed an operation on `path`.
class StorageError : public Error {
 public:
  StorageError(ErrorCode code, std::string what_happened, std::string_view path, int error_number = 0);
};

class CheckpointManifestError : public Error {
 public:
  explicit CheckpointManifestError(std::string what_happened, std::string hint = {})
      : Error(ErrorCode::kBadManifest, std::move(what_happened), std::move(hint)) {}
};

class MissingKeyError : public Error {
 public:
  explicit MissingKeyError(std::string what_happened, std::string hint = {})
      : Error(ErrorCode::kMissingKey, std::move(what_happened), std::move(hint)) {}
};

class ShapeMismatchError : public Error {
 public:
  explicit ShapeMismatchError(std::string what_happened, std::string hint = {})
      : Error(ErrorCode::kShapeMismatch, std::move(what_happened), std::move(hint)) {}
};

// `text` with control characters, quotes and backslashes escaped (\n, \x1b) and cut at `max_length` bytes,
// for messages and terminals. UTF-8 above U+009F passes unchanged; invalid bytes become \xNN.
std::string printable(std::string_view text, size_t max_length = 200);

}  // namespace milepost
