// Property: what a job of one mesh saves, a job of any other mesh loads to the bit, with and without sharing
// the reading, and all ranks together then read each byte once.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <random>

#include "milepost/base/error.h"
#include "milepost/engine/checkpoint.h"
#include "milepost/storage/faulty.h"
#include "train/parallel/rank_threads.h"
#include "train/state/checkpointer.h"
#include "train/state/job_save.h"
#include "train/state/job_snapshot.h"
#include "train/state/test_job.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

using Random = std::mt19937_64;

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

struct Shape {
  std::string name;
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  bool is_buffer = false, has_parts = false;
};

// Rows that leave some ranks with less or nothing, scalars, a fused parameter, a buffer.
std::vector<Shape> random_shapes(Random& random) {
  std::vector<Shape> shapes = {{"first.weight", {pick(random, 1, 9), 3}, at::kFloat}};
  const int64_t count = pick(random, 1, 6);
  for (int64_t i = 0; i < count; ++i) {
    Shape shape{
        "layers." + std::to_string(i) + ".w", {}, pick(random, 0, 1) == 0 ? at::kFloat : at::kBFloat16};
    const int64_t ndim = pick(random, 0, 3);
    for (int64_t d = 0; d < ndim; ++d) shape.sizes.push_back(pick(random, 1, 11));
    if (ndim > 0 && pick(random, 0, 3) == 0) {
      shape.sizes[0] *= 4;
      shape.has_parts = true;
    }
    shape.is_buffer = pick(random, 0, 4) == 0;
    shapes.push_back(shape);
  }
  if (pick(random, 0, 3) == 0) shapes.push_back({"large.w", {pick(random, 300, 1300), 1031}, at::kFloat});
  return shapes;
}

Degrees random_degrees(Random& random) {
  static constexpr int64_t kDegrees[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {3, 1}, {1, 4}, {4, 1}, {2, 2}};
  const auto& chosen = kDegrees[static_cast<size_t>(pick(random, 0, 7))];
  Degrees degrees;
  degrees.dp_replicate = chosen[0];
  degrees.dp_shard = chosen[1];
  return degrees;
}

// Everything is a function of `seed` and the element's place in the whole tensor.
at::Tensor whole_values(const Shape& shape, int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return at::randn(shape.sizes, generator, at::TensorOptions().dtype(at::kFloat)).to(shape.dtype);
}

class RandomModel final : public Model {
 public:
  RandomModel(const std::vector<Shape>& shapes, const DeviceMesh& mesh) : parameters_of_(shapes.size()) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      Parameter& parameter = parameters_of_[i];
      const Shape& shape = shapes[i];
      parameter.name = shape.name;
      parameter.shape = shape.sizes;
      parameter.trainable = !shape.is_buffer;
      if (mesh.degrees().world_size() > 1) {
        parameter.mesh = mesh.dense();
        parameter.rank = mesh.rank();
        for (const std::string& name : parameter.mesh.names) {
          const bool is_cut = name == "fsdp" && !shape.is_buffer && !shape.sizes.empty();
          parameter.placements.push_back(is_cut ? Placement::shard(0) : Placement::replicate());
        }
      }
      if (shape.has_parts) {
        const std::string& name = shape.name;
        parameter.parts = {{name + "q", 4, 0, 2}, {name + "k", 4, 2, 1}, {name + "v", 4, 3, 1}};
      }
      parameter.local = local_values(parameter, at::zeros(shape.sizes, shape.dtype));
      parameters_.push_back(&parameter);
    }
  }
  static at::Tensor local_values(const Parameter& parameter, at::Tensor whole) {
    const Box box = local_box(parameter);
    for (size_t d = 0; d < box.sizes.size(); ++d) {
      whole = whole.narrow(static_cast<int64_t>(d), box.offsets[d], box.sizes[d]);
    }
    return whole.clone(at::MemoryFormat::Contiguous);
  }
  std::vector<at::Tensor> hidden(const Batch&, Execution&, bool) override { return {}; }
  at::Tensor logits(const at::Tensor& hidden) override { return hidden; }
  const Block& head() const override { return head_; }

 private:
  std::vector<Parameter> parameters_of_;
  Block head_;
};

