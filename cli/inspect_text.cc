#include "inspect_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "milepost/base/error.h"
#include "tree.h"
#include "units.h"
#include "value_tree.h"

namespace milepost::cli {
namespace {

constexpr size_t kMaxNameColumn = 72;
constexpr size_t kMaxNamed = 8;
constexpr size_t kMaxValueText = 300;

// A name as it may be printed; the empty one would not be seen.
std::string shown(std::string_view name) { return name.empty() ? "''" : printable(name, 400); }

std::string type_text(const Catalog::Tensor& tensor) {
  return fmt::format("{} {}", dims_text(tensor.shape), dtype_info(tensor.dtype).short_name);
}

void print_field(const Terminal& terminal, std::string_view label, const std::string& value) {
  terminal.print("  {}  {}\n", terminal.paint(Colour::kDim, fmt::format("{:<16}", label)), value);
}

std::string totals_text(const Totals& totals) {
  std::string text;
  if (totals.tensors > 0) {
    text = fmt::format("{}, {}", count_text(totals.tensors, "tensor"), bytes_text(totals.bytes));
  }
  if (totals.objects > 0) text += (text.empty() ? "" : ", ") + count_text(totals.objects, "object");
  return text.empty() ? "nothing" : text;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxNamed); ++i)
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  if (names.size() > kMaxNamed) text += fmt::format(" and {} more", names.size() - kMaxNamed);
  return text;
}

std::string parameters_text(int64_t count) {
  if (count < 1'000'000) return count_text(count);
  constexpr std::string_view kUnits[] = {"million", "billion", "trillion"};
  auto number = static_cast<double>(count) / 1e6;
  size_t unit = 0;
  while (number >= 999.95 && unit < 2) {
    number /= 1000;
    ++unit;
  }
  return fmt::format("{} ({:.1f} {})", count_text(count), number, kUnits[unit]);
}

struct Row {
  std::string name, type, extra;
};

void print_rows(const Terminal& terminal, const std::vector<Row>& rows) {
  size_t name_width = 0, type_width = 0;
  for (const Row& row : rows) {
    name_width = std::max(name_width, std::min(row.name.size(), kMaxNameColumn));
    type_width = std::max(type_width, row.type.size());
  }
  for (const Row& row : rows) {
    std::string line = fmt::format("{:<{}}  ", row.name, name_width);
    line += terminal.paint(Colour::kCyan, row.type);
    if (!row.extra.empty()) {
      line +=
          fmt::format("{:{}}  {}", "", type_width - row.type.size(), terminal.paint(Colour::kDim, row.extra));
    }
    terminal.print("{}\n", line);
  }
}

void print_chunks(const Terminal& terminal, const Catalog& catalog, const Catalog::Tensor& tensor) {
  for (int64_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.num_chunks; ++chunk) {
    const Location& location = catalog.chunk_location(chunk);
    const std::string where =
        location.file == Location::kNoFile
            ? "no location"
            : fmt::format("{} at byte {}, {}", printable(catalog.files()[location.file].path),
                          location.offset, count_text(location.length, "byte"));
    terminal.print("    {}  {}\n", box_text(catalog.chunk_box(tensor, chunk)), where);
  }
}

void print_stats(const Terminal& terminal, const TensorStats& stats) {
  if (!stats.has_values) {
    terminal.print("    its type packs several numbers into a byte: no statistics\n");
    return;
  }
  terminal.print("    min {:.6g}  max {:.6g}  mean {:.6g}  std {:.6g}  zeros {}  NaN {}  Inf {}\n", stats.min,
                 stats.max, stats.mean, stats.std, count_text(stats.zeros), count_text(stats.nan),
                 count_text(stats.inf));
}

}  // namespace

void print_summary(const Terminal& terminal, const Checkpoint& checkpoint, const Summary& summary) {
  terminal.print("{}\n", terminal.paint(Colour::kBold, printable(checkpoint.path(), 400)));
  print_field(terminal, "format", std::string(format_name(checkpoint.format())));
  std::set<std::pair<std::string, std::string>> facts;  // several files may state the same
  for (const auto& fact : checkpoint.details()) {
    if (facts.insert(fact).second) print_field(terminal, printable(fact.first), printable(fact.second));
  }
  print_field(terminal, "tensors",
              fmt::format("{}, {} elements, {}, {}", count_text(summary.all.tensors),
                          count_text(summary.all.elements), bytes_text(summary.all.bytes),
                          count_text(summary.chunks, "chunk")));
  if (!summary.groups.empty() && summary.groups[0].first == "model") {
    print_field(terminal, "parameters", parameters_text(summary.groups[0].second.elements));
  }
  std::string dtypes;
  for (const auto& [dtype, totals] : summary.dtypes) {
    dtypes += fmt::format("{}{} ({}, {})", dtypes.empty() ? "" : ", ", dtype_name(dtype),
                          count_text(totals.tensors, "tensor"), bytes_text(totals.bytes));
  }
  if (!dtypes.empty()) print_field(terminal, "dtypes", dtypes);
  if (summary.all.objects > 0) print_field(terminal, "objects", count_text(summary.all.objects));
  const auto num_files = static_cast<int64_t>(checkpoint.catalog().files().size());
  print_field(terminal, "files",
              fmt::format("{}, {}", count_text(num_files, "data file"), bytes_text(summary.file_bytes)));
  std::string_view label = "groups";
  for (const auto& [name, totals] : summary.groups) {
    print_field(terminal, label, fmt::format("{:<12}  {}", name, totals_text(totals)));
    label = "";
  }
  if (!summary.missing_files.empty()) {
    print_field(terminal, "missing", terminal.paint(Colour::kRed, listed(summary.missing_files)));
  }
  for (const std::string& warning : checkpoint.warnings()) {
    terminal.print("{} {}\n", terminal.paint(Colour::kYellow, "warning:"), printable(warning, 1000));
  }
}

