#include <algorithm>
#include <cmath>

#include "format/pickle_arena.h"
#include "format/pickle_text.h"
#include "milepost/base/checked_math.h"
#include "milepost/tensor/box.h"

namespace milepost::pickle {
namespace {

constexpr int kMaxJsonDepth = 1000;
constexpr char kHex[] = "0123456789abcdef";

void append_escape(std::string* out, uint32_t code_unit) {
  *out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out->push_back(kHex[code_unit >> shift & 15]);
}

bool is_surrogate(uint32_t c) { return c >= 0xd800 && c <= 0xdfff; }

// JSON text with everything above U+007E escaped, as json.dumps gives by default: what Python's sort
// compares.
std::string ascii_only(std::string_view json) {
  std::string out;
  for (size_t i = 0; i < json.size();) {
    const uint32_t c = next_code_point(json, &i);
    if (c < 0x7f) {
      out.push_back(static_cast<char>(c));
    } else if (c < 0x10000) {
      append_escape(&out, c);
    } else {
      append_escape(&out, 0xd800 + ((c - 0x10000) >> 10));
      append_escape(&out, 0xdc00 + ((c - 0x10000) & 0x3ff));
    }
  }
  return out;
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonOptions& options) : options_(options), nodes_left_(options.max_nodes) {}

  std::string take() { return std::move(out_); }

  void write(const Value& v) {
    if (++depth_ > kMaxJsonDepth) too_large("containers nest more than 1000 deep, or hold themselves");
    spend(1);
    write_kind(v);
    --depth_;
  }

 private:
  void write_kind(const Value& v) {
    switch (v.kind()) {
      case Kind::kNone:
        out_ += "null";
        return;
      case Kind::kBool:
        out_ += v.as_bool() ? "true" : "false";
        return;
      case Kind::kInt:
        write_integer(v.as_int());
        return;
      case Kind::kBigInt:
        write_tagged("$int", v.text());
        return;
      case Kind::kFloat:
        write_float(v.as_double());
        return;
      case Kind::kString:
        write_text(v.text());
        return;
      case Kind::kBytes:
      case Kind::kByteArray:
        write_bytes(v.text());
        return;
      case Kind::kList:
        write_items(v);
        return;
      case Kind::kTuple:
        write_tagged_items("$tuple", v);
        return;
      case Kind::kSize:
        write_tagged_items("$size", v);
        return;
      case Kind::kSlice:
        write_tagged_items("$slice", v);
        return;
      case Kind::kRange:
        write_tagged_items("$range", v);
        return;
      case Kind::kComplex:
        write_tagged_items("$complex", v);
        return;
      case Kind::kSet:
      case Kind::kFrozenSet:
        write_set(v);
        return;
      case Kind::kDict:
        write_dict(v);
        return;
      case Kind::kDType:
        write_tagged("$dtype", dtype_name(v.dtype()));
        return;
      case Kind::kDevice:
        write_tagged("$device", v.text());
        return;
      case Kind::kPath:
        write_tagged("$path", v.text());
        return;
      case Kind::kStorage:
        write_tagged("$storage", v.text());
        return;
      case Kind::kTensor:
        write_tensor(v.tensor());
        return;
      case Kind::kGlobal:
        write_tagged("$global", v.class_name());
        return;
      case Kind::kOpaque:
        write_tagged("$opaque", v.class_name());
        return;
      case Kind::kObject:
        write_object(v);
        return;
    }
  }

  [[noreturn]] static void too_large(const std::string& what) {
    throw FormatError(ErrorCode::kTooLarge, "the value is too large to show: " + what);
  }
  void spend(int64_t nodes) {
    nodes_left_ -= nodes;
    if (nodes_left_ < 0) too_large("more than " + std::to_string(options_.max_nodes) + " nodes");
  }

  void write_integer(int64_t x) {
    constexpr int64_t kExact = int64_t{1} << 53;
    if (x > -kExact && x < kExact) {
      out_ += std::to_string(x);
    } else {
      write_tagged("$int", std::to_string(x));
    }
  }

  void write_float(double x) {
    if (std::isfinite(x)) {
      out_ += float_text(x);
    } else {
      write_tagged("$float", float_text(x));
    }
  }

  void write_text(std::string_view text) {
    spend(static_cast<int64_t>(text.size() / 256));
    out_.push_back('"');
    for (size_t i = 0; i < text.size();) {
      const size_t start = i;
      const uint32_t c = next_code_point(text, &i);
      static constexpr std::string_view kShort = "\"\\\n\r\t\b\f", kLetter = "\"\\nrtbf";
      const size_t at = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
      if (at != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kLetter[at]);
      } else if (c < 0x20 || (c >= 0x7f && c < 0xa0) || is_surrogate(c)) {
        append_escape(&out_, c);
      } else {
        out_ += text.substr(start, i - start);
      }
    }
    out_.push_back('"');
  }

