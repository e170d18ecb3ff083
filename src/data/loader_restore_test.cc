// Loader states in checkpoints: TorchTitan's entry, and the ledger on other numbers of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "data/test_data.h"
#include "milepost/base/error.h"
#include "milepost/data/loader.h"

namespace milepost::data {
namespace {

using testing::HasSubstr;

constexpr const char* kFolder = MILEPOST_TEST_DATA "/loader/";

std::string file_content(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

template <typename F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// As the runs in tests/data/loader were.
std::unique_ptr<Loader> run_loader(int64_t rank, int64_t world) {
  return Loader::open(posix_storage(),
                      {.dataset_path = std::string(kFolder) + "data.json",
                       .local_batch_size = 2,
                       .seq_len = 64,
                       .dp_rank = rank,
                       .dp_world = world},
                      byte_encoder());
}

SavedLoader titan(const std::string& run, int64_t step, int64_t rank, int64_t world) {
  return {.titan_entry = file_content(run + "-step-" + std::to_string(step) + "-rank" + std::to_string(rank) +
                                      ".pickle"),
          .titan_world_size = world,
          .ledger = {}};
}

std::vector<int64_t> first_eight(const std::vector<int64_t>& values) {
  return {values.begin(), values.begin() + 8};
}

void expect_row(const Batch& batch, const nlohmann::json& row) {
  EXPECT_EQ(first_eight(batch.inputs), row["first_tokens"].get<std::vector<int64_t>>());
  EXPECT_EQ(first_eight(batch.positions), row["first_positions"].get<std::vector<int64_t>>());
  EXPECT_EQ(first_eight(batch.labels), row["first_labels"].get<std::vector<int64_t>>());
}

TEST(LoaderRestore, ReadsWhatTorchTitanRead) {
  for (int64_t world : {1, 2}) {
    const auto rows =
        nlohmann::json::parse(file_content(world == 1 ? "one_rank-rows.json" : "fsdp2-rows.json"));
    const auto loader = run_loader(0, world);
    for (const auto& row : rows) expect_row(*loader->next(), row);
  }
}

TEST(LoaderRestore, GoesOnFromTorchTitansStateAtTheNextBatch) {
  for (int64_t world : {1, 2}) {
    const std::string run = world == 1 ? "one_rank" : "fsdp2";
    const auto rows = nlohmann::json::parse(file_content(run + "-rows.json"));
    for (int64_t rank = 0; rank < world; ++rank) {
      const auto loader = run_loader(rank, world);
      loader->restore(titan(run, 5, rank, world));
      for (size_t step = 5; step < 10; ++step) {
        const Batch batch = *loader->next();
        if (rank == 0) expect_row(batch, rows[step]);
      }
      const auto later = run_loader(rank, world);
      later->restore(titan(run, 10, rank, world));
      EXPECT_EQ(loader->state(), later->state()) << run << " rank " << rank;
    }
  }
}

TEST(LoaderRestore, WritesTorchTitansState) {
  const auto loader = run_loader(1, 2);
  for (int i = 0; i < 5; ++i) loader->next();
  bool is_exact = false;
  const TitanLoaderState ours = read_titan_state(loader->titan_entry(loader->state(), &is_exact), "ours");
  const TitanLoaderState theirs = read_titan_state(*titan("fsdp2", 5, 1, 2).titan_entry, "theirs");
  EXPECT_TRUE(is_exact);
  EXPECT_EQ(ours.buffers, theirs.buffers);
  EXPECT_EQ(ours.sample_idx, theirs.sample_idx);
  EXPECT_EQ(ours.epoch, theirs.epoch);
  EXPECT_EQ(ours.num_batches, theirs.num_batches);
}

TEST(LoaderRestore, RefusesTorchTitansStateOfAnotherDegree) {
  const auto loader = run_loader(2, 4);
  EXPECT_THAT(message_of([&] { loader->restore({.titan_entry = {}, .titan_world_size = 2, .ledger = {}}); }),
              AllOf(HasSubstr("data-parallel degree 2"), HasSubstr("this run has 4"),
                    HasSubstr("'dataloader.dp_rank_2' is missing"),
                    HasSubstr("--checkpoint.exclude-from-loading dataloader")));
  // A rank that has an entry says the same.
  EXPECT_THAT(message_of([&] { run_loader(0, 2)->restore(titan("one_rank", 5, 0, 1)); }),
              AllOf(HasSubstr("data-parallel degree 1"), HasSubstr("this run has 2"),
                    HasSubstr("'dataloader.dp_rank_1' is missing")));
  EXPECT_THAT(message_of([&] { run_loader(0, 1)->restore(titan("fsdp2", 5, 0, 2)); }),
              HasSubstr("this run has 1"));
}

TEST(LoaderRestore, StartsAfreshWithAWarningWithoutAState) {
  const auto loader = run_loader(1, 2);
  loader->take_messages();
  loader->restore({});
  const std::vector<Message> messages = loader->take_messages();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].text, "DataLoader state is empty for dp rank 1, expected key dp_rank_1");
}

TEST(LoaderRestore, RefusesTorchTitansStateOfALargerDataSet) {
  const auto loader = list_loader(numbered_documents({9, 9}), {.local_batch_size = 2, .seq_len = 64});
  EXPECT_THAT(message_of([&] { loader->restore(titan("one_rank", 5, 0, 1)); }),
              HasSubstr("has read 5 documents, more than"));
}

// Ranks with loaders, that read, stop, and go on as another number of ranks.
class Fleet {
 public:
  Fleet(std::vector<std::vector<int32_t>> documents, bool infinite)
      : documents_(std::move(documents)), infinite_(infinite) {}

