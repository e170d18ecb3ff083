// What is refused in the two forms of a loader's state.
#include "milepost/data/loader_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "milepost/base/error.h"
#include "milepost/format/pickle.h"

namespace milepost::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

ErrorCode code_of(const std::function<void()>& f, std::string* text = nullptr) {
  try {
    f();
  } catch (const Error& error) {
    if (text) *text = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kIo;
}

TitanLoaderState example() {
  return {.buffers = {{1, 2, 3}, {2, 3, 4}, {0, 1, 2}},
          .sample_idx = 5,
          .epoch = 2,
          .num_batches = 7,
          .warnings = {}};
}

// TorchTitan's state with one key left out, of the dictionary or of its `dataset_state`.
std::string without(std::string_view key) {
  const std::string whole = write_titan_state(example(), 2);
  const pickle::Document document =
      pickle::read(as_bytes(whole), {.profile = pickle::Profile::kPlain}, "whole");
  pickle::Builder builder;
  const auto filtered = [&](const pickle::Value& dict, const auto& self) -> const pickle::Value* {
    std::vector<const pickle::Value*> items;
    for (int64_t i = 0; i < dict.size(); ++i) {
      if (dict.key(i).text() == key) continue;
      items.push_back(builder.copy(dict.key(i)));
      const bool is_dict = dict.value(i).kind() == pickle::Kind::kDict;
      items.push_back(is_dict ? self(dict.value(i), self) : builder.copy(dict.value(i)));
    }
    return builder.dict(items);
  };
  const pickle::Value* root = filtered(document.root(), filtered);
  const pickle::Document cut = builder.finish(root);
  VectorSink sink;
  pickle::write(cut.root(), sink);
  return std::string(as_text(sink.data));
}

TEST(TitanLoaderState, SurvivesItsForm) {
  const TitanLoaderState state = example();
  const TitanLoaderState read = read_titan_state(write_titan_state(state, 2), "entry");
  EXPECT_EQ(read.buffers, state.buffers);
  EXPECT_EQ(read.sample_idx, 5);
  EXPECT_EQ(read.epoch, 2);
  EXPECT_EQ(read.num_batches, 7);
  EXPECT_TRUE(read.warnings.empty());
}

TEST(TitanLoaderState, HoldsAllNineKeys) {
  for (const char* key :
       {"_index_sampler_state", "_sampler_iter_state", "_sampler_iter_yielded", "_num_yielded",
        "_IterableDataset_len_called", "_shared_seed", "fetcher_state", "dataset_state", "_iterator_finished",
        "inputs_buffer", "labels_buffer", "sample_idx"}) {
    std::string text;
    EXPECT_EQ(code_of([&] { read_titan_state(without(key), "dataloader.dp_rank_0"); }, &text),
              ErrorCode::kMissingKey);
    EXPECT_THAT(text, AllOf(HasSubstr("dataloader.dp_rank_0"), HasSubstr(std::string("'") + key + "'")));
  }
}

TEST(TitanLoaderState, CountsPositionsWhereTheyAreMissing) {
  const TitanLoaderState read = read_titan_state(without("positions_buffer"), "entry");
  EXPECT_THAT(read.buffers.positions, ElementsAre(0, 1, 2));
  EXPECT_THAT(read.warnings, ElementsAre(HasSubstr("no positions_buffer")));
}

TEST(TitanLoaderState, TakesEpochZeroWhereItIsMissing) {
  EXPECT_EQ(read_titan_state(without("epoch"), "entry").epoch, 0);
}

// A dictionary of these keys, all None.
std::string dictionary(const std::vector<std::string_view>& keys) {
  pickle::Builder builder;
  std::vector<const pickle::Value*> items;
  for (std::string_view key : keys) {
    items.push_back(builder.string(key));
    items.push_back(builder.none());
  }
  const pickle::Document document = builder.finish(builder.dict(items));
  VectorSink sink;
  pickle::write(document.root(), sink);
  return std::string(as_text(sink.data));
}

TEST(TitanLoaderState, RefusesWhatALoaderWithWorkersWrote) {
  std::string text;
  const std::string state = dictionary({"_snapshot", "_steps_since_snapshot", "_iterator_finished"});
  EXPECT_EQ(code_of([&] { read_titan_state(state, "entry"); }, &text), ErrorCode::kUnsupported);
  EXPECT_THAT(text, HasSubstr("dataloader.num_workers > 0"));
}

TEST(TitanLoaderState, RefusesBuffersOfDifferentLengths) {
  TitanLoaderState state = example();
  state.buffers.labels.pop_back();
  EXPECT_EQ(code_of([&] { read_titan_state(write_titan_state(state, 2), "entry"); }), ErrorCode::kBadFormat);
}

TEST(TitanLoaderState, RefusesNegativeNumbersAndOtherBytes) {
  TitanLoaderState state = example();
  state.sample_idx = -1;
  EXPECT_EQ(code_of([&] { read_titan_state(write_titan_state(state, 2), "entry"); }), ErrorCode::kBadFormat);
  EXPECT_EQ(code_of([] { read_titan_state("", "entry"); }), ErrorCode::kTruncated);
  EXPECT_EQ(code_of([] { read_titan_state("N.", "entry"); }), ErrorCode::kBadFormat);
}

LedgerIdentity identity() {
  return {.dataset = "c4_test",
          .data_fingerprint = "data",
          .tokenizer = "tokenizer",
          .num_documents = 100,
          .world = 2};
}

Json ledger() {
  const LoaderState state{
      .order = {.epoch = 1,
                .pending = {{.epoch = 1, .first = 10, .count = 50, .shuffled = true, .from = 3, .to = 50}}},
      .buffers = {{1, 2}, {2, 3}, {4, 5}},
      .num_batches = 9};
  const std::vector<std::string> parts{ledger_part(identity(), state), ledger_part(identity(), state)};
  return Json::parse(join_ledger(parts));
}

TEST(Ledger, SurvivesItsForm) {
  const Ledger read = read_ledger(ledger().dump(), "milepost.data_ledger");
  EXPECT_EQ(read.identity, identity());
  ASSERT_EQ(read.readers.size(), 2u);
  EXPECT_EQ(read.readers[0], read.readers[1]);
  EXPECT_EQ(read.readers[0].order.pending.at(0).from, 3);
  EXPECT_TRUE(read.readers[0].order.pending.at(0).shuffled);
}

TEST(Ledger, RefusesDamage) {
  const auto refuse = [](const char* pointer, const Json& value) {
    Json json = ledger();
    json[Json::json_pointer(pointer)] = value;
    std::string text;
    const ErrorCode code = code_of([&] { read_ledger(json.dump(), "milepost.data_ledger"); }, &text);
    EXPECT_THAT(text, HasSubstr("milepost.data_ledger")) << pointer;
    return code;
  };
  EXPECT_EQ(refuse("/format", 2), ErrorCode::kUnsupported);
  EXPECT_EQ(refuse("/documents", -1), ErrorCode::kBadFormat);
  EXPECT_EQ(refuse("/documents", 59), ErrorCode::kOutOfBounds);
  EXPECT_EQ(refuse("/order", "sorted"), ErrorCode::kBadFormat);
  EXPECT_EQ(refuse("/world", 3), ErrorCode::kBadFormat);
  EXPECT_EQ(refuse("/readers", 3), ErrorCode::kBadFormat);
  EXPECT_EQ(refuse("/readers/0/epoch", 0), ErrorCode::kOutOfBounds);
  EXPECT_EQ(refuse("/readers/0/pending/0", Json::array({1, 2})), ErrorCode::kBadFormat);
  EXPECT_EQ(refuse("/readers/0/pending/0/2", 0), ErrorCode::kOutOfBounds);
  EXPECT_EQ(refuse("/readers/0/pending/0/3", INT64_MAX), ErrorCode::kOutOfBounds);
  EXPECT_EQ(refuse("/readers/0/pending/0/6", 51), ErrorCode::kOutOfBounds);
  EXPECT_EQ(refuse("/readers/0/buffers/0", Json::array({1})), ErrorCode::kBadFormat);
  EXPECT_EQ(refuse("/readers/0/buffers/0/0", uint64_t{1} << 40), ErrorCode::kBadFormat);
  EXPECT_EQ(refuse("/dataset", nullptr), ErrorCode::kBadFormat);
  EXPECT_EQ(code_of([] { read_ledger("{", "x"); }), ErrorCode::kBadFormat);
  EXPECT_EQ(code_of([] { read_ledger("[]", "x"); }), ErrorCode::kBadFormat);
}

}  // namespace
}  // namespace milepost::data
