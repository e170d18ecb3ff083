// The report of an import or export. Written entry by entry: a large model has 90,000 tensors.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

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
  std::vector<int64_t> sources, scales;  // tensors of the checkpoint at the bottom
  std::vector<std::string> steps;        // "8 stacked", "rows reordered", ... in order

  void step(std::string text) {
    if (std::find(steps.begin(), steps.end(), text) == steps.end()) steps.push_back(std::move(text));
  }
};

void trace(const Checkpoint& checkpoint, int64_t tensor, Origin* origin) {
  const Checkpoint::Derivation derived = checkpoint.derivation();
  if (derived.map == nullptr) {
    origin->sources.push_back(tensor);
    return;
  }
  const std::vector<TensorPart>& parts = derived.map->parts[static_cast<size_t>(tensor)];
  const std::vector<Catalog::Tensor>& sources = (*derived.source)->catalog().tensors();
  const Catalog::Tensor& target = derived.map->target.tensors()[static_cast<size_t>(tensor)];
  for (const TensorPart& part : parts) {
    if (part.source >= 0) trace(**derived.source, part.source, origin);
    if (part.scales >= 0) origin->scales.push_back(part.scales);
  }
  const TensorPart& part = parts[0];
  if (part.values != TensorPart::Values::kStored) {
    origin->step(std::string(values_text(part.values)));
  } else if (parts.size() > 1) {
    origin->step(fmt::format("{} stacked", parts.size()));
  } else if (part.source >= 0 &&
             sources[static_cast<size_t>(part.source)].shape.size() > target.shape.size()) {
    origin->step(fmt::format("slice {} of its stack", part.origin[0]));
  }
  if (part.order.group != 0) origin->step("rows of each head reordered for RoPE");
}

class ReportWriter {
 public:
  explicit ReportWriter(ByteSink& sink) : sink_(sink) {}
  ~ReportWriter() = default;

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

Json tensor_json(const Catalog::Tensor& tensor) {
  return {{"name", tensor.name},
          {"dtype", dtype_name(tensor.dtype)},
          {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())}};
}

}  // namespace

void write_model_report(const std::shared_ptr<const Checkpoint>& source, const NamedModel& result,
                        const ConvertReport& report, ByteSink& sink) {
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

  const std::vector<Catalog::Tensor>& inputs = source->catalog().tensors();
  std::unordered_set<int64_t> used;
  out.list("targets");
  const std::vector<Catalog::Tensor>& targets = result.checkpoint->catalog().tensors();
  for (size_t i = 0; i < targets.size(); ++i) {
    Origin origin;
    trace(*result.checkpoint, static_cast<int64_t>(i), &origin);
    Json json = tensor_json(targets[i]);
    Json from = Json::array();
    for (int64_t tensor : origin.sources) from.push_back(inputs[static_cast<size_t>(tensor)].name);
    json["from"] = std::move(from);
    json["steps"] = origin.steps;
    used.insert(origin.sources.begin(), origin.sources.end());
    used.insert(origin.scales.begin(), origin.scales.end());
    out.entry(json);
  }
  out.end_list();

  std::unordered_map<std::string_view, std::string_view> reasons;
  for (const adapt::LeftOut& left_out : result.left_out) reasons.emplace(left_out.name, left_out.why);
  out.list("sources");
  for (size_t i = 0; i < inputs.size(); ++i) {
    Json json = tensor_json(inputs[i]);
    const auto reason = reasons.find(inputs[i].name);
    const bool is_used = used.contains(static_cast<int64_t>(i));
    json["fate"] = is_used ? "used" : "left out";
    if (!is_used) json["why"] = reason == reasons.end() ? "not taken by the model" : reason->second;
    out.entry(json);
  }
  for (const Catalog::Object& object : source->catalog().objects())
    out.entry({{"name", object.name}, {"fate", "left out"}, {"why", "not a tensor of the model"}});
  out.end_list();
  out.text("}\n");
  out.flush();
}

}  // namespace milepost
