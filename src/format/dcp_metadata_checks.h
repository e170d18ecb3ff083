// What both readers of `.metadata` conclude in the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "milepost/format/dcp.h"

namespace milepost::dcp {

// Whether `path` stays inside the folder and is in its plain form: relative, '/' between names, none of them
// "", "." or
// "..", no NUL.
bool is_inside_folder(std::string_view path);

// What a file may make its reader copy, hash and store: a long text, or the list of chunks of a tensor, can
// be referred to again and again at a few bytes each. Torch's files need about once their size.
class Budget {
 public:
  explicit Budget(int64_t file_bytes) : left_(kTimes * file_bytes + (int64_t{1} << 20)) {}
  [[nodiscard]] bool spend(size_t bytes) {
    left_ -= static_cast<int64_t>(bytes);
    return left_ >= 0;
  }
  static constexpr int64_t kTimes = 64;

 private:
  int64_t left_;
};

// Things that nothing in the checkpoint refers to: how many, and the first one.
struct Strays {
  int64_t count = 0;
  std::string first;

  void add(std::string_view name) {
    if (count++ == 0) first = name;
  }
};

// Fills `warnings` (version, stray entries, in this order) and `writer`, when all else is read.
void conclude(const Strays& storage_entries, const Strays& paths, bool has_storage_meta, Metadata* metadata);

}  // namespace milepost::dcp
