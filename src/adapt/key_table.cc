#include "milepost/adapt/key_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "adapt/expression.h"
#include "adapt/tables.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

constexpr std::string_view kBlock = "{block}";

bool is_block_row(const KeyRow& row) { return row.hf.starts_with(kBlock) || row.native.starts_with(kBlock); }

std::string fill_name(std::string_view pattern, std::string_view prefix, const Variables& variables) {
  if (!pattern.starts_with(kBlock)) return fill(pattern, variables);
  return fill(prefix, variables) + fill(pattern.substr(kBlock.size()), variables);
}

// Adds the entry of `row`, if its condition holds.
void add_entry(const KeyRow& row, const KeyBlock* block, const Variables& variables,
               std::vector<KeyEntry>* entries) {
  if (!row.when.empty() && evaluate(row.when, variables) == 0) return;
  const std::string_view native_prefix = block == nullptr ? std::string_view() : block->native;
  const std::string_view hf_prefix = block == nullptr ? std::string_view() : block->hf;
  KeyEntry entry;
  entry.row = &row;
  if (!row.native.empty()) entry.native = fill_name(row.native, native_prefix, variables);
  if (!row.shape.empty()) entry.shape = evaluate_dims(row.shape, variables);
  if (!row.count.empty()) entry.count = evaluate(row.count, variables);
  const int64_t num_hf = row.kind == KeyKind::kExperts ? entry.count : 1;
  for (int64_t expert = 0; expert < num_hf; ++expert) {
    Variables with_expert = variables;
    with_expert.set("expert", expert);
    entry.hf.push_back(fill_name(row.hf, hf_prefix, with_expert));
  }
  if (!row.absent.empty() && (row.absent_when.empty() || evaluate(row.absent_when, variables) != 0)) {
    entry.absent = fill_name(row.absent, hf_prefix, variables);
    entry.export_absent = row.export_absent;
  }
  entries->push_back(std::move(entry));
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

std::vector<KeyEntry> expand(const KeyTable& table, const flavor::Model& model) {
  const Variables whole_model(flavor::variables(model));
  std::vector<KeyEntry> entries;
  // Rows before the first block row come before the blocks, the others after them.
  size_t next = 0;
  for (; next < table.rows.size() && !is_block_row(table.rows[next]); ++next)
    add_entry(table.rows[next], nullptr, whole_model, &entries);
  for (const KeyBlock& block : table.blocks) {
    const int64_t count = evaluate(block.count, whole_model);
    for (int64_t index = 0; index < count; ++index) {
      Variables variables = whole_model;
      variables.set(block.counter, index);
      for (const auto& [name, expression] : block.defines)
        variables.set(name, evaluate(expression, variables));
      for (const KeyRow& row : table.rows) {
        if (is_block_row(row)) add_entry(row, &block, variables, &entries);
      }
    }
  }
  for (; next < table.rows.size(); ++next) {
    if (!is_block_row(table.rows[next])) add_entry(table.rows[next], nullptr, whole_model, &entries);
  }
  return entries;
}

}  // namespace milepost::adapt
