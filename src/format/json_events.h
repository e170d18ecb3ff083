// JSON as a stream of events, so that a file of any size is read without a tree of it in memory and repeated
// keys are seen.
#pragma once

#include <cstdint>
#include <string>

#include "milepost/base/bytes.h"

namespace milepost {

enum class JsonKind : uint8_t {
  kNull,
  kBool,
  kUnsigned,  // an integer in [0, 2^64), written without sign, point or exponent
  kNumber,    // any other number
  kString,
  kObject,
  kArray,
};

struct JsonValue {
  JsonKind kind;
  uint64_t number = 0;  // of kUnsigned
  std::string* text =
      nullptr;  // of kString the content, which may be moved from; of kNumber as it was written
};

// The document lies at depth 0, the members of an object or array one deeper than it. A listener ends the
// reading by throwing.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void key(int depth, std::string& name) = 0;         // of the member that follows, at the same depth
  virtual void value(int depth, const JsonValue& value) = 0;  // a scalar, or the start of an object or array
  virtual void end(int depth) = 0;  // of the object or array that started at `depth`
};

// Reads exactly one document: RFC 8259, UTF-8, white space around it. Takes one bit of memory per open
// bracket and never recurses. Throws FormatError kBadFormat, whose offset is `base_offset` + the position in
// `text`, and what `events` throws.
void parse_json(Bytes text, int64_t base_offset, JsonEvents& events);

}  // namespace milepost
