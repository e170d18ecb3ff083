#include "config/box.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace milepost::config {
namespace {

constexpr size_t kInside = 76;  // 80 less the frame and a space on both sides

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// The bytes of the first `count` characters.
size_t bytes_of(std::string_view text, size_t count) {
  size_t seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (starts_character(text[i]) && seen++ == count) return i;
  }
  return text.size();
}

std::string repeated(std::string_view piece, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += piece;
  return text;
}

void wrap_line(std::string_view text, size_t width, std::vector<std::string>* lines) {
  std::string line;
  bool has_word = false;
  const auto flush = [&] {
    lines->push_back(std::exchange(line, {}));
    has_word = false;
  };
  for (size_t begin = 0; begin < text.size();) {
    if (text[begin] == ' ') {
      ++begin;
      continue;
    }
    size_t end = std::min(text.find(' ', begin), text.size());
    std::string_view word = text.substr(begin, end - begin);
    begin = end;
    if (has_word && columns(line) + 1 + columns(word) > width) flush();
    while (columns(word) > width) {
      const size_t head = bytes_of(word, width);
      lines->emplace_back(word.substr(0, head));
      word.remove_prefix(head);
    }
    if (has_word) line += ' ';
    line += word;
    has_word = true;
  }
  flush();
}

std::string visible(std::string_view text) {
  std::string shown;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  return shown;
}

}  // namespace

size_t columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::vector<std::string> wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    wrap_line(text.substr(begin, end - begin), width, &lines);
    begin = end + 1;
  }
  return lines;
}

void Box::add(std::string_view text, size_t indent) {
  for (const std::string& line : wrap(visible(text), kInside - indent)) {
    lines_.push_back({line.empty() ? "" : std::string(indent, ' ') + line, false});
  }
}

std::string Box::text(bool full_width) const {
  size_t width = full_width ? kInside : columns(title_) + 1;
  for (const Line& line : lines_) width = std::max(width, columns(line.text));
  std::string text = fmt::format("╭─ {} {}╮\n", title_, repeated("─", width - columns(title_) - 1));
  for (const Line& line : lines_) {
    const std::string inside =
        line.is_rule ? repeated("─", width) : line.text + std::string(width - columns(line.text), ' ');
    text += fmt::format("│ {} │\n", inside);
  }
  return text + fmt::format("╰{}╯\n", repeated("─", width + 2));
}

}  // namespace milepost::config
