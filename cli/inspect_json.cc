#include <algorithm>

#include "inspect_text.h"

namespace milepost::cli {
namespace {

// The library refuses lone surrogates, which Python strings may hold; such a value is given as its JSON text.
Json parsed(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json{{"$json", text}} : value;
}

Json dims_json(DimsView dims) {
  Json json = Json::array();
  for (const int64_t dim : dims) json.push_back(dim);
  return json;
}

Json chunks_json(const Catalog& catalog, const Catalog::Tensor& tensor) {
  Json chunks = Json::array();
  for (int64_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.num_chunks; ++chunk) {
    const Box box = catalog.chunk_box(tensor, chunk);
    const Location& location = catalog.chunk_location(chunk);
    Json json = {{"box", {{"offsets", dims_json(box.offsets)}, {"sizes", dims_json(box.sizes)}}}};
    if (location.file != Location::kNoFile) {
      json["file"] = catalog.files()[location.file].path;
      json["offset"] = location.offset;
      json["length"] = location.length;
    }
    chunks.push_back(std::move(json));
  }
  return chunks;
}

Json stats_json(const TensorStats& stats) {
  if (!stats.has_values) return {{"count", stats.count}};
  return {{"count", stats.count}, {"nan", stats.nan}, {"inf", stats.inf},   {"zeros", stats.zeros},
          {"min", stats.min},     {"max", stats.max}, {"mean", stats.mean}, {"std", stats.std}};
}

Json tensor_json(const Catalog& catalog, const Catalog::Tensor& tensor, bool with_chunks) {
  Json json = {{"name", tensor.name}, {"dtype", dtype_name(tensor.dtype)}};
  json["shape"] = dims_json(tensor.shape);
  json["bytes"] = tensor_bytes(tensor);
  json["chunks"] = with_chunks ? chunks_json(catalog, tensor) : Json(tensor.num_chunks);
  return json;
}

Json totals_json(const Totals& totals) {
  return {{"tensors", totals.tensors},
          {"objects", totals.objects},
          {"elements", totals.elements},
          {"bytes", totals.bytes}};
}

Json object_entry_json(const Catalog& catalog, const Entry& entry, const WantedDetails& wanted,
                       const Details& details, size_t position) {
  const Catalog::Object& object = catalog.objects()[static_cast<size_t>(entry.index)];
  Json json = {{"name", object.name}, {"bytes", object.location.length}};
  if (wanted.chunks && object.location.file != Location::kNoFile) {
    json["file"] = catalog.files()[object.location.file].path;
    json["offset"] = object.location.offset;
    json["length"] = object.location.length;
  }
  if (!wanted.values) return json;
  if (details.errors[position]) {
    json["error"] = *details.errors[position];
  } else {
    json["value"] = parsed(details.values[position]);
  }
  return json;
}

}  // namespace

Json inspection_json(const Checkpoint& checkpoint, const Summary& summary, const std::vector<Entry>& entries,
                     const WantedDetails& wanted, const Details& details) {
  const Catalog& catalog = checkpoint.catalog();
  Json json = {{"format", format_name(checkpoint.format())}, {"path", checkpoint.path()}};
  Json facts = Json::object();
  for (const auto& [label, value] : checkpoint.details()) {
    if (label == "writer") json["writer"] = value;
    facts[label] = value;
  }
  json["details"] = std::move(facts);
  const bool has_model = !summary.groups.empty() && summary.groups[0].first == "model";
  json["num_tensors"] = summary.all.tensors;
  json["num_objects"] = summary.all.objects;
  json["num_parameters"] = has_model ? summary.groups[0].second.elements : 0;
  json["num_chunks"] = summary.chunks;
  json["bytes"] = summary.all.bytes;
  json["dtypes"] = Json::object();
  for (const auto& [dtype, totals] : summary.dtypes) {
    json["dtypes"][std::string(dtype_name(dtype))] = {{"tensors", totals.tensors}, {"bytes", totals.bytes}};
  }
  json["files"] = Json::array();
  for (const Catalog::File& file : catalog.files()) {
    json["files"].push_back(
        {{"name", file.path}, {"bytes", file.size_bytes < 0 ? Json() : Json(file.size_bytes)}});
  }
  json["groups"] = Json::object();
  for (const auto& [name, totals] : summary.groups) json["groups"][name] = totals_json(totals);
  json["warnings"] = checkpoint.warnings();
  json["tensors"] = Json::array();
  json["objects"] = Json::array();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].is_object) {
      json["objects"].push_back(object_entry_json(catalog, entries[i], wanted, details, i));
      continue;
    }
    Json tensor =
        tensor_json(catalog, catalog.tensors()[static_cast<size_t>(entries[i].index)], wanted.chunks);
    if (wanted.sha256) tensor["sha256"] = details.sha256[i];
    if (wanted.stats) tensor["stats"] = stats_json(*details.stats[i]);
    json["tensors"].push_back(std::move(tensor));
  }
  return json;
}

Json value_json(const std::shared_ptr<const Checkpoint>& checkpoint, const Entry& entry) {
  const Catalog& catalog = checkpoint->catalog();
  if (entry.is_object) {
    const std::string text = object_json(*checkpoint, entry.index, true, true);
    return {{"name", entry_name(catalog, entry)}, {"kind", "object"}, {"value", parsed(text)}};
  }
  const Corner corner = read_corner(checkpoint, entry.index);
  Json json = tensor_json(catalog, catalog.tensors()[static_cast<size_t>(entry.index)], false);
  json["kind"] = "tensor";
  json["corner"] = corner.rows;
  return json;
}

}  // namespace milepost::cli
