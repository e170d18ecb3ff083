#include <fmt/format.h>

#include "engine/convert_plan.h"
#include "milepost/base/error.h"
#include "milepost/format/safetensors.h"

namespace milepost {

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
  const auto shards = safetensors::assign_shards(tensors, options.shard_size_bytes);
  const auto num_shards = static_cast<int64_t>(shards.size());
  if (!single_file_name.empty() && num_shards > 1) {
    throw ValueError(
        fmt::format("{} files are needed for a shard size of {} bytes, but the destination is one file",
                    num_shards, options.shard_size_bytes),
        "give a folder as destination or a larger --shard-size");
  }
  safetensors::Index index;
  index.total_size = 0;
  for (int64_t shard = 0; shard < num_shards; ++shard) {
    const std::vector<int64_t>& members = shards[static_cast<size_t>(shard)];
    std::string name =
        single_file_name.empty() ? safetensors::shard_name(shard, num_shards) : single_file_name;
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
  if (num_shards > 1) {
    out.small_files.push_back(
        {std::string(safetensors::kIndexName),
         [text = safetensors::write_index(index)](ByteSink& sink) { sink.append(as_bytes(text)); }});
  }
  return out;
}

}  // namespace milepost
