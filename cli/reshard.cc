#include <fmt/format.h>

#include "command.h"
#include "conversion.h"
#include "milepost/base/error.h"
#include "milepost/storage/storage.h"

namespace milepost::cli {
namespace {

constexpr int64_t kMaxTableBytes = 16 << 20;

class Reshard final : public Command {
 public:
  const char* name() const override { return "reshard"; }
  const char* summary() const override { return "Lay a checkpoint out for other ranks, as DCP"; }
  const char* description() const override {
    return "Writes a DCP checkpoint laid out for other ranks. With --ranks N every tensor is cut along its "
           "first dimension as "
           "torch.chunk does. With --mesh the ranks form a mesh, and a table says how each mesh dimension "
           "treats a tensor: "
           "one rule a line, GLOB PLACEMENT..., as many placements (Replicate, Shard(dim), StridedShard(dim, "
           "split_factor)) as "
           "the mesh has dimensions. The first rule that matches a name holds; names without one are "
           "replicated.";
  }
  const char* examples() const override {
    return "  milepost reshard step-1000 step-1000-on-8 --ranks 8\n"
           "  # placements.txt:   *.wo.weight   Shard(0) Shard(1)\n"
           "  #                   *norm*        Shard(0) Replicate\n"
           "  milepost reshard step-1000 step-1000-on-4 --mesh dp_shard=2,tp=2 --placements placements.txt\n";
  }

  void declare(Flags& flags) override {
    flags.integer("--ranks", &ranks_, 1, 1 << 20, "number of ranks");
    flags.text("--mesh", &mesh_, "MESH", "mesh dimensions and their sizes, slowest first: dp_shard=2,tp=2");
    flags.text("--placements", &placements_, "FILE", "the table of placements for --mesh");
    conversion_.declare(flags);
  }

  int run(const Terminal& terminal) override {
    if ((ranks_ > 0) == mesh_.has_value())
      throw ValueError("one of --ranks and --mesh is needed (see `milepost reshard --help`)");
    if (placements_ && !mesh_) throw ValueError("--placements needs --mesh (see `milepost reshard --help`)");
    ConvertOptions& options = conversion_.options;
    options.to = CheckpointFormat::kDcp;
    options.mesh = mesh_ ? Mesh::parse(*mesh_) : Mesh{{"rank"}, {ranks_}};
    if (placements_) options.placements = read_placements(*placements_, options.mesh);
    return conversion_.run(terminal, "reshard");
  }

 private:
  static std::vector<PlacementRule> read_placements(const std::string& path, const Mesh& mesh) {
    const StorageLocation location = resolve_location(path);
    const ByteVector text = read_all(*location.storage->open_read(location.path), kMaxTableBytes);
    return parse_placement_rules(as_text(text), mesh);
  }

  Conversion conversion_;
  int64_t ranks_ = 0;
  std::optional<std::string> mesh_, placements_;
};

}  // namespace

std::unique_ptr<Command> reshard_command() { return std::make_unique<Reshard>(); }

}  // namespace milepost::cli
