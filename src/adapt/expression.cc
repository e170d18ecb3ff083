#include "adapt/expression.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

// Operators by how tightly they bind, loosest first; of those that begin alike the longer one first.
struct Level {
  std::array<std::string_view, 6> operators;
};
constexpr std::array<Level, 5> kLevels = {Level{{"||"}}, Level{{"&&"}},
                                          Level{{"==", "!=", "<=", ">=", "<", ">"}}, Level{{"+", "-"}},
                                          Level{{"*", "/"}}};

class Evaluator {
 public:
  Evaluator(std::string_view text, const Variables& variables) : text_(text), variables_(variables) {}

  int64_t run() {
    const int64_t value = level(0);
    skip_space();
    if (at_ != text_.size()) fail();
    return value;
  }

 private:
  [[noreturn]] void fail() const {
    throw ValueError(
        fmt::format("the expression '{}' of a key table cannot be read at character {}", text_, at_));
  }

  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool take(std::string_view token) {
    skip_space();
    if (token.empty() || !text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  std::string_view take_operator(size_t index) {
    for (std::string_view candidate : kLevels[index].operators) {
      if (take(candidate)) return candidate;
    }
    return {};
  }

  int64_t level(size_t index) {
    if (index == kLevels.size()) return operand();
    int64_t value = level(index + 1);
    for (std::string_view op; !(op = take_operator(index)).empty();)
      value = apply(op, value, level(index + 1));
    return value;
  }

  int64_t apply(std::string_view op, int64_t a, int64_t b) const {
    if (op == "||") return (a != 0 || b != 0) ? 1 : 0;
    if (op == "&&") return (a != 0 && b != 0) ? 1 : 0;
    if (op == "==") return a == b ? 1 : 0;
    if (op == "!=") return a != b ? 1 : 0;
    if (op == "<=") return a <= b ? 1 : 0;
    if (op == ">=") return a >= b ? 1 : 0;
    if (op == "<") return a < b ? 1 : 0;
    if (op == ">") return a > b ? 1 : 0;
    int64_t result = 0;
    const bool fits = op == "+"   ? checked_add(a, b, &result)
                      : op == "-" ? !__builtin_sub_overflow(a, b, &result)
                      : op == "*" ? checked_mul(a, b, &result)
                                  : divide(a, b, &result);
    if (fits) return result;
    throw ValueError(fmt::format("the model's sizes make '{}' more than 64 bits hold", text_),
                     "correct the model's sizes", ErrorCode::kTooLarge);
  }

  bool divide(int64_t a, int64_t b, int64_t* quotient) const {
    if (b == 0) fail();
    if (b == -1) return !__builtin_sub_overflow(int64_t{0}, a, quotient);
    *quotient = a / b;
    return true;
  }

  int64_t operand() {
    if (take("!")) return operand() == 0 ? 1 : 0;
    if (take("(")) {
      const int64_t value = level(0);
      if (!take(")")) fail();
      return value;
    }
    skip_space();
    size_t end = at_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '_'))
      ++end;
    const std::string_view word = text_.substr(at_, end - at_);
    if (word.empty()) fail();
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || stop != word.data() + word.size()) number = variables_.get(word);
    at_ = end;
    return number;
  }

  std::string_view text_;
  const Variables& variables_;
  size_t at_ = 0;
};

}  // namespace

int64_t Variables::get(std::string_view name) const {
  for (auto it = values_.rbegin(); it != values_.rend(); ++it) {
    if (it->first == name) return it->second;
  }
  throw ValueError(fmt::format("a key table names '{}', which the model does not have", name));
}

int64_t evaluate(std::string_view expression, const Variables& variables) {
  return Evaluator(expression, variables).run();
}

Dims evaluate_dims(std::string_view expressions, const Variables& variables) {
  Dims dims;
  while (!expressions.empty()) {
    const size_t comma = expressions.find(',');
    dims.push_back(evaluate(expressions.substr(0, comma), variables));
    expressions = comma == std::string_view::npos ? std::string_view() : expressions.substr(comma + 1);
  }
  return dims;
}

std::string fill(std::string_view pattern, const Variables& variables) {
  std::string out;
  for (size_t open; (open = pattern.find('{')) != std::string_view::npos;) {
    const size_t close = pattern.find('}', open);
    out += pattern.substr(0, open);
    out += fmt::format("{}", evaluate(pattern.substr(open + 1, close - open - 1), variables));
    pattern.remove_prefix(close + 1);
  }
  return out.append(pattern);
}

}  // namespace milepost::adapt
