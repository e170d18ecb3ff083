// Sizes and counts as people write and read them: GB is 10^9 bytes, GiB is 2^30.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace milepost::cli {

// "4096", "5GB", "1.5 GiB", "128MiB", "64k"; letters in any case, "B" may be left out. nullopt for anything
// else, for negative numbers and for more than 2^63 - 1 bytes.
std::optional<int64_t> parse_bytes(std::string_view text);

// Shortest that parse_bytes reads back: "128MiB", "5GB", "1000001".
std::string bytes_flag_text(int64_t num_bytes);

// For people, three or four digits: "0 bytes", "999 bytes", "1.50 kB", "943.7 MB", "8.06 GB".
std::string bytes_text(int64_t num_bytes);

// "1,234,567"
std::string count_text(int64_t count);
// "3 tensors", "1 tensor"
std::string count_text(int64_t count, std::string_view noun);

// "0.02 s", "12.4 s", "3 min 05 s", "2 h 07 min"
std::string seconds_text(double seconds);

}  // namespace milepost::cli
