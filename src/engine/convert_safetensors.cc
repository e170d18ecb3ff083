#include <fmt/format.h>

#include <map>

#include "engine/convert_plan.h"
#include "milepost/base/error.h"
#include "milepost/format/safetensors.h"

namespace milepost {
namespace {

// One file of the output.
struct Shard {
  std::string name;
  std::vector<int64_t> members;  // indexes of tensors
};

std::vector<Shard> shards_by_size(const std::vector<safetensors::OutTensor>& tensors,
                                  const ConvertOptions& options, const std::string& single_file_name) {
  const auto by_size = safetensors::assign_shards(tensors, options.shard_size_bytes);
  const auto num_shards = static_cast<int64_t>(by_size.size());
  if (!single_file_name.empty() && num_shards > 1) {
    throw ValueError(
        fmt::format("{} files are needed for a shard size of {} bytes, but the destination is one file",
                    num_shards, options.shard_size_bytes),
        "give a folder as destination or a larger --shard-size");
  }
  std::vector<Shard> shards;
  for (int64_t shard = 0; shard < num_shards; ++shard) {
    shards.push_back(
        {single_file_name.empty() ? safetensors::shard_name(shard, num_shards) : single_file_name,
         by_size[static_cast<size_t>(shard)]});
  }
  return shards;
}

// As options.weight_map says; files that get no tensor are left out.
std::vector<Shard> shards_by_map(const std::vector<safetensors::OutTensor>& tensors,
                                 const ConvertOptions& options) {
  std::map<std::string_view, std::string_view> file_of(options.weight_map.begin(), options.weight_map.end());
  std::map<std::string_view, std::vector<int64_t>> members;
  std::vector<std::string> unplaced;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto file = file_of.find(tensors[i].name);
    if (file == file_of.end()) {
      unplaced.push_back(tensors[i].name);
    } else {
      members[file->second].push_back(static_cast<int64_t>(i));
    }
  }
  if (!unplaced.empty()) {
    MissingKeyError error(
        fmt::format("{} of the tensors are not in the index whose files were to be followed",
                    unplaced.size()),
        "give --like the folder of a model that has this tensor, or leave it out, so that the size decides");
    error.set_key(unplaced[0]);
    throw error;
  }
  std::vector<Shard> shards;
  for (auto& [name, of_file] : members) shards.push_back({std::string(name), std::move(of_file)});
  return shards;
}

}  // namespace

OutputSet plan_safetensors_output(const std::shared_ptr<const Checkpoint>& source, const Selection& selection,
                                  const ConvertOptions& options, const std::string& single_file_name) {
  OutputSet out;
  out.payloads = std::make_unique<PayloadSource>();
  out.payloads->checkpoint = source;
  std::vector<safetensors::OutTensor> tensors;
  for (const Selection::Entry& entry : selection.entries) {
    const Catalog::Tensor& info = source->catalog().tensors()[static_cast<size_t>(entry.tensor)];
    tensors.push_back({info.name, entry.dtype, info.shape});
    out.payloads->views.push_back({entry.tensor, entry.dtype, -1});
  }
  const std::vector<Shard> shards = options.weight_map.empty() || !single_file_name.empty()
                                        ? shards_by_size(tensors, options, single_file_name)
                                        : shards_by_map(tensors, options);
  safetensors::Index index;
  index.total_size = 0;
  for (const auto& [name, members] : shards) {
    std::vector<safetensors::OutTensor> chosen;
    for (int64_t member : members) chosen.push_back(tensors[static_cast<size_t>(member)]);
    safetensors::Layout layout = safetensors::file_layout(name, chosen, {{"format", "pt"}});
    OutputFile file;
    file.source = out.payloads.get();
    for (int64_t position : layout.order) {
      const int64_t member = members[static_cast<size_t>(position)];
      file.payloads.push_back({PayloadRef::Kind::kTensor, static_cast<int32_t>(member), -1});
      index.total_size += out.payloads->length(file.payloads.back());
      index.weight_map.emplace_back(tensors[static_cast<size_t>(member)].name, name);
    }
    file.image = std::move(layout.image);
    out.files.push_back(std::move(file));
  }
  if (single_file_name.empty() && (shards.size() > 1 || options.always_index)) {
    out.small_files.push_back(
        {std::string(safetensors::kIndexName),
         [text = safetensors::write_index(index)](ByteSink& sink) { sink.append(as_bytes(text)); }});
  }
  for (const CompanionFile& companion : options.companions) {
    out.small_files.push_back(
        {companion.name, [content = companion.content](ByteSink& sink) { sink.append(as_bytes(content)); }});
  }
  return out;
}

}  // namespace milepost
