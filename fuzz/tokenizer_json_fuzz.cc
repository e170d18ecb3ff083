// Any bytes as tokenizer.json and tokenizer_config.json. What loads must encode a text, afresh and out of its
// cache, to the same ids, or refuse it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "milepost/base/error.h"
#include "text/config_tokens.h"
#include "text/piece_encoder.h"

namespace {

using namespace milepost::text;

constexpr std::string_view kText = "Hello  world, it's 12345 \u6F22\u5B57\n\n  x e\u0301 <s>\U0001F600\t";

void check_tokenizer(std::string_view json) {
  std::vector<std::string> warnings;
  const std::unique_ptr<Pipeline> pipeline = read_tokenizer_json(json, &warnings);
  std::vector<int32_t> first, second;
  PieceEncoder encoder(*pipeline);
  encoder.encode(kText, &first);
  encoder.encode(kText, &second);  // out of the cache
  if (first != second) std::abort();
  pipeline->decode(first, false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    check_tokenizer(json);
  } catch (const milepost::Error&) {
  }
  try {
    read_tokenizer_config(json);
  } catch (const milepost::Error&) {
  }
  return 0;
}