  void start(int64_t world, DataOrder order, const std::optional<std::string>& ledger) {
    loaders_.clear();
    for (int64_t rank = 0; rank < world; ++rank) {
      loaders_.push_back(list_loader(documents_, {.dataset = "numbers",
                                                  .infinite = infinite_,
                                                  .local_batch_size = 2,
                                                  .seq_len = 8,
                                                  .dp_rank = rank,
                                                  .dp_world = world,
                                                  .order = order}));
      if (ledger) loaders_.back()->restore({.titan_entry = {}, .titan_world_size = {}, .ledger = *ledger});
    }
    order_ = order;
  }

  // Every rank reads so many batches; false when all have run out.
  bool read(int count) {
    bool any = false;
    for (int i = 0; i < count; ++i) {
      for (const auto& loader : loaders_) {
        const std::optional<Batch> batch = loader->next();
        if (!batch) continue;
        any = true;
        for (int64_t label : batch->labels) ++labels_[label];
      }
    }
    return any;
  }

  std::string ledger() const {
    std::vector<std::string> parts;
    for (const auto& loader : loaders_) parts.push_back(loader->ledger_part(loader->state()));
    return join_ledger(parts);
  }

  // How often each token was a label, what lies in buffers and what is not read yet included.
  std::map<int64_t, int64_t> all_labels() const {
    std::map<int64_t, int64_t> counts = labels_;
    const size_t num_readers = order_ == DataOrder::kGlobal ? 1 : loaders_.size();
    int64_t last_epoch = 0;
    for (const auto& loader : loaders_) last_epoch = std::max(last_epoch, loader->state().order.epoch);
    for (size_t i = 0; i < num_readers; ++i) {
      const LoaderState state = loaders_[i]->state();
      for (int32_t label : state.buffers.labels) ++counts[label];
      DocumentOrder rest({.num_documents = std::ssize(documents_), .file_documents = {}},
                         static_cast<int64_t>(i), static_cast<int64_t>(num_readers), true);
      rest.set_state(state.order);
      while (rest.state().epoch < last_epoch || !rest.state().pending.empty()) {
        const std::vector<int32_t>& ids = documents_[static_cast<size_t>(*rest.next())];
        for (size_t t = 1; t < ids.size(); ++t) ++counts[ids[t]];
      }
    }
    return counts;
  }
  int64_t last_epoch() const {
    int64_t last = 0;
    for (const auto& loader : loaders_) last = std::max(last, loader->state().order.epoch);
    return last;
  }

