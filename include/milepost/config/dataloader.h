// The `dataloader` and `validator` sections: which text is read, and in which order. See sections.h for what
// holds of all sections.
#pragma once

#include "milepost/config/declare.h"
#include "milepost/config/values.h"

namespace milepost::config {

inline constexpr std::string_view kDataOrders[] = {"torchtitan", "global"};
inline constexpr std::string_view kBadRecordPolicies[] = {"fail", "skip"};
inline constexpr std::string_view kStoppingStrategies[] = {"on_first_exhausted", "all_exhausted"};

// clang-format off
MILEPOST_CONFIG(DataSource, "",
  (std::string, dataset, "", "Name of the data set.", kOurs)
  (std::optional<std::string>, dataset_path, std::nullopt, "Where it lies; None: where its name says.", kOurs)
  (double, weight, 1.0, "Share of the documents, relative to the other sources.", kOurs))

MILEPOST_CONFIG(Dataloader, "Text to train on.",
  (std::string, dataset, "c4_test", "Name of the data set: c4_test, c4, c4_validation.")
  (std::optional<std::string>, dataset_path, std::nullopt, "File or folder (JSONL, also .gz and .zst, or Parquet) to read instead of the data set's own.")
  (int64_t, num_workers, 0, "Worker processes of TorchTitan's loader. Milepost reads ahead in a thread; the number is accepted.")
  (bool, persistent_workers, false, "Keep workers between epochs. Accepted, as num_workers.")
  (bool, pin_memory, false, "Put batches into pinned memory.")
  (std::optional<int64_t>, prefetch_factor, std::nullopt, "Batches read ahead; None: chosen by the loader.")
  (bool, infinite, true, "Start again at the end of the data, reshuffled.")
  (Choice<kDataOrders>, order, "torchtitan", "torchtitan: each data-parallel rank packs its own block of the documents, as TorchTitan does. global: one packed stream, whose rows do not depend on the number of ranks.", kOurs)
  (std::optional<std::string>, token_cache, std::nullopt, "Folder in which token ids are kept, so that text is tokenised once; None: none.", kOurs)
  (Choice<kBadRecordPolicies>, on_bad_record, "fail", "What a line that is no record does: fail stops with its place, skip counts it and goes on.", kOurs)
  (std::string, text_field, "text", "Field of a record that holds the text.", kOurs)
  (std::vector<DataSource>, sources, {}, "Several data sets to mix by weight; they replace `dataset`.", kOurs)
  (int64_t, mixing_seed, 42, "Seed of the mixture.", kOurs)
  (Choice<kStoppingStrategies>, stopping_strategy, "on_first_exhausted", "When a finite mixture ends.", kOurs))
// clang-format on

inline Dataloader validation_dataloader() {
  Dataloader loader;
  loader.dataset = "c4_validation";
  loader.infinite = false;
  return loader;
}

// clang-format off
MILEPOST_CONFIG(Validator, "Loss on other text, from time to time.",
  (int64_t, freq, 10, "Steps from one validation to the next; step 1 always has one.")
  (bool, enable, false, "Validate at all.")
  (int64_t, steps, -1, "Batches of a validation; -1: all there are.")
  (Dataloader, dataloader, validation_dataloader(), ""))
// clang-format on

}  // namespace milepost::config
