#include <fmt/format.h>

#include <numeric>

#include "engine/convert_plan.h"
#include "engine/dcp_files.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"

namespace milepost {
namespace {

std::vector<Placement> placements_of(const Selection::Entry& entry, DimsView shape,
                                     const ConvertOptions& options) {
  if (!options.placements.empty()) return placements_for(entry.name, options.placements, options.mesh);
  std::vector<Placement> placements(options.mesh.sizes.size());
  if (!shape.empty() && !placements.empty()) placements[0] = Placement::shard(0);
  return placements;
}

LocalPlan local_plan(const Catalog& catalog, const Selection& selection, const ConvertOptions& options,
                     int64_t rank) {
  const Dims coordinate = options.mesh.coordinate(rank);
  LocalPlan plan;
  for (const Selection::Entry& entry : selection.entries) {
    if (entry.object >= 0) {
      plan.add_object(entry.name);
      continue;
    }
    const Catalog::Tensor& tensor = catalog.tensors()[static_cast<size_t>(entry.tensor)];
    try {
      plan.add_tensor(
          entry.name, entry.dtype, tensor.shape,
          local_box(tensor.shape, options.mesh, placements_of(entry, tensor.shape, options), coordinate));
    } catch (Error& error) {
      error.set_key(entry.name);
      throw;
    }
  }
  return plan;
}

}  // namespace

OutputSet plan_dcp_output(const std::shared_ptr<const Checkpoint>& source, const Selection& selection,
                          const ConvertOptions& options, const std::string& checkpoint_id) {
  const Catalog& catalog = source->catalog();
  const int64_t num_ranks = options.mesh.num_ranks();
  std::vector<LocalPlan> plans;
  for (int64_t rank = 0; rank < num_ranks; ++rank)
    plans.push_back(local_plan(catalog, selection, options, rank));
  auto plan = std::make_shared<GlobalPlan>(plan_global(plans));
  plans.clear();
  plan->catalog.set_has_paths(true);
  std::vector<std::string> order;
  for (const Selection::Entry& entry : selection.entries) {
    plan->catalog.set_path(entry.name, catalog.path(entry.name));
    order.emplace_back(entry.name);
  }
  plan->catalog.set_order(std::move(order));

  OutputSet out;
  out.payloads = std::make_unique<PayloadSource>();
  out.payloads->checkpoint = source;
  std::vector<int64_t> ranks(static_cast<size_t>(num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::vector<PayloadRef> objects = prepare_payloads(*plan, ranks, out.payloads.get());
  std::vector<RankResult> results;
  for (int64_t rank : ranks) {
    RankFiles files = plan_rank_files(*plan, rank, {.files_per_rank = options.files}, *out.payloads, objects);
    for (OutputFile& file : files.files) out.files.push_back(std::move(file));
    results.push_back(std::move(files.result));
  }
  set_locations(*plan, results);
  out.small_files.push_back({std::string(dcp::kMetadataName), [plan, checkpoint_id](ByteSink& sink) {
                               dcp::write_metadata(plan->catalog, {checkpoint_id, {}}, sink);
                             }});
  out.alive.push_back(plan);
  return out;
}

}  // namespace milepost
