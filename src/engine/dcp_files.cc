#include "engine/dcp_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "engine/object_storages.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"
#include "milepost/format/torch_zip.h"

namespace milepost {
namespace {

constexpr int64_t kManyFilesFrom = 64 << 20;
constexpr int kManyFiles = 4;

// What torch counts when it spreads items over files: the bytes of the whole tensor.
int64_t load_of(const Catalog& catalog, const PayloadSource& source, int64_t target, int64_t tensor) {
  if (target < 0) return 1;
  const auto index = static_cast<size_t>(tensor);
  return dtype_bytes(source.views[index].dtype, num_elements(catalog.tensors()[index].shape)).value_or(0);
}

// A file system lets one writer at a time into a file. The number does not depend on threads, so that equal
// saves give equal files.
int default_num_files(const std::vector<int64_t>& bytes, bool hash_files) {
  if (hash_files)
    return std::clamp(static_cast<int>(std::min<size_t>(bytes.size(), kManyFiles)), 1, kManyFiles);
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) < kManyFilesFrom ? 1 : kManyFiles;
}

}  // namespace

RankFiles plan_rank_files(const GlobalPlan& plan, int64_t rank, const WriteOptions& options,
                          const PayloadSource& source, const std::vector<PayloadRef>& object_payloads) {
  const std::vector<int64_t>& targets = plan.targets[static_cast<size_t>(rank)];
  std::vector<int64_t> tensor_of, bytes;
  std::vector<bool> is_object;
  for (size_t i = 0; i < targets.size(); ++i) {
    tensor_of.push_back(targets[i] < 0 ? -1 : plan.catalog.tensor_of_chunk(targets[i]));
    bytes.push_back(load_of(plan.catalog, source, targets[i], tensor_of[i]));
    is_object.push_back(targets[i] < 0);
  }
  RankFiles out;
  out.result.places.resize(targets.size());
  const int num_files =
      options.files_per_rank == 0 ? default_num_files(bytes, options.hash_files) : options.files_per_rank;
  const auto spread = split_over_files(bytes, is_object, num_files);
  for (size_t n = 0; n < spread.size(); ++n) {
    OutputFile file;
    file.source = &source;
    std::vector<dcp::Item> items;
    for (int32_t position : spread[n]) {
      const auto at = static_cast<size_t>(position);
      dcp::Item item;
      item.payload = static_cast<int64_t>(items.size());
      PayloadRef payload;
      if (targets[at] < 0) {
        payload = object_payloads[static_cast<size_t>(-1 - targets[at])];
        item.raw_bytes = source.length(payload);
      } else {
        payload = {PayloadRef::Kind::kTensor, static_cast<int32_t>(tensor_of[at]), targets[at]};
        item.dtype = source.views[static_cast<size_t>(tensor_of[at])].dtype;
        item.sizes = source.box(payload).sizes;
      }
      file.payloads.push_back(payload);
      items.push_back(std::move(item));
    }
    auto image = dcp::data_file_image(dcp::data_file_name(rank, static_cast<int64_t>(n)), items);
    for (size_t i = 0; i < spread[n].size(); ++i) {
      const auto item = static_cast<int64_t>(i);
      out.result.places[static_cast<size_t>(spread[n][i])] = {
          static_cast<int32_t>(n), image->item_offset(item), image->item_length(item)};
    }
    out.result.files.push_back(image->name());
    out.result.file_sizes.push_back(image->size());
    file.image = std::move(image);
    out.files.push_back(std::move(file));
  }
  return out;
}

PayloadRef object_payload(int64_t object, PayloadSource* source) {
  const Checkpoint& checkpoint = *source->checkpoint;
  const Catalog::Object& entry = checkpoint.catalog().objects()[static_cast<size_t>(object)];
  PayloadRef payload;
  if (checkpoint.format() == CheckpointFormat::kDcp && entry.location.file != Location::kNoFile) {
    payload.kind = PayloadRef::Kind::kFileRange;
    payload.item = static_cast<int32_t>(source->ranges.size());
    source->ranges.push_back(entry.location);
    return payload;
  }
  try {
    const ObjectValue value = checkpoint.read_object(object);
    std::vector<ByteVector> storage;
    pickle::Builder builder;
    ObjectStorages storages(value, builder);
    ByteVector item = torch_zip::object_item(*storages.value(), storages.load(&storage));
    payload.kind = PayloadRef::Kind::kOwned;
    payload.item = static_cast<int32_t>(source->owned.size());
    source->owned.push_back(std::move(item));
  } catch (Error& error) {
    error.set_key(entry.name);
    throw;
  }
  return payload;
}

std::vector<PayloadRef> prepare_payloads(const GlobalPlan& plan, const std::vector<int64_t>& ranks,
                                         PayloadSource* source) {
  const Catalog &have = source->checkpoint->catalog(), &want = plan.catalog;
  source->boxes = &want;
  source->views.resize(want.tensors().size());
  std::vector<PayloadRef> objects(want.objects().size());
  std::string missing;
  const auto miss = [&missing](const std::string& name) {
    if (missing.size() < 2000) missing += (missing.empty() ? "" : ", ") + printable(name);
  };
  for (size_t t = 0; t < want.tensors().size(); ++t) {
    const Catalog::Tensor& tensor = want.tensors()[t];
    source->views[t] = {have.find_tensor(tensor.name).value_or(-1), tensor.dtype, static_cast<int64_t>(t)};
  }
  for (int64_t rank : ranks) {
    for (int64_t target : plan.targets[static_cast<size_t>(rank)]) {
      if (target >= 0) {
        const auto tensor = static_cast<size_t>(want.tensor_of_chunk(target));
        if (source->views[tensor].source < 0) miss(want.tensors()[tensor].name);
        continue;
      }
      const auto object = static_cast<size_t>(-1 - target);
      const std::optional<int64_t> found = have.find_object(want.objects()[object].name);
      if (found) {
        objects[object] = object_payload(*found, source);
      } else {
        miss(want.objects()[object].name);
      }
    }
  }
  if (!missing.empty()) throw MissingKeyError("the source lacks what the plan wants to save: " + missing);
  return objects;
}

void set_locations(GlobalPlan& plan, const std::vector<RankResult>& results) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const RankResult& result = results[rank];
    std::vector<uint32_t> files;
    for (size_t n = 0; n < result.files.size(); ++n) {
      files.push_back(plan.catalog.add_file(result.files[n], result.file_sizes[n]));
    }
    for (size_t i = 0; i < result.places.size(); ++i) {
      const RankResult::Place& place = result.places[i];
      const Location location{place.offset, place.length, files[static_cast<size_t>(place.file)],
                              Location::kTorchItem};
      const int64_t target = plan.targets[rank][i];
      if (target < 0) {
        plan.catalog.set_object_location(-1 - target, location);
      } else {
        plan.catalog.set_chunk_location(target, location);
      }
    }
  }
}

}  // namespace milepost
