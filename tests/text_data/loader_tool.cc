// Runs a data loader for the tests around it:   loader_tool REQUEST.json
//
// The request holds the loader's options by their names in LoaderOptions, and
//   tokenizer   folder, or "bytes": begin 256, end 257, bytes as they are
//   restore     {"titan_entry": file, "titan_world_size": n, "ledger": file}, each optional
//   batches     how many to read (fewer when the data runs out)
//   prefetch    true: through a Prefetcher
//   save        {"titan_entry": file, "ledger_part": file}, each optional: written after the batches
// Standard output: a line {"inputs", "positions", "labels"} (lists of rows) a batch, then one line
// {"messages", "skipped", "is_exact"}. Exit status 3 after an error, which is written to standard error.
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "milepost/base/error.h"
#include "milepost/data/prefetch.h"

namespace milepost::data {
namespace {

using Json = nlohmann::json;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

DocumentEncoder encoder(const std::string& tokenizer) {
  if (tokenizer != "bytes") return document_encoder(text::Tokenizer::load(tokenizer));
  return {.fingerprint = "bytes",
          .vocab_size = 258,
          .encode = [](std::string_view text, std::vector<int32_t>* ids) {
            ids->push_back(256);
            for (char c : text) ids->push_back(static_cast<unsigned char>(c));
            ids->push_back(257);
          }};
}

LoaderOptions options(const Json& request) {
  LoaderOptions o;
  o.dataset = request.value("dataset", std::string("text"));
  o.dataset_path = request.value("dataset_path", std::string());
  for (const Json& source : request.value("sources", Json::array())) {
    o.sources.push_back({.dataset = source.value("dataset", std::string("text")),
                         .dataset_path = source.at("dataset_path"),
                         .weight = source.at("weight")});
  }
  o.interleave_seed = request.value("interleave_seed", uint64_t{42});
  if (request.value("stopping_strategy", std::string()) == "all_exhausted") {
    o.stopping_strategy = StoppingStrategy::kAllExhausted;
  }
  o.infinite = request.value("infinite", true);
  o.local_batch_size = request.value("local_batch_size", int64_t{2});
  o.seq_len = request.value("seq_len", int64_t{16});
  o.dp_rank = request.value("dp_rank", int64_t{0});
  o.dp_world = request.value("dp_world", int64_t{1});
  if (request.value("order", std::string()) == "global") o.order = DataOrder::kGlobal;
  o.text_field = request.value("text_field", std::string("text"));
  if (request.value("on_bad_record", std::string()) == "skip") o.on_bad_record = OnBadRecord::kSkip;
  o.token_cache = request.value("token_cache", std::string());
  o.model_vocab_size = request.value("model_vocab_size", int64_t{0});
  return o;
}

SavedLoader saved(const Json& restore) {
  SavedLoader out;
  if (restore.contains("titan_entry")) out.titan_entry = read_file(restore["titan_entry"]);
  if (restore.contains("titan_world_size")) out.titan_world_size = restore["titan_world_size"].get<int64_t>();
  if (restore.contains("ledger")) out.ledger = read_file(restore["ledger"]);
  return out;
}

Json rows(const Batch& batch, const std::vector<int64_t>& values) {
  Json out = Json::array();
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto begin = values.begin() + row * batch.seq_len;
    out.push_back(std::vector<int64_t>(begin, begin + batch.seq_len));
  }
  return out;
}

void run(const Json& request) {
  auto loader = Loader::open(posix_storage(), options(request),
                             encoder(request.value("tokenizer", std::string("bytes"))));
  if (request.contains("restore")) loader->restore(saved(request["restore"]));
  Loader& plain = *loader;
  std::optional<Prefetcher> ahead;
  if (request.value("prefetch", false)) ahead.emplace(std::move(loader));
  for (int64_t i = 0; i < request.value("batches", int64_t{1}); ++i) {
    const std::optional<Batch> batch = ahead ? ahead->next() : plain.next();
    if (!batch) break;
    std::cout << Json{{"inputs", rows(*batch, batch->inputs)},
                      {"positions", rows(*batch, batch->positions)},
                      {"labels", rows(*batch, batch->labels)}}
              << "\n";
  }
  bool is_exact = false;
  const std::string entry =
      ahead ? ahead->titan_entry(&is_exact) : plain.titan_entry(plain.state(), &is_exact);
  const Json save = request.value("save", Json::object());
  if (save.contains("titan_entry")) write_file(save["titan_entry"], entry);
  if (save.contains("ledger_part")) {
    write_file(save["ledger_part"], ahead ? ahead->ledger_part() : plain.ledger_part(plain.state()));
  }
  Json messages = Json::array();
  for (const Message& message : ahead ? ahead->take_messages() : plain.take_messages()) {
    messages.push_back((message.is_warning ? "WARNING " : "INFO ") + message.text);
  }
  const int64_t skipped = ahead ? ahead->num_skipped() : plain.source().num_skipped();
  std::cout << Json{{"messages", messages}, {"skipped", skipped}, {"is_exact", is_exact}} << "\n";
}

}  // namespace
}  // namespace milepost::data

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: loader_tool REQUEST.json\n";
    return 2;
  }
  try {
    milepost::data::run(nlohmann::json::parse(milepost::data::read_file(argv[1])));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 3;
  }
  return 0;
}