  void write_bytes(std::string_view bytes) {
    if (options_.nested_pickles && looks_like_pickle(bytes) && write_nested(bytes)) return;
    spend(static_cast<int64_t>(bytes.size() / 256));
    out_ += "{\"$bytes\": \"";
    for (const char c : bytes) {
      out_.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      out_.push_back(kHex[c & 15]);
    }
    out_ += "\"}";
  }

  // False when the bytes are no whole pickle after all.
  bool write_nested(std::string_view bytes) {
    spend(static_cast<int64_t>(bytes.size() / 16));  // reading it costs about as much as showing it
    Options options;
    options.profile = Profile::kPlain;
    options.keep_unknown_globals = true;
    Document document;
    try {
      document = read(as_bytes(bytes), options, "nested pickle");
    } catch (const FormatError&) {
      return false;
    }
    if (document.bytes_read() != static_cast<int64_t>(bytes.size())) return false;
    out_ += "{\"$pickle\": ";
    write(document.root());
    out_ += "}";
    return true;
  }

  void write_items(const Value& v) {
    out_.push_back('[');
    for (int64_t i = 0; i < v.size(); ++i) {
      if (i != 0) out_ += ", ";
      write(v.item(i));
    }
    out_.push_back(']');
  }

  void open_tag(std::string_view tag) {
    out_ += "{\"";
    out_ += tag;
    out_ += "\": ";
  }
  void write_tagged(std::string_view tag, std::string_view text) {
    open_tag(tag);
    write_text(text);
    out_.push_back('}');
  }
  void write_tagged_items(std::string_view tag, const Value& v) {
    open_tag(tag);
    write_items(v);
    out_.push_back('}');
  }

  void write_set(const Value& v) {
    std::vector<std::pair<std::string, std::string>> elements;  // sort key, text
    std::string outside = std::move(out_);
    for (int64_t i = 0; i < v.size(); ++i) {
      out_.clear();
      write(v.item(i));
      elements.emplace_back(ascii_only(out_), out_);
    }
    out_ = std::move(outside);
    std::sort(elements.begin(), elements.end());
    open_tag("$set");
    for (size_t i = 0; i < elements.size(); ++i) {
      out_ += i == 0 ? "[" : ", ";
      out_ += elements[i].second;
    }
    out_ += elements.empty() ? "[]}" : "]}";
  }

  void write_dict(const Value& v) {
    bool plain = v.class_name().empty();
    for (int64_t i = 0; i < v.size() && plain; ++i) {
      plain = v.key(i).kind() == Kind::kString && !v.key(i).text().starts_with('$');
    }
    out_ += plain ? "{" : "{\"$dict\": [";
    for (int64_t i = 0; i < v.size(); ++i) {
      if (i != 0) out_ += ", ";
      if (!plain) out_.push_back('[');
      write(v.key(i));
      out_ += plain ? ": " : ", ";
      write(v.value(i));
      if (!plain) out_.push_back(']');
    }
    if (!plain) {
      const std::string_view name = v.class_name();
      out_ += "], \"$class\": ";
      write_text(name.empty() ? "dict" : name.substr(name.find(' ') + 1));
    }
    out_.push_back('}');
  }

  void write_tensor(const TensorRef& ref) {
    open_tag("$tensor");
    out_ += "{\"dtype\": ";
    write_text(dtype_name(ref.dtype));
    out_ += ", \"shape\": " + dims_text(ref.sizes);
    out_ += ", \"nbytes\": " + std::to_string(num_elements(ref.sizes) * dtype_size(ref.dtype));
    if (options_.tensor_sha256) {
      out_ += ", \"sha256\": ";
      write_text(options_.tensor_sha256(ref));
    }
    out_ += "}}";
  }

  void write_object(const Value& v) {
    open_tag("$object");
    write_text(v.class_name());
    if (v.state() != nullptr) {
      out_ += ", \"state\": ";
      write(*v.state());
    }
    out_.push_back('}');
  }

  const JsonOptions& options_;
  int64_t nodes_left_;
  int depth_ = 0;
  std::string out_;
};

}  // namespace

std::string to_json(const Value& value, const JsonOptions& options) {
  JsonWriter writer(options);
  writer.write(value);
  return writer.take();
}

std::string to_json(const Value& value, bool nested_pickles, int64_t max_nodes) {
  JsonOptions options;
  options.nested_pickles = nested_pickles;
  options.max_nodes = max_nodes;
  return to_json(value, options);
}

}  // namespace milepost::pickle
