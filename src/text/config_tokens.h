// tokenizer_config.json: which tokens are special.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"

namespace milepost::text {

struct ConfigTokens {
  std::vector<AddedToken> tokens;  // in the order in which they are to be added
  std::optional<std::string> bos, eos;
  bool add_bos = false, add_eos = false;
};

// Throws FormatError, the JSON pointer as its key.
ConfigTokens read_tokenizer_config(std::string_view json);

}  // namespace milepost::text
