// Key tables: which tensor of a Hugging Face checkpoint is which of TorchTitan's ("native"), one table a
// model, for both directions.
//
// A table is data. Its patterns and conditions are written in the dimensions of a flavor (flavor::variables)
// and the counters of its blocks: "layers.{layer}.attention.wq.weight" when "q_lora_rank == 0". `expand`
// turns a table and a model into the list of all its tensors, with names and shapes, from which key maps, the
// recognition of flavors and synthetic checkpoints are made. Adding a model is adding a table.
// Source: spec conversion, sections 2 and 3.
//
// Pure; any thread may call anything. Expanding the largest model (45,395 names) takes 20 ms.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milepost/flavor/flavor.h"
#include "milepost/tensor/box.h"

namespace milepost::adapt {

enum class KeyKind : uint8_t {
  kSame,      // another name, the same elements
  kRopeRows,  // rows in another order: native pairs neighbours for RoPE, Hugging Face halves of a head
  kExperts,   // native has one tensor with the experts stacked on a new first dimension
  kOnlyHf,    // Hugging Face only, left out on import: `note` says why
};

struct KeyRow {
  std::string_view native, hf;  // patterns; "{block}" stands for the block's prefix
  std::string_view shape;       // of the native tensor: "n_heads * head_dim, dim"
  std::string_view when = {};   // condition; empty: always
  KeyKind kind = KeyKind::kSame;
  std::string_view count = {};  // kRopeRows: the number of heads; kExperts: of experts
  // What stands in for a tensor that Hugging Face's side does not have: "zeros" or another of its keys; and
  // when that is allowed.
  std::string_view absent = {}, absent_when = {};
  bool export_absent = false;  // whether export leaves it out under the same condition
  bool fp8 = false;            // quantised by an fp8 export
  bool is_float32 = false;     // float32 after an fp8 export
  std::string_view note = {};
};

// Rows with "{block}" are repeated for each block.
struct KeyBlock {
  std::string_view native, hf;      // prefixes: "layers.{layer}.", "model.layers.{layer}."
  std::string_view counter, count;  // "layer" runs from 0 to "n_layers" - 1
  std::span<const std::pair<std::string_view, std::string_view>> defines;  // further names, by expression
  bool is_mtp = false;  // multi-token prediction stages, which follow the layers
};

struct KeyTable {
  std::string_view model;
  std::span<const KeyBlock> blocks;
  std::span<const KeyRow> rows;
};

// Throws ValueError for a model without a table, naming those that have one.
const KeyTable& key_table(std::string_view model);

// One native tensor (or, for kOnlyHf, one name of Hugging Face's) and its counterparts.
struct KeyEntry {
  const KeyRow* row = nullptr;
  std::string native;           // empty for kOnlyHf
  std::vector<std::string> hf;  // one; for kExperts one an expert, in order
  Dims shape;                   // of the native tensor
  int64_t count = 0;            // heads or experts
  std::string absent;           // key or "zeros" that may stand in; empty: none may
  bool export_absent = false;   // left out on export

  // The shape of each of `hf`.
  Dims hf_shape() const;
};

// Twenty times the largest model: keeps a forged config.json from asking for lists that no memory holds.
inline constexpr int64_t kMaxNames = int64_t{1} << 20;

// How many names the model has on Hugging Face's side, without making them; `at_most` + 1 for any number
// beyond `at_most`, and then in time that depends on `at_most` only.
int64_t count_names(const KeyTable& table, const flavor::Model& model, int64_t at_most = kMaxNames);

// In module order, as a state dict lists them. Throws ValueError (kTooLarge) for a model with more than
// kMaxNames names or with shapes beyond 64 bits, ValueError for one with a negative dimension or MoE layers
// without experts: before anything is allocated.
std::vector<KeyEntry> expand(const KeyTable& table, const flavor::Model& model);

}  // namespace milepost::adapt
