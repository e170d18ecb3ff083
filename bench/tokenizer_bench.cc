// tokenizer_bench FOLDER TEXT ROUNDS: how fast Encoder::encode is on one thread, over the documents of a
// file; prints the tokens and the seconds of each round. bench/tokenizer.py puts it beside the peer.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/text/tokenizer.h"

namespace {

// Documents are separated by a line feed, a form feed and a line feed.
std::vector<std::string> read_documents(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> documents;
  constexpr std::string_view kSeparator = "\n\f\n";
  size_t begin = 0;
  for (size_t end = all.find(kSeparator); end != std::string::npos; end = all.find(kSeparator, begin)) {
    documents.push_back(all.substr(begin, end - begin));
    begin = end + kSeparator.size();
  }
  documents.push_back(all.substr(begin));
  return documents;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: tokenizer_bench FOLDER TEXT ROUNDS\n");
    return 2;
  }
  try {
    const auto tokenizer = milepost::text::Tokenizer::load(argv[1]);
    const std::vector<std::string> documents = read_documents(argv[2]);
    for (int round = 0; round < std::atoi(argv[3]); ++round) {
      // A new encoder: its caches are empty, as the peer's are not after its first round.
      milepost::text::Encoder encoder(tokenizer);
      std::vector<int32_t> ids;
      size_t num_tokens = 0;
      const auto begin = std::chrono::steady_clock::now();
      for (const std::string& document : documents) {
        ids.clear();
        encoder.encode(document, false, false, &ids);
        num_tokens += ids.size();
      }
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      fmt::print("{} {:.6f}\n", num_tokens, seconds.count());
    }
  } catch (const milepost::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