// One rank's job.
struct RankJob {
  RankJob(const std::vector<Shape>& all, ProcessGroups& groups)
      : shapes(all), model(all, groups.mesh()), optimizer(model.parameters(), one_group()) {
    job.model = &model;
    job.optimizer = &optimizer;
    job.scheduler = &scheduler;
    job.train = &train;
    if (groups.mesh().degrees().world_size() > 1) job.groups = &groups;
  }
  // Calls `use(memory, values)` for every local tensor and the values that it should have.
  template <typename Use>
  void for_each(const Use& use) {
    optimizer.materialize();
    int64_t seed = 1;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const Parameter& parameter = *model.parameters()[i];
      use(parameter.name, parameter.local,
          RandomModel::local_values(parameter, whole_values(shapes[i], ++seed)));
      seed += 3;
      for (ParameterGroup& group : optimizer.groups()) {
        for (size_t k = 0; k < group.parameters.size(); ++k) {
          if (group.parameters[k] != &parameter) continue;
          Moments& moments = group.moments[k];
          const auto of_seed = [&](int64_t s) {
            return RandomModel::local_values(parameter, whole_values(shapes[i], s));
          };
          use(parameter.name + " exp_avg", moments.exp_avg, of_seed(seed + 1));
          use(parameter.name + " exp_avg_sq", moments.exp_avg_sq, of_seed(seed + 2));
          use(parameter.name + " step", moments.step, at::full({}, static_cast<float>(seed)));
        }
      }
    }
  }
  void set() {
    const at::NoGradGuard no_grad;
    for_each([](const std::string&, const at::Tensor& memory, const at::Tensor& values) {
      memory.detach().copy_(values);
    });
    train.step = 2;
  }
  int check() {
    int wrong = 0;
    for_each([&](const std::string& name, const at::Tensor& memory, const at::Tensor& values) {
      if (at::equal(memory.detach(), values.to(memory.scalar_type()))) return;
      ++wrong;
      ADD_FAILURE() << name << " on rank " << job.rank();
    });
    return wrong;
  }

  const std::vector<Shape>& shapes;
  RandomModel model;
  Optimizer optimizer;
  LrScheduler scheduler{LrSchedule(config::LrScheduler(), 100), optimizer};
  TrainState train;
  Job job;
};

class MeshCheckpointTest : public testing::Test {
 protected:
  MeshCheckpointTest() {
    std::string folder = testing::TempDir() + "/milepost-mesh-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) throw errno;
    config.dump_folder = folder;
    config.checkpoint.enable = true;
    config.checkpoint.interval = 2;
    config.checkpoint.last_save_model_only = false;
  }
  ~MeshCheckpointTest() override {
    unsetenv("MILEPOST_SHARE_READS");
    std::filesystem::remove_all(config.dump_folder);
  }
  config::Trainer config;
};

// "Read N bytes of the checkpoint, and had M from other ranks"
int64_t bytes_read(std::string_view line) {
  return line.starts_with("Read ") ? std::strtoll(line.data() + 5, nullptr, 10) : 0;
}

class MeshCheckpoints : public MeshCheckpointTest, public testing::WithParamInterface<uint64_t> {};