 private:
  std::vector<std::vector<int32_t>> documents_;
  bool infinite_;
  DataOrder order_ = DataOrder::kTorchTitan;
  std::vector<std::unique_ptr<Loader>> loaders_;
  std::map<int64_t, int64_t> labels_;
};

std::map<int64_t, int64_t> each_label(const std::vector<std::vector<int32_t>>& documents, int64_t times) {
  std::map<int64_t, int64_t> counts;
  for (const auto& ids : documents) {
    for (size_t t = 1; t < ids.size(); ++t) counts[ids[t]] += times;
  }
  return counts;
}

TEST(LoaderRestore, LedgerGivesEveryTokenOncePerEpochOnAnyRanks) {
  std::mt19937 random(11);
  const auto documents = numbered_documents(mixed_lengths(70));
  for (int round = 0; round < 60; ++round) {
    Fleet fleet(documents, /*infinite=*/true);
    std::optional<std::string> ledger;
    for (int change = 0; change < 5; ++change) {
      const DataOrder order = random() % 4 == 0 ? DataOrder::kGlobal : DataOrder::kTorchTitan;
      fleet.start(1 + static_cast<int64_t>(random() % 8), order, ledger);
      fleet.read(static_cast<int>(random() % 20));
      ASSERT_EQ(fleet.all_labels(), each_label(documents, fleet.last_epoch() + 1)) << "round " << round;
      ledger = fleet.ledger();
    }
  }
}

TEST(LoaderRestore, LedgerGoesOnExactlyOnTheSameRanks) {
  const auto documents = numbered_documents(mixed_lengths(70));
  Fleet whole(documents, true), stopped(documents, true);
  whole.start(3, DataOrder::kTorchTitan, {});
  stopped.start(3, DataOrder::kTorchTitan, {});
  for (int i = 0; i < 10; ++i) {
    whole.read(3);
    stopped.read(3);
    stopped.start(3, DataOrder::kTorchTitan, stopped.ledger());
  }
  EXPECT_EQ(whole.ledger(), stopped.ledger());
}

TEST(LoaderRestore, FiniteDataIsReadToItsEndAcrossChangesOfRanks) {
  const auto documents = numbered_documents(mixed_lengths(70));
  Fleet fleet(documents, /*infinite=*/false);
  fleet.start(4, DataOrder::kTorchTitan, {});
  fleet.read(3);
  fleet.start(7, DataOrder::kTorchTitan, fleet.ledger());
  fleet.read(1);
  fleet.start(2, DataOrder::kTorchTitan, fleet.ledger());
  while (fleet.read(1)) continue;
  EXPECT_EQ(fleet.all_labels(), each_label(documents, 1));
}

TEST(LoaderRestore, SaysThatTorchTitansEntryIsRoughAfterAReshard) {
  const auto documents = numbered_documents(mixed_lengths(70));
  Fleet fleet(documents, true);
  fleet.start(2, DataOrder::kTorchTitan, {});
  fleet.read(4);
  const LoaderOptions options{
      .dataset = "numbers", .local_batch_size = 2, .seq_len = 8, .dp_rank = 1, .dp_world = 3};
  const auto loader = list_loader(documents, options);
  loader->restore({.titan_entry = {}, .titan_world_size = {}, .ledger = fleet.ledger()});
  EXPECT_THAT(loader->take_messages().at(0).text, HasSubstr("2 readers left, now on 3"));
  bool is_exact = true;
  const std::string entry = loader->titan_entry(loader->state(), &is_exact);
  EXPECT_FALSE(is_exact);
  EXPECT_NO_THROW(read_titan_state(entry, "entry"));
  while (loader->state().order.epoch == 0) loader->next();
  loader->titan_entry(loader->state(), &is_exact);
  EXPECT_TRUE(is_exact);
}

TEST(LoaderRestore, RefusesBufferedIdsBeyondTheModelsVocabulary) {
  const auto documents = numbered_documents({30, 30, 30});
  LoaderOptions options{.dataset = "numbers", .local_batch_size = 1, .seq_len = 16};
  const auto loader = list_loader(documents, options);
  loader->next();
  bool is_exact = false;
  const LoaderState state = loader->state();
  options.model_vocab_size = 20;
  const auto other = list_loader(documents, options);
  EXPECT_THAT(message_of([&] { other->restore({.ledger = loader->ledger_part(state)}); }),
              HasSubstr("token id 20, beyond the model's vocabulary of 20"));
  EXPECT_THAT(message_of([&] {
                other->restore({.titan_entry = loader->titan_entry(state, &is_exact), .titan_world_size = 1});
              }),
              HasSubstr("beyond the model's vocabulary of 20"));
}

TEST(LoaderRestore, RefusesAStateOfAnotherDataSetOrTokenizerNamingBoth) {
  const auto documents = numbered_documents({30, 30});
  const LoaderOptions options{.dataset = "numbers", .local_batch_size = 1, .seq_len = 8};
  const auto loader = list_loader(documents, options);
  const SavedLoader saved{
      .titan_entry = {}, .titan_world_size = {}, .ledger = loader->ledger_part(loader->state())};
  LoaderOptions others = options;
  others.dataset = "letters";
  Loader other_data(std::make_unique<ListSource>(documents, "other"), Split::kMapStyle, "list tokenizer",
                    others);
  EXPECT_THAT(message_of([&] { other_data.restore(saved); }),
              AllOf(HasSubstr("'numbers' (2 documents, fingerprint list)"),
                    HasSubstr("'letters' (2 documents, fingerprint other)")));
  Loader other_tokenizer(std::make_unique<ListSource>(documents), Split::kMapStyle, "another", options);
  EXPECT_THAT(message_of([&] { other_tokenizer.restore(saved); }),
              AllOf(HasSubstr("list tokenizer"), HasSubstr("this run has another")));
}

}  // namespace
}  // namespace milepost::data
