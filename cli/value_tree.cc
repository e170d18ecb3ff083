#include "value_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "milepost/base/error.h"
#include "milepost/tensor/box.h"
#include "units.h"

namespace milepost::cli {
namespace {

using pickle::Kind;
using pickle::Value;

constexpr size_t kMaxText = 400;
constexpr size_t kMaxBytesShown = 16;
constexpr size_t kMaxLineWidth = 100;
constexpr int64_t kMaxPickleBytes = int64_t{64} << 20;

std::string bytes_summary(std::string_view bytes) {
  std::string text = fmt::format("{} [", count_text(static_cast<int64_t>(bytes.size()), "byte"));
  for (size_t i = 0; i < std::min(bytes.size(), kMaxBytesShown); ++i) {
    text += fmt::format("{}{:02x}", i == 0 ? "" : " ", static_cast<unsigned char>(bytes[i]));
  }
  return text + (bytes.size() > kMaxBytesShown ? " ...]" : "]");
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".enai") == std::string::npos ? text + ".0" : text;
}

std::string tensor_summary(const pickle::TensorRef& tensor) {
  return fmt::format("tensor {} {}", dims_text(tensor.sizes), dtype_name(tensor.dtype));
}

bool is_list_like(Kind kind) {
  return kind == Kind::kList || kind == Kind::kTuple || kind == Kind::kSet || kind == Kind::kFrozenSet;
}

class Tree {
 public:
  explicit Tree(const ValueTreeLimits& limits) : limits_(limits) {}

  std::string run(std::string_view name, const Value& value) {
    add(name, value, 0);
    if (full_) text_ += fmt::format("... (cut at {} lines)\n", limits_.max_lines);
    return std::move(text_);
  }

 private:
  // One line for a value, with its children below where they do not fit on it.
  void add(std::string_view name, const Value& value, int depth) {
    if (lines_ >= limits_.max_lines) {
      full_ = true;
      return;
    }
    if (depth > limits_.max_depth) return line(name, "... (nested deeper)", depth);
    switch (value.kind()) {
      case Kind::kDict:
        return add_dict(name, value, depth);
      case Kind::kList:
      case Kind::kTuple:
      case Kind::kSet:
      case Kind::kFrozenSet:
        return add_list(name, value, depth);
      case Kind::kObject:
        line(name, fmt::format("object of class {}", printable(value.class_name())), depth);
        if (value.state() != nullptr) add("state", *value.state(), depth + 1);
        return;
      case Kind::kBytes:
      case Kind::kByteArray:
        return add_bytes(name, value, depth);
      default:
        return line(name, scalar(value), depth);
    }
  }

  void add_dict(std::string_view name, const Value& value, int depth) {
    const std::string kind = value.class_name().empty() ? "dict" : printable(value.class_name());
    line(name, fmt::format("{} of {}", kind, count_text(value.size(), "item")), depth);
    for (int64_t i = 0; i < value.size() && !full_; ++i) {
      const Value& key = value.key(i);
      add(key.kind() == Kind::kString ? printable(key.text()) : scalar(key), value.value(i), depth + 1);
    }
  }

  void add_list(std::string_view name, const Value& value, int depth) {
    if (const std::string whole = inline_list(value); !whole.empty()) return line(name, whole, depth);
    line(name, fmt::format("{} of {}", list_name(value.kind()), count_text(value.size(), "item")), depth);
    for (int64_t i = 0; i < value.size() && !full_; ++i)
      add(fmt::format("[{}]", i), value.item(i), depth + 1);
  }

  void add_bytes(std::string_view name, const Value& value, int depth) {
    const std::string_view bytes = value.text();
    if (!pickle::looks_like_pickle(bytes) || static_cast<int64_t>(bytes.size()) > kMaxPickleBytes) {
      return line(name, bytes_summary(bytes), depth);
    }
    try {
      pickle::Options options;
      options.profile = pickle::Profile::kPlain;
      options.keep_unknown_globals = true;
      const pickle::Document nested = pickle::read(as_bytes(bytes), options, "nested pickle");
      line(name,
           fmt::format("{} that hold a pickle:", count_text(static_cast<int64_t>(bytes.size()), "byte")),
           depth);
      add("pickle", nested.root(), depth + 1);
    } catch (const FormatError&) {
      line(name, bytes_summary(bytes), depth);  // they only looked like one
    }
  }

