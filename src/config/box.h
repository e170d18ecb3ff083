// Text in a frame of 80 columns, as the help and errors of TorchTitan's command line look.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace milepost::config {

// Characters of UTF-8 text, each taken as one column wide.
size_t columns(std::string_view text);

// `text` in lines of at most `width` columns, broken at spaces, and inside words that are longer than a line.
// Line feeds in `text` stay. At least one line.
std::vector<std::string> wrap(std::string_view text, size_t width);

class Box {
 public:
  explicit Box(std::string title) : title_(std::move(title)) {}

  // Lines of the frame, wrapped; each is indented by `indent` columns. Control characters are made visible.
  void add(std::string_view text, size_t indent = 0);
  // A horizontal line.
  void add_rule() { lines_.push_back({"", true}); }

  // With line feeds. As wide as the widest line needs; `full_width`: always 80 columns.
  std::string text(bool full_width) const;

 private:
  struct Line {
    std::string text;
    bool is_rule = false;
  };
  std::string title_;
  std::vector<Line> lines_;
};

}  // namespace milepost::config