TEST_P(MeshCheckpoints, MoveToAnyMeshToTheBit) {
  Random random(GetParam());
  const std::vector<Shape> shapes = random_shapes(random);
  const Degrees from = random_degrees(random);
  run_ranks(from, [&](ProcessGroups& groups) {
    RankJob rank(shapes, groups);
    rank.set();
    Checkpointer(config, rank.job).save(2, false);
  });
  int64_t stored = 0;
  for (const Catalog::Tensor& tensor :
       Checkpoint::open(config.dump_folder + "/checkpoint/step-2")->catalog().tensors()) {
    stored += *dtype_bytes(tensor.dtype, num_elements(tensor.shape));
  }
  for (const bool is_shared : {true, false}) {
    setenv("MILEPOST_SHARE_READS", is_shared ? "1" : "0", 1);
    const Degrees to = random_degrees(random);
    std::mutex mutex;
    int64_t read = 0;
    run_ranks(to, [&](ProcessGroups& groups) {
      RankJob rank(shapes, groups);
      Checkpointer checkpoints(config, rank.job, [&](bool, std::string_view line) {
        const std::lock_guard lock(mutex);
        read += bytes_read(line);
      });
      checkpoints.load(2);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(rank.check(), 0);
      EXPECT_EQ(rank.train.step, 2);
    });
    if (to.world_size() > 1 && is_shared) {
      EXPECT_EQ(read, stored);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, MeshCheckpoints, testing::Range<uint64_t>(0, 40));

TEST_F(MeshCheckpointTest, AnErrorOfOneRankIsAnErrorOfAll) {
  Degrees degrees;
  degrees.dp_replicate = 2;
  degrees.dp_shard = 2;
  const std::vector<Shape> shapes = {{"a.w", {64, 1024}, at::kFloat}, {"b.w", {7}, at::kFloat}};
  run_ranks(degrees, [&](ProcessGroups& groups) {
    RankJob rank(shapes, groups);
    rank.set();
    Checkpointer(config, rank.job).save(2, false);
  });
  // Sound to who looks at names and sizes, but not to who reads.
  const std::string file = config.dump_folder + "/checkpoint/step-2/__1_0.distcp";
  const auto size = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, 0);
  std::filesystem::resize_file(file, size);
  setenv("MILEPOST_SHARE_READS", "1", 1);
  std::mutex mutex;
  int failures = 0;
  EXPECT_THROW(run_ranks(degrees,
                         [&](ProcessGroups& groups) {
                           RankJob rank(shapes, groups);
                           try {
                             Checkpointer(config, rank.job).load(2);
                           } catch (const Error& error) {
                             const std::lock_guard lock(mutex);
                             ++failures;
                             EXPECT_NE(std::string(error.what()).find("__1_0.distcp"), std::string::npos)
                                 << error.what();
                             throw;
                           }
                         }),
               Error);
  EXPECT_EQ(failures, 4);
}

// One rank's disk is full, or fails: the save fails on all, and what was there stays.
TEST_F(MeshCheckpointTest, AFailedWriteOfOneRankEndsTheSaveOnAll) {
  Degrees degrees;
  degrees.dp_shard = 3;
  const std::vector<Shape> shapes = {{"a.w", {64, 16}, at::kFloat}, {"b.w", {7}, at::kBFloat16}};
  const std::string folder = config.dump_folder + "/checkpoint";
  for (const std::string fault : {"", "write:1:ENOSPC", "sync:1:EIO"}) {
    std::mutex mutex;
    int failures = 0;
    const auto body = [&](ProcessGroups& groups) {
      RankJob rank(shapes, groups);
      rank.set();
      if (fault.empty()) {
        Checkpointer(config, rank.job).save(2, false);
        return;
      }
      const bool is_faulty = rank.job.rank() == 1;
      const std::shared_ptr<Storage> storage =
          faulty_storage(posix_storage(), is_faulty ? parse_faults("fail=" + fault) : std::vector<Fault>());
      const JobSnapshot state = snapshot_of_job(rank.job, "{}");
      try {
        write_dcp({storage, folder + "/step-4"}, state.snapshot, rank.job.rank(), Together(rank.job.groups),
                  false, {});
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        ++failures;
        EXPECT_NE(std::string(error.what()).find("__1_0.distcp"), std::string::npos) << error.what();
        throw;
      }
    };
    if (fault.empty()) {
      run_ranks(degrees, body);
      continue;
    }
    EXPECT_THROW(run_ranks(degrees, body), Error);
    EXPECT_EQ(failures, 3);
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      names.push_back(entry.path().filename());
    EXPECT_EQ(names, std::vector<std::string>{"step-2"});
  }
  run_ranks(degrees, [&](ProcessGroups& groups) {
    RankJob rank(shapes, groups);
    Checkpointer(config, rank.job).load(-1);
    EXPECT_EQ(rank.check(), 0);
  });
}

}  // namespace
}  // namespace milepost::train
