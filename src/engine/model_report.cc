// The report of an import or export. Written entry by entry: a large model has 90,000 tensors.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "engine/convert_plan.h"
#include "milepost/engine/model.h"

namespace milepost {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFlushBytes = 64 << 10;

std::string json_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string_view values_text(TensorPart::Values values) {
  switch (values) {
    case TensorPart::Values::kStored:
      return "stored";
    case TensorPart::Values::kBlockScaled:
      return "dequantised from fp8";
    case TensorPart::Values::kMxfp4:
      return "dequantised from MXFP4";
    case TensorPart::Values::kFp8Codes:
      return "quantised to fp8";
    case TensorPart::Values::kFp8Scales:
      return "scales of its fp8 codes";
    case TensorPart::Values::kZeros:
      return "filled with zeros";
    case TensorPart::Values::kRandom:
      return "pseudo-random";
  }
  return "";
}

// What a tensor of a derived checkpoint is made of in the end.
struct Origin {
  const Checkpoint* source;
  std::vector<int64_t> sources, scales;  // its tensors
  std::vector<std::string> steps;        // "8 stacked", "rows reordered", ... in order

  void cast(DType from, DType to) {
    if (from != to) step(fmt::format("cast to {}", dtype_name(to)));
  }
  void step(std::string text) {
    if (std::find(steps.begin(), steps.end(), text) == steps.end()) steps.push_back(std::move(text));
  }
};

// Follows `tensor`, or its row `row` unless that is -1, down to the source. Returns whether the row was a
// tensor of its own there, so that taking it out again undoes a stacking.
bool trace(const Checkpoint& checkpoint, int64_t tensor, int64_t row, Origin* origin) {
  if (&checkpoint == origin->source) {
    origin->sources.push_back(tensor);
    return false;
  }
  const Checkpoint::Derivation derived = checkpoint.derivation();
  const std::vector<TensorPart>& parts = derived.map->parts[static_cast<size_t>(tensor)];
  const std::vector<Catalog::Tensor>& sources = (*derived.source)->catalog().tensors();
  const Catalog::Tensor& target = derived.map->target.tensors()[static_cast<size_t>(tensor)];
  const TensorPart& first = parts[0];
  const bool is_stack = parts.size() > 1;
  const bool is_slice =
      first.source >= 0 && sources[static_cast<size_t>(first.source)].shape.size() > target.shape.size();
  bool was_apart = is_stack && row >= 0;
  for (const TensorPart& part : parts) {
    if (row >= 0 && (row < part.first_row || row - part.first_row >= part.num_rows)) continue;
    const int64_t source_row = is_slice ? part.origin[0] : is_stack ? -1 : row;
    if (part.source >= 0) was_apart |= trace(**derived.source, part.source, source_row, origin);
    if (part.scales >= 0) origin->scales.push_back(part.scales);
    if (part.source >= 0 && part.values == TensorPart::Values::kStored)
      origin->cast(sources[static_cast<size_t>(part.source)].dtype, target.dtype);
  }
  if (first.values != TensorPart::Values::kStored) {
    origin->step(std::string(values_text(first.values)));
  } else if (is_stack && row < 0) {
    origin->step(fmt::format("{} stacked", parts.size()));
  } else if (is_slice && !was_apart) {
    origin->step(fmt::format("slice {} of its stack", first.origin[0]));
  }
  if (first.order.group != 0) origin->step("rows of each head reordered for RoPE");
  return was_apart && !is_slice;
}

class ReportWriter {
 public:
  explicit ReportWriter(ByteSink& sink) : sink_(sink) {}

  void text(std::string_view part) {
    buffer_ += part;
    if (buffer_.size() >= kFlushBytes) flush();
  }
  void list(std::string_view name) {
    text(fmt::format(",\n\"{}\": [", name));
    first_ = true;
  }
  void entry(const Json& json) {
    text(first_ ? "\n  " : ",\n  ");
    first_ = false;
    text(json_line(json));
  }
  void end_list() { text("]"); }
  void flush() {
    sink_.append(as_bytes(buffer_));
    buffer_.clear();
  }

