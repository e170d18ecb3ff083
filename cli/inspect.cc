#include <fmt/format.h>

#include "command.h"
#include "inspect_text.h"
#include "milepost/base/error.h"
#include "open_path.h"

namespace milepost::cli {
namespace {

class Inspect final : public Command {
 public:
  const char* name() const override { return "inspect"; }
  const char* summary() const override { return "Show what a checkpoint holds"; }
  const char* description() const override {
    return "Shows what a checkpoint holds: a summary, then its entries, folded where they repeat. Only "
           "indexes and headers are "
           "read unless values, statistics or hashes are asked for. \"Objects\" are entries that are no "
           "tensors: numbers, strings, "
           "dicts, a data loader's state. \"Parameters\" are the elements of the model's tensors (optimizer "
           "state apart).";
  }
  const char* examples() const override {
    return "  milepost inspect outputs/checkpoint/step-1000\n"
           "  milepost inspect model.safetensors --match 'layers.0.*' --stats\n"
           "  milepost inspect outputs/checkpoint/step-1000 --value train_state.step\n"
           "  # where does each part of a tensor lie?\n"
           "  milepost inspect outputs/checkpoint/step-1000 --match tok_embeddings.weight --chunks\n";
  }

  void declare(Flags& flags) override {
    flags.positional("PATH", &path_, "a DCP folder, a safetensors file or folder, or a torch.save file");
    flags.texts("--match", &match_, "GLOB",
                "list only entries whose whole name matches, e.g. 'layers.*.weight'; repeatable");
    flags.flag("--chunks", &wanted_.chunks, "which part of each tensor lies in which file at which byte");
    flags.text("--value", &value_, "KEY", "print one entry: an object as a tree, the corner of a tensor");
    flags.flag("--values", &wanted_.values, "print the values of all listed objects");
    flags.flag("--stats", &wanted_.stats,
               "min, max, mean, standard deviation, NaN, Inf and zeros of each listed tensor");
    flags.flag("--sha256", &wanted_.sha256, "SHA-256 of each listed tensor's row-major elements");
    flags.integer("--rank", &rank_, 0, INT64_MAX,
                  "read this rank's own metadata, where each rank wrote its own");
  }

  int run(const Terminal& terminal) override {
    const std::shared_ptr<const Checkpoint> checkpoint = open_path(path_, rank_);
    if (value_) return show_value(terminal, checkpoint);
    const std::vector<Entry> entries = select_entries(checkpoint->catalog(), match_);
    const Summary summary = summarise(*checkpoint);
    const Details details = read_details(terminal, checkpoint, entries, wanted_);
    if (terminal.json()) {
      terminal.write(json_text(inspection_json(*checkpoint, summary, entries, wanted_, details)));
    } else {
      print_summary(terminal, *checkpoint, summary);
      if (!entries.empty()) terminal.write("\n");
      const bool one_by_one = wanted_.chunks || wanted_.stats || wanted_.sha256 || wanted_.values;
      if (one_by_one) {
        print_entries(terminal, *checkpoint, entries, wanted_, details);
      } else {
        print_tree(terminal, *checkpoint, entries);
      }
      if (entries.empty() && !match_.empty()) terminal.write("\nno entry matches\n");
    }
    return details.complete ? kDone : kBadInput;
  }

 private:
  int show_value(const Terminal& terminal, const std::shared_ptr<const Checkpoint>& checkpoint) {
    const Catalog& catalog = checkpoint->catalog();
    Entry entry;
    if (const std::optional<int64_t> tensor = catalog.find_tensor(*value_)) {
      entry = {false, *tensor};
    } else if (const std::optional<int64_t> object = catalog.find_object(*value_)) {
      entry = {true, *object};
    } else {
      MissingKeyError error("there is no entry of this name", "`milepost inspect PATH` lists them");
      error.set_path(path_).set_key(*value_);
      throw error;
    }
    if (terminal.json()) {
      terminal.write(json_text(value_json(checkpoint, entry)));
    } else {
      print_value(terminal, checkpoint, entry);
    }
    return kDone;
  }

  std::string path_;
  std::vector<std::string> match_;
  std::optional<std::string> value_;
  WantedDetails wanted_;
  int64_t rank_ = -1;
};

}  // namespace

std::unique_ptr<Command> inspect_command() { return std::make_unique<Inspect>(); }

}  // namespace milepost::cli
