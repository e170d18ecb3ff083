#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "command.h"
#include "json.h"
#include "milepost/adapt/hf_config.h"
#include "milepost/adapt/key_table.h"
#include "milepost/base/error.h"
#include "milepost/engine/model.h"
#include "model_conversion.h"
#include "units.h"

namespace milepost::cli {
namespace {

std::string kind_text(const adapt::KeyRow& row) {
  switch (row.kind) {
    case adapt::KeyKind::kSame:
      return "";
    case adapt::KeyKind::kRopeRows:
      return fmt::format("rows of {} heads reordered for RoPE", row.count);
    case adapt::KeyKind::kExperts:
      return fmt::format("{} experts stacked", row.count);
    case adapt::KeyKind::kOnlyHf:
      return "left out on import";
  }
  return "";
}

// What a row says besides names, shape and condition.
std::string remarks(const adapt::KeyRow& row) {
  std::vector<std::string> parts;
  if (const std::string kind = kind_text(row); !kind.empty()) parts.push_back(kind);
  if (!row.absent.empty()) {
    parts.push_back(fmt::format("may be absent when {} (then {})", row.absent_when, row.absent));
  }
  if (!row.note.empty()) parts.emplace_back(row.note);
  return fmt::format("{}", fmt::join(parts, "; "));
}

struct Line {
  std::string native, hf, shape, rest;
};

void print_lines(const Terminal& terminal, const std::vector<Line>& lines, std::string_view indent) {
  size_t native = 0, hf = 0, shape = 0;
  for (const Line& line : lines) {
    native = std::max(native, line.native.size());
    hf = std::max(hf, line.hf.size());
    shape = std::max(shape, line.shape.size());
  }
  for (const Line& line : lines) {
    std::string text = fmt::format("{}{:<{}}  {:<{}}  {:<{}}  {}", indent, line.native, native, line.hf, hf,
                                   line.shape, shape, line.rest);
    while (text.ends_with(' ')) text.pop_back();
    terminal.print("{}\n", text);
  }
}

// The table as it is written, conditions and all.
void print_table(const Terminal& terminal, const adapt::KeyTable& table) {
  terminal.print("{}\n", terminal.paint(Colour::kBold, table.model));
  for (const adapt::KeyBlock& block : table.blocks) {
    terminal.print("  {} is {} here and {} there, for {} below {}\n", "{block}", block.native, block.hf,
                   block.counter, block.count);
    for (const auto& [name, expression] : block.defines) terminal.print("    {} = {}\n", name, expression);
  }
  std::vector<Line> lines = {{"NATIVE", "HUGGING FACE", "SHAPE", ""}};
  for (const adapt::KeyRow& row : table.rows) {
    std::string rest = row.when.empty() ? "" : fmt::format("when {}", row.when);
    const std::string more = remarks(row);
    if (!rest.empty() && !more.empty()) rest += "; ";
    lines.push_back({row.native.empty() ? "-" : std::string(row.native), std::string(row.hf),
                     row.shape.empty() ? "" : fmt::format("[{}]", row.shape), rest + more});
  }
  print_lines(terminal, lines, "");
}

// Every tensor of one model; without `all`, the first of each row and how many there are.
void print_model(const Terminal& terminal, const flavor::Model& model, bool all) {
  const std::vector<adapt::KeyEntry> entries = adapt::expand(adapt::key_table(model.model()), model);
  std::map<const adapt::KeyRow*, int64_t> counts;
  int64_t num_native = 0, num_hf = 0;
  for (const adapt::KeyEntry& entry : entries) {
    ++counts[entry.row];
    if (entry.row->kind == adapt::KeyKind::kOnlyHf) continue;
    ++num_native;
    if (!entry.export_absent) num_hf += static_cast<int64_t>(entry.hf.size());
  }
  terminal.print("{}: {} parameters, {}, {} on Hugging Face's side\n",
                 terminal.paint(Colour::kBold, model.text()), count_text(flavor::num_parameters(model)),
                 count_text(num_native, "native tensor"), count_text(num_hf));
  std::vector<Line> lines;
  for (const adapt::KeyEntry& entry : entries) {
    const int64_t count = counts[entry.row];
    if (count == 0) continue;
    std::string rest;
    if (!all) {
      counts[entry.row] = 0;
      if (count > 1) rest = fmt::format("first of {} alike", count_text(count));
    }
    const std::string more = remarks(*entry.row);
    if (!rest.empty() && !more.empty()) rest += "; ";
    std::string hf = entry.hf[0];
    if (entry.hf.size() > 1) hf += fmt::format(" and {} more", entry.hf.size() - 1);
    lines.push_back({entry.native.empty() ? "-" : entry.native, std::move(hf),
                     entry.native.empty() ? "" : dims_text(entry.shape), rest + more});
  }
  print_lines(terminal, lines, "  ");
}

Json table_json(const adapt::KeyTable& table) {
  Json json = {{"model", table.model}, {"blocks", Json::array()}, {"rows", Json::array()}};
  for (const adapt::KeyBlock& block : table.blocks) {
    Json defines = Json::object();
    for (const auto& [name, expression] : block.defines) defines[std::string(name)] = expression;
    json["blocks"].push_back({{"native", block.native},
                              {"hf", block.hf},
                              {"counter", block.counter},
                              {"count", block.count},
                              {"defines", std::move(defines)}});
  }
  for (const adapt::KeyRow& row : table.rows) {
    json["rows"].push_back({{"native", row.native},
                            {"hf", row.hf},
                            {"shape", row.shape},
                            {"when", row.when},
                            {"remarks", remarks(row)}});
  }
  return json;
}

Json model_json(const flavor::Model& model) {
  Json json = {{"model", model.model()},
               {"flavor", model.name},
               {"parameters", flavor::num_parameters(model)},
               {"tensors", Json::array()}};
  for (const adapt::KeyEntry& entry : adapt::expand(adapt::key_table(model.model()), model)) {
    json["tensors"].push_back({{"native", entry.native},
                               {"hf", entry.hf},
                               {"shape", std::vector<int64_t>(entry.shape.begin(), entry.shape.end())},
                               {"remarks", remarks(*entry.row)}});
  }
  return json;
}

class Keymap final : public Command {
 public:
  const char* name() const override { return "keymap"; }
  const char* summary() const override {
    return "Show which tensor is which between Hugging Face and TorchTitan";
  }
  const char* description() const override {
    return "Shows the table by which import and export name, stack, slice and reorder tensors. With a flavor "
           "or a config.json the table is filled in: the tensors that the model has, with their shapes.";
  }
  const char* examples() const override {
    return "  milepost keymap deepseek_v3\n"
           "  milepost keymap deepseek_v3 --flavor 671B\n"
           "  milepost keymap llama3 --flavor 8B --all\n";
  }

