#include "milepost/adapt/key_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "adapt/expression.h"
#include "adapt/tables.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

constexpr std::string_view kBlock = "{block}", kExpert = "{expert}";

bool is_block_row(const KeyRow& row) { return row.hf.starts_with(kBlock) || row.native.starts_with(kBlock); }

std::string fill_name(std::string_view pattern, std::string_view prefix, const Variables& variables) {
  if (!pattern.starts_with(kBlock)) return fill(pattern, variables);
  return fill(prefix, variables) + fill(pattern.substr(kBlock.size()), variables);
}

// Calls visit(row, block or nullptr, variables) for each row whose condition holds, in module order, until it
// returns false. Returns whether it got to the end; a block of more than `at_most` is not begun.
template <typename Visit>
bool for_each_entry(const KeyTable& table, const flavor::Model& model, int64_t at_most, Visit&& visit) {
  const Variables whole_model(flavor::variables(model));
  const auto visit_row = [&](const KeyRow& row, const KeyBlock* block, const Variables& variables) {
    return (!row.when.empty() && evaluate(row.when, variables) == 0) || visit(row, block, variables);
  };
  // Rows before the first block row come before the blocks, the others after them.
  size_t next = 0;
  for (; next < table.rows.size() && !is_block_row(table.rows[next]); ++next) {
    if (!visit_row(table.rows[next], nullptr, whole_model)) return false;
  }
  for (const KeyBlock& block : table.blocks) {
    const int64_t count = evaluate(block.count, whole_model);
    if (count > at_most) return false;
    for (int64_t index = 0; index < count; ++index) {
      Variables variables = whole_model;
      variables.set(block.counter, index);
      for (const auto& [name, expression] : block.defines)
        variables.set(name, evaluate(expression, variables));
      for (const KeyRow& row : table.rows) {
        if (is_block_row(row) && !visit_row(row, &block, variables)) return false;
      }
    }
  }
  for (; next < table.rows.size(); ++next) {
    if (!is_block_row(table.rows[next]) && !visit_row(table.rows[next], nullptr, whole_model)) return false;
  }
  return true;
}

void demand_sizes(const KeyEntry& entry) {
  const bool is_negative =
      std::any_of(entry.shape.begin(), entry.shape.end(), [](int64_t size) { return size < 0; });
  const bool is_empty = !entry.row->count.empty() && entry.count < 1;
  if (!is_negative && !is_empty) return;
  ValueError error(fmt::format("the model's sizes give it the shape {}{}", dims_text(entry.shape),
                               is_empty ? " and nothing to divide it by" : ""),
                   "correct the model's sizes");
  error.set_key(entry.native);
  throw error;
}

KeyEntry make_entry(const KeyRow& row, const KeyBlock* block, const Variables& variables) {
  const std::string_view native_prefix = block == nullptr ? std::string_view() : block->native;
  const std::string_view hf_prefix = block == nullptr ? std::string_view() : block->hf;
  KeyEntry entry;
  entry.row = &row;
  if (!row.native.empty()) entry.native = fill_name(row.native, native_prefix, variables);
  if (!row.shape.empty()) entry.shape = evaluate_dims(row.shape, variables);
  if (!row.count.empty()) entry.count = evaluate(row.count, variables);
  demand_sizes(entry);
  if (row.kind == KeyKind::kExperts) {
    // Most names of a model are made here, so that the rest of the pattern is filled once.
    const size_t number = row.hf.find(kExpert);
    const std::string before = fill_name(row.hf.substr(0, number), hf_prefix, variables);
    const std::string after = fill(row.hf.substr(number + kExpert.size()), variables);
    for (int64_t expert = 0; expert < entry.count; ++expert)
      entry.hf.push_back(before + fmt::to_string(expert) + after);
  } else {
    entry.hf.push_back(fill_name(row.hf, hf_prefix, variables));
  }
  if (!row.absent.empty() && (row.absent_when.empty() || evaluate(row.absent_when, variables) != 0)) {
    entry.absent = fill_name(row.absent, hf_prefix, variables);
    entry.export_absent = row.export_absent;
  }
  return entry;
}

}  // namespace

Dims KeyEntry::hf_shape() const {
  if (row->kind != KeyKind::kExperts) return shape;
  return Dims(shape.begin() + 1, shape.end());
}

const KeyTable& key_table(std::string_view model) {
  static constexpr std::array kTables = {&kLlama3Keys, &kDeepSeekV3Keys};
  std::vector<std::string_view> known;
  for (const KeyTable* table : kTables) {
    if (table->model == model) return *table;
    known.push_back(table->model);
  }
  throw ValueError(fmt::format("there is no key map for the model '{}'", printable(model)),
                   fmt::format("known models: {}", fmt::join(known, ", ")));
}

int64_t count_names(const KeyTable& table, const flavor::Model& model, int64_t at_most) {
  int64_t count = 0;
  const bool is_whole = for_each_entry(
      table, model, at_most, [&](const KeyRow& row, const KeyBlock*, const Variables& variables) {
        count += row.kind == KeyKind::kExperts ? std::min(evaluate(row.count, variables), at_most + 1) : 1;
        return count <= at_most;
      });
  return is_whole ? count : at_most + 1;
}

std::vector<KeyEntry> expand(const KeyTable& table, const flavor::Model& model) {
  if (count_names(table, model) > kMaxNames) {
    throw ValueError(fmt::format("{} has more than {} tensors, which no model has", model.text(), kMaxNames),
                     "correct the model's sizes, in its config.json for instance", ErrorCode::kTooLarge);
  }
  std::vector<KeyEntry> entries;
  for_each_entry(table, model, kMaxNames,
                 [&](const KeyRow& row, const KeyBlock* block, const Variables& variables) {
                   entries.push_back(make_entry(row, block, variables));
                   return true;
                 });
  return entries;
}

}  // namespace milepost::adapt
