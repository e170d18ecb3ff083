#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace milepost::cli {
namespace {

bool wants_colours(int stream) {
  const char *no_colour = std::getenv("NO_COLOR"), *term = std::getenv("TERM");
  if (no_colour != nullptr && *no_colour != '\0') return false;
  return isatty(stream) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

std::string_view code_of(Colour colour) {
  switch (colour) {
    case Colour::kRed:
      return "31";
    case Colour::kYellow:
      return "33";
    case Colour::kGreen:
      return "32";
    case Colour::kCyan:
      return "36";
    case Colour::kBold:
      return "1";
    case Colour::kDim:
      return "2";
  }
  return "0";
}

}  // namespace

Terminal::Terminal(bool json)
    : json_(json),
      colours_out_(!json && wants_colours(STDOUT_FILENO)),
      colours_err_(!json && wants_colours(STDERR_FILENO)),
      shows_bars_(!json && isatty(STDERR_FILENO) == 1) {}

int Terminal::columns() const {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Terminal::write(std::string_view text) const { std::fwrite(text.data(), 1, text.size(), stdout); }

bool Terminal::flush() const { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

std::string Terminal::paint(Colour colour, std::string_view text, bool coloured) {
  return coloured ? fmt::format("\x1b[{}m{}\x1b[0m", code_of(colour), text) : std::string(text);
}

std::string wrapped(std::string_view text, size_t columns) {
  std::string out;
  size_t column = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const std::string_view word = text.substr(start, end - start);
    if (column > 0 && column + 1 + word.size() > columns) {
      out += '\n';
      column = 0;
    }
    if (column > 0) out += ' ', ++column;
    out += word;
    column += word.size();
    start = end + 1;
  }
  return out;
}

}  // namespace milepost::cli
