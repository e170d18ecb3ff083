// Planning a save at scale: seconds that plan_global takes (deduplication, catalog, validation) on one
// thread.
//
//   plan_bench [--rounds N] [--case NAME]
//
// The state is that of bench/metadata_scale.py (peer): three tensors and a replicated step for each
// parameter. Prints one line a case and then one JSON line each. `checks` is the share of validation, timed
// again on its own.
//
//   plan_bench --coordinator FOLDER [--rounds N]
//
// All that rank 0 does in a save by 1024 ranks of 3,000,000 chunks, beside writing its own data: the ranks'
// plans from bytes, the global plan, torch's order and paths of the entries, where each entry lies, and
// `.metadata` in FOLDER, synced.
#include <fmt/format.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/catalog/layout.h"
#include "milepost/engine/save.h"
#include "milepost/engine/save_bytes.h"
#include "milepost/engine/snapshot.h"
#include "milepost/manager/entries.h"
#include "milepost/plan/save_plan.h"
#include "milepost/storage/storage.h"

namespace milepost {
namespace {

struct Case {
  std::string_view name;
  Mesh mesh;
  int64_t parameters;                  // three tensors and a step each
  std::vector<Placement> placements;   // of every other parameter
  std::vector<Placement> alternative;  // of the others
};

std::vector<Case> cases() {
  const Placement rows = Placement::shard(0), columns = Placement::shard(1), copies = Placement::replicate();
  return {
      {"256 ranks x 1200 items, rows", Mesh::parse("fsdp=256"), 300, {rows}, {rows}},
      {"1024 ranks x 3075 tensors, rows", Mesh::parse("fsdp=1024"), 1025, {rows}, {rows}},
      {"1024 ranks x 3075 tensors, rows or columns", Mesh::parse("fsdp=1024"), 1025, {rows}, {columns}},
      {"32 x 32 ranks x 3075 tensors, grids",
       Mesh::parse("fsdp=32,tp=32"),
       1025,
       {rows, columns},
       {columns, rows}},
      {"32 x 32 ranks x 3075 tensors, strided",
       Mesh::parse("fsdp=32,tp=32"),
       1025,
       {Placement::strided_shard(0, 32), rows},
       {rows, columns}},
      {"8 x 128 ranks x 3075 tensors, copies",
       Mesh::parse("dp=8,fsdp=128"),
       1025,
       {copies, rows},
       {copies, columns}},
  };
}

std::vector<LocalPlan> make_plans(const Case& c, bool with_objects = true) {
  std::vector<LocalPlan> plans(static_cast<size_t>(c.mesh.num_ranks()));
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const Dims coordinate = c.mesh.coordinate(static_cast<int64_t>(rank));
    const Dims shape = {16384, 8192};
    const Box boxes[] = {local_box(shape, c.mesh, c.placements, coordinate),
                         local_box(shape, c.mesh, c.alternative, coordinate)};
    for (int64_t p = 0; p < c.parameters; ++p) {
      const std::string fqn = fmt::format("layers.{}.block.w{}.weight", p / 16, p % 16);
      const Box& box = boxes[p % 2];
      plans[rank].add_tensor(fqn, DType::kFloat32, shape, box);
      plans[rank].add_tensor("optimizer.state." + fqn + ".exp_avg", DType::kFloat32, shape, box);
      plans[rank].add_tensor("optimizer.state." + fqn + ".exp_avg_sq", DType::kFloat32, shape, box);
      plans[rank].add_tensor("optimizer.state." + fqn + ".step", DType::kFloat32, {}, {});
    }
    if (with_objects) plans[rank].add_object(fmt::format("dataloader.dp_rank_{}", rank));
  }
  return plans;
}

int64_t status_bytes(std::string_view field) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(field)) return std::atoll(line.c_str() + field.size() + 1) * 1024;
  }
  return 0;
}

double now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Rounds of one piece of work. Processor time is what a busy machine distorts least.
struct Timing {
  std::vector<double> wall, cpu;

  template <typename Work>
  void add(Work work) {
    const double wall_start = now(CLOCK_MONOTONIC), cpu_start = now(CLOCK_PROCESS_CPUTIME_ID);
    work();
    wall.push_back(now(CLOCK_MONOTONIC) - wall_start);
    cpu.push_back(now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start);
  }
  static double best(const std::vector<double>& rounds) {
    return *std::min_element(rounds.begin(), rounds.end());
  }
  static double median(std::vector<double> rounds) {
    std::sort(rounds.begin(), rounds.end());
    return rounds[rounds.size() / 2];
  }
};