  void declare(Flags& flags) override {
    flags.positional("MODEL", &model_, "llama3 or deepseek_v3");
    declare_model_flags(flags, nullptr, &flavor_, &config_, &mtp_layers_);
    flags.flag("--all", &all_, "every tensor, not one of each kind");
  }

  int run(const Terminal& terminal) override {
    const adapt::KeyTable& table = adapt::key_table(model_);
    if (!flavor_ && !config_) {
      if (all_ || mtp_layers_ >= 0) {
        throw ValueError(fmt::format("{} needs a model of known size", all_ ? "--all" : "--mtp-layers"),
                         "give a --flavor or a --config");
      }
      if (terminal.json()) {
        terminal.write(json_text(table_json(table)));
      } else {
        print_table(terminal, table);
      }
      return kDone;
    }
    flavor::Model model = named_model(model_, flavor_, config_);
    if (mtp_layers_ >= 0) set_mtp_layers(&model, mtp_layers_);
    if (terminal.json()) {
      terminal.write(json_text(model_json(model)));
    } else {
      print_model(terminal, model, all_);
    }
    return kDone;
  }

 private:
  std::string model_;
  std::optional<std::string> flavor_, config_;
  int64_t mtp_layers_ = -1;
  bool all_ = false;
};

}  // namespace

std::unique_ptr<Command> keymap_command() { return std::make_unique<Keymap>(); }

}  // namespace milepost::cli
