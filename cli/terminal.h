// Terminal: how the tool speaks. Results go to standard output, errors and progress to standard error.
//
// Colours and bars appear only on a terminal; colours also not when NO_COLOR is set or TERM is "dumb".
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace milepost::cli {

enum class Colour { kRed, kYellow, kGreen, kCyan, kBold, kDim };

class Terminal {
 public:
  // Looks at the two streams and the environment once. With `json`, output is for machines: no colours, no
  // bars.
  explicit Terminal(bool json);

  bool json() const { return json_; }
  bool shows_bars() const { return shows_bars_; }
  int columns() const;  // of standard error's terminal, 80 when it does not say

  // Text for standard output (or error), coloured where that is a terminal.
  std::string paint(Colour colour, std::string_view text) const { return paint(colour, text, colours_out_); }
  std::string paint_error(Colour colour, std::string_view text) const {
    return paint(colour, text, colours_err_);
  }

  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    write(fmt::format(format, std::forward<Args>(args)...));
  }
  void write(std::string_view text) const;  // to standard output

  // Whether everything written has reached standard output; call last.
  bool flush() const;

 private:
  static std::string paint(Colour colour, std::string_view text, bool coloured);

  bool json_, colours_out_, colours_err_, shows_bars_;
};

// `text` broken at spaces into lines of at most `columns`; longer words stay whole.
std::string wrapped(std::string_view text, size_t columns);

}  // namespace milepost::cli