void run(const Case& c, int rounds) {
  const std::vector<LocalPlan> plans = make_plans(c);
  int64_t items = 0;
  for (const LocalPlan& plan : plans) items += static_cast<int64_t>(plan.items().size());
  Timing total, checks;
  int64_t chunks = 0, peak = 0;
  for (int round = 0; round < rounds; ++round) {
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << 5;
    const int64_t before = status_bytes("VmRSS:");
    GlobalPlan plan;
    total.add([&] { plan = plan_global(plans); });
    peak = std::max(peak, status_bytes("VmHWM:") - before);
    chunks = plan.catalog.num_chunks();
    checks.add([&] { check_coverage(plan.catalog); });
  }
  const double best = Timing::best(total.wall), median = Timing::median(total.wall),
               cpu = Timing::best(total.cpu);
  const double check_s = Timing::best(checks.cpu);
  fmt::print(
      "{}: {} items, {} chunks: {:.3f} s (median {:.3f}), cpu {:.3f} s, of these checks {:.3f} s, peak {} "
      "MiB\n",
      c.name, items, chunks, best, median, cpu, check_s, peak >> 20);
  fmt::print(
      "{{\"case\": \"{}\", \"items\": {}, \"chunks\": {}, \"seconds\": {:.4f}, \"median_s\": {:.4f}, "
      "\"cpu_s\": {:.4f}, \"checks_cpu_s\": {:.4f}, \"peak_bytes\": {}}}\n",
      c.name, items, chunks, best, median, cpu, check_s, peak);
}

// What a rank returns once it has written its files: four, as a rank of so much state has.
std::string result_of(const GlobalPlan& plan, int64_t rank) {
  RankResult result;
  result.file_sizes.resize(4);
  for (int file = 0; file < 4; ++file) result.files.push_back(fmt::format("__{}_{}.distcp", rank, file));
  for (size_t item = 0; item < plan.targets[static_cast<size_t>(rank)].size(); ++item) {
    constexpr int64_t kLength = int64_t{16} * 8192 * 4 + 1200;
    int64_t& size = result.file_sizes[item % 4];
    result.places.push_back({static_cast<int32_t>(item % 4), size, kLength});
    size += kLength;
  }
  return encode_rank_result(result);
}

void run_coordinator(const std::string& folder, int rounds) {
  const Case c = cases()[1];
  const std::vector<LocalPlan> plans = make_plans(c, /*with_objects=*/false);
  std::vector<std::string> plan_bytes, result_bytes;
  {
    const GlobalPlan plan = plan_global(plans);
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      plan_bytes.push_back(encode_local_plan(plans[rank]));
      result_bytes.push_back(result_of(plan, static_cast<int64_t>(rank)));
    }
  }
  const StorageLocation location = resolve_location(folder);
  Timing total;
  int64_t chunks = 0;
  for (int round = 0; round < rounds; ++round) {
    total.add([&] {
      std::vector<LocalPlan> received;
      for (const std::string& bytes : plan_bytes) received.push_back(decode_local_plan(bytes));
      GlobalPlan plan = plan_global(received);
      const std::vector<std::string> names = order_of_proposals(received);
      for (const std::string& name : names) plan.catalog.set_path(name, manager::entry_path(name));
      plan.catalog.set_order(names);
      std::vector<RankResult> results;
      for (const std::string& bytes : result_bytes) results.push_back(decode_rank_result(bytes));
      write_metadata_file(*location.storage, location.path, plan, results, "step-1", true);
      chunks = plan.catalog.num_chunks();
    });
  }
  fmt::print("{{\"chunks\": {}, \"seconds\": {:.4f}, \"median_s\": {:.4f}, \"cpu_s\": {:.4f}}}\n", chunks,
             Timing::best(total.wall), Timing::median(total.wall), Timing::best(total.cpu));
}

}  // namespace
}  // namespace milepost

int main(int argc, char** argv) {
  int rounds = 5;
  std::string_view wanted;
  std::string folder;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--case") wanted = argv[i + 1];
    if (flag == "--coordinator") folder = argv[i + 1];
  }
  if (!folder.empty()) {
    milepost::run_coordinator(folder, rounds);
    return 0;
  }
  for (const milepost::Case& c : milepost::cases()) {
    if (c.name.find(wanted) != std::string_view::npos) milepost::run(c, rounds);
  }
}
