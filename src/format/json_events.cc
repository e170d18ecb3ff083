#include "format/json_events.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "milepost/base/error.h"

namespace milepost {
namespace {

// The library's message without its own prefix and position: "syntax error while parsing ...".
std::string_view reason(std::string_view message) {
  const size_t column = message.find(", column ");
  const size_t colon = column == std::string_view::npos ? column : message.find(": ", column);
  return colon == std::string_view::npos ? message : message.substr(colon + 2);
}

// What nlohmann's parser calls. Its containers' sizes are unknown in JSON and thus ignored.
class Adapter {
 public:
  Adapter(JsonEvents& events, int64_t base_offset) : events_(events), base_offset_(base_offset) {}

  bool null() { return scalar({JsonKind::kNull}); }
  bool boolean(bool) { return scalar({JsonKind::kBool}); }
  bool number_unsigned(uint64_t number) { return scalar({JsonKind::kUnsigned, number}); }
  bool number_integer(int64_t number) {
    std::string text = std::to_string(number);
    return scalar({JsonKind::kNumber, 0, &text});
  }
  bool number_float(double, const std::string& written) {
    std::string text = written;
    return scalar({JsonKind::kNumber, 0, &text});
  }
  bool string(std::string& text) { return scalar({JsonKind::kString, 0, &text}); }
  bool binary(std::vector<uint8_t>&) { return false; }

  bool start_object(size_t) { return open(JsonKind::kObject); }
  bool start_array(size_t) { return open(JsonKind::kArray); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    events_.key(depth_, name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    FormatError refusal(ErrorCode::kBadFormat,
                        fmt::format("not valid JSON ({})", printable(reason(error.what()), 160)));
    refusal.set_offset(base_offset_ + static_cast<int64_t>(position > 0 ? position - 1 : 0));
    throw refusal;
  }

 private:
  bool scalar(const JsonValue& value) {
    events_.value(depth_, value);
    return true;
  }
  bool open(JsonKind kind) {
    events_.value(depth_++, {kind});
    return true;
  }
  bool close() {
    events_.end(--depth_);
    return true;
  }

  JsonEvents& events_;
  int64_t base_offset_;
  int depth_ = 0;
};

[[noreturn]] void refuse(std::string what, int64_t offset) {
  FormatError error(ErrorCode::kBadFormat, std::move(what));
  error.set_offset(offset);
  throw error;
}

}  // namespace

void parse_json(Bytes text, int64_t base_offset, JsonEvents& events) {
  const std::string_view chars = as_text(text);
  // The library takes a NUL for the end of its input and skips a byte order mark; JSON has neither.
  if (const size_t nul = chars.find('\0'); nul != std::string_view::npos) {
    refuse("not valid JSON (a NUL byte)", base_offset + static_cast<int64_t>(nul));
  }
  if (chars.starts_with("\xef\xbb\xbf"))
    refuse("not valid JSON (it starts with a byte order mark)", base_offset);
  Adapter adapter(events, base_offset);
  nlohmann::json::sax_parse(chars.begin(), chars.end(), &adapter);
}

}  // namespace milepost