  static std::string_view list_name(Kind kind) {
    switch (kind) {
      case Kind::kTuple:
        return "tuple";
      case Kind::kSet:
        return "set";
      case Kind::kFrozenSet:
        return "frozenset";
      default:
        return "list";
    }
  }

  // Whether the first items, as many as could be shown, need no lines of their own.
  bool is_plain(const Value& list) const {
    for (int64_t i = 0; i < std::min(list.size(), limits_.max_items_inline); ++i) {
      const Kind kind = list.item(i).kind();
      if (is_list_like(kind) || kind == Kind::kDict || kind == Kind::kObject || kind == Kind::kBytes ||
          kind == Kind::kByteArray) {
        return false;
      }
    }
    return true;
  }

  // A list of plain values on one line, cut when it is long; empty when it needs several.
  std::string inline_list(const Value& list) const {
    if (!is_plain(list)) return {};
    std::string text;
    int64_t shown = 0;
    while (shown < std::min(list.size(), limits_.max_items_inline) && text.size() < kMaxLineWidth) {
      text += (shown == 0 ? "" : ", ") + scalar(list.item(shown));
      ++shown;
    }
    if (shown < list.size()) {
      text += fmt::format(", ... {} in all", count_text(list.size()));
    } else if (list.kind() == Kind::kTuple && shown == 1) {
      text += ",";
    }
    if (list.kind() == Kind::kTuple) return "(" + text + ")";
    if (list.kind() == Kind::kList) return "[" + text + "]";
    return fmt::format("{} {{{}}}", list_name(list.kind()), text);
  }

  static std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return "None";
      case Kind::kBool:
        return value.as_bool() ? "True" : "False";
      case Kind::kInt:
        return fmt::format("{}", value.as_int());
      case Kind::kBigInt:
        return printable(value.text(), kMaxText);
      case Kind::kFloat:
        return float_text(value.as_double());
      case Kind::kComplex:
        return numbers(value);
      case Kind::kString:
        return fmt::format("'{}'", printable(value.text(), kMaxText));
      case Kind::kBytes:
      case Kind::kByteArray:
        return bytes_summary(value.text());
      case Kind::kSize:
      case Kind::kSlice:
      case Kind::kRange:
        return numbers(value);
      case Kind::kDType:
        return fmt::format("dtype {}", dtype_name(value.dtype()));
      case Kind::kDevice:
        return fmt::format("device '{}'", printable(value.text()));
      case Kind::kPath:
        return fmt::format("path '{}'", printable(value.text()));
      case Kind::kStorage:
        return fmt::format("storage {}", printable(value.text()));
      case Kind::kTensor:
        return tensor_summary(value.tensor());
      case Kind::kGlobal:
        return printable(value.class_name());
      case Kind::kOpaque:
        return fmt::format("refused: {}", printable(value.class_name()));
      default:
        return fmt::format("{} of {}", value.kind() == Kind::kDict ? "dict" : list_name(value.kind()),
                           value.kind() == Kind::kObject ? "1 object" : count_text(value.size(), "item"));
    }
  }

  static std::string numbers_name(Kind kind) {
    switch (kind) {
      case Kind::kSize:
        return "Size";
      case Kind::kSlice:
        return "slice";
      case Kind::kComplex:
        return "complex";
      default:
        return "range";
    }
  }

  static std::string numbers(const Value& value) {
    std::string text = numbers_name(value.kind()) + "(";
    for (int64_t i = 0; i < std::min<int64_t>(value.size(), 64); ++i) {
      const Kind kind = value.item(i).kind();
      text += i == 0 ? "" : ", ";
      const bool is_number =
          kind == Kind::kInt || kind == Kind::kBigInt || kind == Kind::kFloat || kind == Kind::kNone;
      text += is_number ? scalar(value.item(i)) : "?";
    }
    return text + ")";
  }

  void line(std::string_view name, const std::string& content, int depth) {
    ++lines_;
    text_ += fmt::format("{:{}}{}: {}\n", "", depth * 2, name, content);
  }

  const ValueTreeLimits& limits_;
  std::string text_;
  int64_t lines_ = 0;
  bool full_ = false;
};

}  // namespace

std::string value_tree(std::string_view name, const Value& value, const ValueTreeLimits& limits) {
  return Tree(limits).run(name, value);
}

}  // namespace milepost::cli
