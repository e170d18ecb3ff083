// The text that torch's Hugging Face writer leaves in a file's metadata to say which part of its tensor each
// entry is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "milepost/format/safetensors.h"

namespace milepost::safetensors {

inline constexpr std::string_view kShardingInfoKey = "DCP_SHARDING_INFO";

// Names in the text that the file has no entry for.
struct Strangers {
  int64_t count = 0;
  std::string first;
};

// Sets `saved_offsets` of the entries that `text` names; `find` gives the entry of a name or nullptr. Throws
// FormatError (key: the tensor, or __metadata__ where the text is no such thing).
Strangers read_sharding_info(std::string_view text, const std::function<Entry*(std::string_view)>& find);

}  // namespace milepost::safetensors