 private:
  ByteSink& sink_;
  std::string buffer_;
  bool first_ = true;
};

Json tensor_json(const Catalog::Tensor& tensor, DType dtype) {
  return {{"name", tensor.name},
          {"dtype", dtype_name(dtype)},
          {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())}};
}

// Returns the tensors of `source` that the targets were made of.
std::unordered_set<int64_t> write_targets(const Checkpoint& source, const Checkpoint& result,
                                          const ConvertOptions& options, ReportWriter& out) {
  const std::vector<Catalog::Tensor>& inputs = source.catalog().tensors();
  std::unordered_set<int64_t> used;
  out.list("targets");
  for (const Selection::Entry& entry : select_entries(result, options).entries) {
    const Catalog::Tensor& target = result.catalog().tensors()[static_cast<size_t>(entry.tensor)];
    Origin origin{&source, {}, {}, {}};
    trace(result, entry.tensor, -1, &origin);
    origin.cast(target.dtype, entry.dtype);
    Json json = tensor_json(target, entry.dtype);
    Json from = Json::array();
    for (int64_t tensor : origin.sources) from.push_back(inputs[static_cast<size_t>(tensor)].name);
    json["from"] = std::move(from);
    json["steps"] = origin.steps;
    used.insert(origin.sources.begin(), origin.sources.end());
    used.insert(origin.scales.begin(), origin.scales.end());
    out.entry(json);
  }
  out.end_list();
  return used;
}

void write_sources(const Catalog& source, const std::unordered_set<int64_t>& used,
                   const std::vector<adapt::LeftOut>& left_out, bool is_matched, ReportWriter& out) {
  std::unordered_map<std::string_view, std::string_view> reasons;
  for (const adapt::LeftOut& entry : left_out) reasons.emplace(entry.name, entry.why);
  const std::string_view otherwise =
      is_matched ? "nothing that was asked for is made of it" : "not taken by the model";
  out.list("sources");
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const Catalog::Tensor& tensor = source.tensors()[i];
    Json json = tensor_json(tensor, tensor.dtype);
    const auto reason = reasons.find(tensor.name);
    const bool is_used = used.contains(static_cast<int64_t>(i));
    json["fate"] = is_used ? "used" : "left out";
    if (!is_used) json["why"] = reason == reasons.end() ? otherwise : reason->second;
    out.entry(json);
  }
  for (const Catalog::Object& object : source.objects())
    out.entry({{"name", object.name}, {"fate", "left out"}, {"why", "not a tensor of the model"}});
  out.end_list();
}

}  // namespace

void write_model_report(const std::shared_ptr<const Checkpoint>& source, const NamedModel& result,
                        const ConvertOptions& options, const ConvertReport& report, ByteSink& sink) {
  ReportWriter out(sink);
  Json totals = {{"tensors", report.tensors},         {"casts", report.casts},
                 {"bytes_in", report.bytes_in},       {"bytes_out", report.bytes_out},
                 {"seconds", report.seconds},         {"files", report.files.size()},
                 {"left_out", result.left_out.size()}};
  out.text("{\"model\": " + json_line(result.model ? Json(result.model->model()) : Json()));
  out.text(",\n\"flavor\": " +
           json_line(result.model && !result.model->name.empty() ? Json(result.model->name) : Json()));
  out.text(",\n\"source\": " + json_line(source->path()) + ",\n\"totals\": " + json_line(totals));
  out.text(",\n\"notes\": " + json_line(result.notes) + ",\n\"warnings\": " + json_line(report.warnings));
  const std::unordered_set<int64_t> used = write_targets(*source, *result.checkpoint, options, out);
  write_sources(source->catalog(), used, result.left_out, !options.match.empty(), out);
  out.text("}\n");
  out.flush();
}

}  // namespace milepost
