// What `milepost inspect` prints: for people and for machines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inspect_details.h"
#include "inspection.h"
#include "terminal.h"

namespace milepost::cli {

// The summary that a person wants first, with warnings and missing files.
void print_summary(const Terminal& terminal, const Checkpoint& checkpoint, const Summary& summary);

// The entries as a tree folded by repetition.
void print_tree(const Terminal& terminal, const Checkpoint& checkpoint, const std::vector<Entry>& entries);

// One line an entry, with what was asked for below it.
void print_entries(const Terminal& terminal, const Checkpoint& checkpoint, const std::vector<Entry>& entries,
                   const WantedDetails& wanted, const Details& details);

// One entry's value: the corner of a tensor, the tree of an object.
void print_value(const Terminal& terminal, const std::shared_ptr<const Checkpoint>& checkpoint,
                 const Entry& entry);

Json inspection_json(const Checkpoint& checkpoint, const Summary& summary, const std::vector<Entry>& entries,
                     const WantedDetails& wanted, const Details& details);
Json value_json(const std::shared_ptr<const Checkpoint>& checkpoint, const Entry& entry);

}  // namespace milepost::cli