void print_tree(const Terminal& terminal, const Checkpoint& checkpoint, const std::vector<Entry>& entries) {
  const Catalog& catalog = checkpoint.catalog();
  std::vector<TreeEntry> leaves;
  leaves.reserve(entries.size());
  for (const Entry& entry : entries) {
    if (entry.is_object) {
      leaves.push_back({entry_name(catalog, entry), true, DType::kFloat32, {}, 0});
    } else {
      const Catalog::Tensor& tensor = catalog.tensors()[static_cast<size_t>(entry.index)];
      leaves.push_back({tensor.name, false, tensor.dtype, tensor.shape, tensor_bytes(tensor)});
    }
  }
  std::vector<Row> rows;
  for (const TreeLine& line : fold(leaves)) {
    Row row{line.name.empty() ? "''" : line.name, "object", ""};
    if (!line.first->is_object) {
      row.type = fmt::format("{} {}", dims_text(line.first->shape), dtype_info(line.first->dtype).short_name);
      row.extra = bytes_text(line.first->bytes);
    }
    if (line.count > 1)
      row.extra =
          fmt::format("x {}{}{}", count_text(line.count), row.extra.empty() ? "" : ", each ", row.extra);
    rows.push_back(std::move(row));
  }
  print_rows(terminal, rows);
}

void print_entries(const Terminal& terminal, const Checkpoint& checkpoint, const std::vector<Entry>& entries,
                   const WantedDetails& wanted, const Details& details) {
  const Catalog& catalog = checkpoint.catalog();
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string name = terminal.paint(Colour::kBold, shown(entry_name(catalog, entries[i])));
    const auto index = static_cast<size_t>(entries[i].index);
    if (entries[i].is_object) {
      if (wanted.values && details.errors[i]) {
        const std::string message = (*details.errors[i])["message"];
        terminal.print("{}  {}\n", name, terminal.paint(Colour::kRed, message));
      } else if (wanted.values) {
        terminal.print("{} = {}\n", name, printable(details.values[i], kMaxValueText));
      } else {
        terminal.print("{}  {}\n", name, terminal.paint(Colour::kCyan, "object"));
      }
      if (const Location& location = catalog.objects()[index].location;
          wanted.chunks && location.file != Location::kNoFile) {
        terminal.print("    {} at byte {}, {}\n", printable(catalog.files()[location.file].path),
                       location.offset, count_text(location.length, "byte"));
      }
      continue;
    }
    const Catalog::Tensor& tensor = catalog.tensors()[index];
    terminal.print("{}  {}\n", name, terminal.paint(Colour::kCyan, type_text(tensor)));
    if (wanted.stats) print_stats(terminal, *details.stats[i]);
    if (wanted.sha256) terminal.print("    sha256 {}\n", details.sha256[i]);
    if (wanted.chunks) print_chunks(terminal, catalog, tensor);
  }
}

void print_value(const Terminal& terminal, const std::shared_ptr<const Checkpoint>& checkpoint,
                 const Entry& entry) {
  const std::string& name = entry_name(checkpoint->catalog(), entry);
  if (entry.is_object) {
    const ObjectValue value = checkpoint->read_object(entry.index);
    terminal.write(value_tree(shown(name), *value.value));
    return;
  }
  const Corner corner = read_corner(checkpoint, entry.index);
  const Catalog::Tensor& tensor = checkpoint->catalog().tensors()[static_cast<size_t>(entry.index)];
  terminal.print("{}  {}\n", terminal.paint(Colour::kBold, shown(name)),
                 terminal.paint(Colour::kCyan, type_text(tensor)));
  size_t width = 0;
  for (const auto& row : corner.rows) {
    for (const std::string& text : row) width = std::max(width, text.size());
  }
  for (const auto& row : corner.rows) {
    std::string line = " ";
    for (const std::string& text : row) line += fmt::format(" {:>{}}", text, width);
    terminal.print("{}{}\n", line, corner.cut_right ? " ..." : "");
  }
  if (corner.cut_below) terminal.print("  ...\n");
  if (tensor.shape.size() > 2)
    terminal.print("  (index 0 in the first {})\n",
                   count_text(static_cast<int64_t>(tensor.shape.size()) - 2, "dimension"));
}

}  // namespace milepost::cli
