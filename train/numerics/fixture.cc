#include "train/numerics/fixture.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "milepost/base/error.h"
#include "milepost/engine/load.h"

namespace milepost::train {
namespace {

using Json = nlohmann::ordered_json;

Json read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw StorageError(ErrorCode::kNotFound, "no such file in a folder of known results", path);
  try {
    return Json::parse(file);
  } catch (const Json::exception& error) {
    FormatError wrapped(ErrorCode::kBadFormat, fmt::format("not JSON: {}", printable(error.what())));
    wrapped.set_path(path);
    throw wrapped;
  }
}

// A member, or `otherwise` where it is absent or null.
template <typename T>
T get(const Json& json, const char* name, T otherwise) {
  const auto at = json.find(name);
  return at == json.end() || at->is_null() ? otherwise : at->template get<T>();
}

flavor::Rope read_rope(const Json& json, int64_t seq_len) {
  flavor::Rope rope;
  rope.theta = get(json, "theta", 10000.0);
  rope.max_seq_len = seq_len;
  const auto scaling = get<std::string>(json, "scaling", "none");
  if (scaling == "llama") {
    rope.scaling = flavor::Rope::Scaling::kLlama;
    rope.factor = get(json, "scaling_factor", 8.0);
    rope.original_max_seq_len = get(json, "original_max_position_embeddings", int64_t{8192});
  } else if (scaling == "yarn") {
    rope.scaling = flavor::Rope::Scaling::kYarn;
    rope.factor = get(json, "rope_factor", 1.0);
    rope.original_max_seq_len = get(json, "original_seq_len", int64_t{4096});
  } else if (scaling != "none") {
    throw ValueError(fmt::format("unknown RoPE scaling '{}'", printable(scaling)));
  }
  rope.low_freq_factor = get(json, "low_freq_factor", 1.0);
  rope.high_freq_factor = get(json, "high_freq_factor", 4.0);
  rope.beta_fast = get(json, "beta_fast", 32.0);
  rope.beta_slow = get(json, "beta_slow", 1.0);
  return rope;
}

flavor::Llama3 read_llama3(const Json& arch, const flavor::Rope& rope) {
  flavor::Llama3 dims;
  dims.dim = arch.at("dim");
  dims.n_layers = arch.at("n_layers");
  dims.n_heads = arch.at("n_heads");
  dims.n_kv_heads = get(arch, "n_kv_heads", dims.n_heads);
  if (dims.n_heads < 1 || dims.n_kv_heads < 1 || dims.n_heads % dims.n_kv_heads != 0) {
    throw ValueError(fmt::format("n_kv_heads ({}) must divide n_heads ({})", dims.n_kv_heads, dims.n_heads));
  }
  dims.head_dim = dims.dim / dims.n_heads;
  dims.hidden_dim = arch.at("hidden_dim");
  dims.vocab_size = arch.at("vocab_size");
  dims.tied_embeddings = get(arch, "enable_weight_tying", false);
  dims.rope = rope;
  return dims;
}

flavor::DeepSeekV3 read_deepseek_v3(const Json& arch, const flavor::Rope& rope) {
  flavor::DeepSeekV3 dims;
  dims.dim = arch.at("dim");
  dims.n_layers = arch.at("n_layers");
  dims.n_dense_layers = arch.at("n_dense_layers");
  dims.n_heads = arch.at("n_heads");
  dims.vocab_size = arch.at("vocab_size");
  dims.q_lora_rank = get(arch, "q_lora_rank", int64_t{0});
  dims.kv_lora_rank = arch.at("kv_lora_rank");
  dims.qk_nope_head_dim = arch.at("qk_nope_head_dim");
  dims.qk_rope_head_dim = arch.at("qk_rope_head_dim");
  dims.v_head_dim = arch.at("v_head_dim");
  dims.mscale = get(arch, "mscale", 1.0);
  dims.hidden_dim = arch.at("dense_hidden_dim");
  dims.moe_hidden_dim = arch.at("moe_hidden_dim");
  dims.num_experts = arch.at("num_experts");
  dims.num_shared_experts = get(arch, "num_shared_experts", int64_t{0});
  dims.top_k = arch.at("router_top_k");
  const auto score = get<std::string>(arch, "router_score_func", "softmax");
  if (score != "softmax" && score != "sigmoid") {
    throw ValueError(fmt::format("unknown router_score_func '{}'", printable(score)));
  }
  dims.score_func =
      score == "sigmoid" ? flavor::DeepSeekV3::Score::kSigmoid : flavor::DeepSeekV3::Score::kSoftmax;
  dims.num_expert_groups = get(arch, "router_num_expert_groups", int64_t{0});
  dims.num_limited_groups = get(arch, "router_num_limited_groups", int64_t{0});
  dims.route_scale = get(arch, "router_route_scale", 1.0);
  dims.route_norm = get(arch, "router_route_norm", false);
  dims.num_mtp_layers = get(arch, "num_mtp_layers", int64_t{0});
  dims.rope = rope;
  return dims;
}

config::Model read_model(const Json& variant, int64_t seq_len) {
  const Json& arch = variant.at("arch");
  const flavor::Rope rope = read_rope(variant.at("rope"), seq_len);
  const auto name = variant.at("model").get<std::string>();
  config::Model model;
  if (name == "llama3") {
    model.architecture.dims = read_llama3(arch, rope);
  } else if (name == "deepseek_v3") {
    model.architecture.dims = read_deepseek_v3(arch, rope);
    if (arch.contains("load_balance_coeff") && arch["load_balance_coeff"].is_null()) {
      model.options.load_balance_coeff.reset();
    } else {
      model.options.load_balance_coeff = get(arch, "load_balance_coeff", 1e-3);
    }
  } else {
    throw ValueError(fmt::format("unknown model '{}'; known are llama3, deepseek_v3", printable(name)));
  }
  return model;
}

template <typename Choice>
Choice choice(const Json& json, const char* name, const char* otherwise) {
  const auto text = get<std::string>(json, name, otherwise);
  const auto parsed = Choice::parse(text);
  if (!parsed) throw ValueError(fmt::format("unknown {} '{}'", name, printable(text)));
  return *parsed;
}

config::Optimizer read_optimizer(const Json& train) {
  config::Optimizer optimizer;
  config::ParamGroup group;
  const Json adamw = get(train, "adamw", Json::object());
  auto& options = group.optimizer_kwargs;
  options.lr = get(adamw, "lr", options.lr);
  options.betas = get(adamw, "betas", options.betas);
  options.eps = get(adamw, "eps", options.eps);
  options.weight_decay = get(adamw, "weight_decay", options.weight_decay);
  optimizer.param_groups = {group};
  optimizer.implementation = choice<decltype(optimizer.implementation)>(train, "implementation", "fused");
  return optimizer;
}

config::LrScheduler read_schedule(const Json& train) {
  config::LrScheduler schedule;
  const Json json = get(train, "lr_scheduler", Json::object());
  schedule.warmup_steps = get(json, "warmup_steps", schedule.warmup_steps);
  if (const int64_t total = get(json, "total_steps", int64_t{-1}); total >= 0) schedule.total_steps = total;
  if (const double ratio = get(json, "decay_ratio", -1.0); ratio >= 0) schedule.decay_ratio = ratio;
  schedule.decay_type = choice<decltype(schedule.decay_type)>(json, "decay_type", "linear");
  schedule.min_lr_factor = get(json, "min_lr_factor", 0.0);
  return schedule;
}

config::Training read_training(const Json& train) {
  config::Training training;
  training.local_batch_size = train.at("local_batch_size");
  training.global_batch_size = get(train, "global_batch_size", int64_t{-1});
  training.seq_len = train.at("seq_len");
  training.steps = train.at("steps");
  training.max_norm.value = get(train, "max_norm", 1.0);
  training.mixed_precision_param =
      choice<decltype(training.mixed_precision_param)>(train, "mixed_precision_param", "float32");
  const int64_t batch = training.local_batch_size;
  if (training.global_batch_size < 0) training.global_batch_size = batch;
  if (batch < 1 || training.seq_len < 1 || training.global_batch_size % batch != 0) {
    throw ValueError("global_batch_size must be a multiple of local_batch_size, and seq_len above 0");
  }
  return training;
}

// The number of chunks does not change the value of the loss: where it does not divide the length, one.
config::Loss read_loss(const Json& train, int64_t seq_len, bool predicts_more) {
  if (predicts_more) {
    config::MtpLoss loss;
    loss.mtp_scale = get(train, "mtp_scale", 0.3);
    return loss;
  }
  config::ChunkedLoss loss;
  loss.num_chunks = get(train, "loss_chunks", int64_t{8});
  if (loss.num_chunks < 1 || seq_len % loss.num_chunks != 0) loss.num_chunks = 1;
  return loss;
}

config::Trainer read_trainer(const Json& variant) {
  const Json& train = variant.at("train");
  config::Trainer trainer;
  trainer.training = read_training(train);
  trainer.model = read_model(variant, trainer.training.seq_len);
  trainer.optimizer = read_optimizer(train);
  trainer.lr_scheduler = read_schedule(train);
  const auto* deepseek = std::get_if<flavor::DeepSeekV3>(&trainer.model.architecture.dims);
  trainer.loss =
      read_loss(train, trainer.training.seq_len, deepseek != nullptr && deepseek->num_mtp_layers > 0);
  trainer.activation_checkpoint = config::NoAc{};
  return trainer;
}

// How a stored tensor is read; the engine casts floating-point numbers only.
std::pair<DType, at::ScalarType> dtype_to_read(const Catalog::Tensor& stored) {
  if (stored.dtype == DType::kInt32) return {DType::kInt32, at::kInt};
  if (stored.dtype == DType::kInt64) return {DType::kInt64, at::kLong};
  if (dtype_info(stored.dtype).kind == DTypeKind::kFloat) return {DType::kFloat32, at::kFloat};
  throw ValueError(fmt::format("{} is {}, neither a floating-point number nor int32 nor int64",
                               printable(stored.name), dtype_name(stored.dtype)));
}

LoadTarget target(const std::string& name, DType dtype, at::Tensor& whole, const at::Tensor& view) {
  LoadTarget wanted;
  wanted.name = name;
  wanted.dtype = dtype;
  wanted.data = static_cast<std::byte*>(whole.mutable_data_ptr());
  wanted.shape.assign(view.sizes().begin(), view.sizes().end());
  wanted.box.offsets.assign(view.sizes().size(), 0);
  wanted.box.sizes = wanted.shape;
  return wanted;
}

std::map<std::string, at::Tensor> read_tensors(const std::string& path) {
  const auto file = Checkpoint::open(path);
  std::map<std::string, at::Tensor> tensors;
  std::vector<LoadTarget> targets;
  for (const Catalog::Tensor& stored : file->catalog().tensors()) {
    const auto [dtype, kept] = dtype_to_read(stored);
    const std::vector<int64_t> shape(stored.shape.begin(), stored.shape.end());
    at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(kept));
    targets.push_back(target(stored.name, dtype, tensor, tensor));
    tensors[stored.name] = tensor;
  }
  load(file, targets);
  for (auto& [name, tensor] : tensors) {
    if (!tensor.is_floating_point()) tensor = tensor.to(at::kLong);
  }
  return tensors;
}

void check_batch(const Batch& batch, const config::Training& training, int64_t vocab_size) {
  const std::vector<int64_t> shape = {training.local_batch_size, training.seq_len};
  for (const at::Tensor* tensor : {&batch.tokens_BL, &batch.labels_BL, &batch.positions_BL}) {
    if (tensor->sizes() == at::IntArrayRef(shape) && tensor->scalar_type() == at::kLong) continue;
    throw ValueError(fmt::format("batches must be integers of shape [{}, {}]", shape[0], shape[1]));
  }
  const auto inside = [](const at::Tensor& values, int64_t limit) {
    return values.ge(0).logical_and_(values.lt(limit)).all().item<bool>();
  };
  if (!inside(batch.tokens_BL, vocab_size) || !inside(batch.positions_BL, training.seq_len)) {
    throw ValueError("a batch has a token outside the vocabulary or a position outside the sequence");
  }
}

std::vector<Batch> read_batches(const std::string& path, const config::Trainer& trainer) {
  auto tensors = read_tensors(path);
  const int64_t vocab_size =
      std::visit([](const auto& dims) { return dims.vocab_size; }, trainer.model.architecture.dims);
  std::vector<Batch> batches;
  for (int i = 0; tensors.contains(fmt::format("tokens.{}", i)); ++i) {
    Batch batch;
    batch.tokens_BL = tensors.at(fmt::format("tokens.{}", i));
    for (const char* other : {"labels", "positions"}) {
      const auto name = fmt::format("{}.{}", other, i);
      if (!tensors.contains(name)) throw ValueError(fmt::format("batches.safetensors has no {}", name));
    }
    batch.labels_BL = tensors.at(fmt::format("labels.{}", i));
    batch.positions_BL = tensors.at(fmt::format("positions.{}", i));
    check_batch(batch, trainer.training, vocab_size);
    batches.push_back(std::move(batch));
  }
  if (batches.empty()) throw ValueError("batches.safetensors has no tokens.0");
  return batches;
}

}  // namespace

Fixture read_fixture(const std::string& folder) {
  const std::string path = folder + "/variant.json";
  const Json variant = read_json(path);
  Fixture fixture;
  fixture.folder = folder;
  try {
    fixture.trainer = read_trainer(variant);
    fixture.batches = read_batches(folder + "/batches.safetensors", fixture.trainer);
  } catch (const Json::exception& error) {
    ValueError wrapped(fmt::format("describes no model: {}", printable(error.what())));
    wrapped.set_path(path);
    throw wrapped;
  } catch (Error& error) {
    error.set_path(path);
    throw;
  }
  fixture.weights = Checkpoint::open(folder + "/weights.safetensors");
  return fixture;
}

std::vector<Expected> read_expected(const std::string& folder) {
  std::vector<Expected> all;
  for (const bool fp32_experts : {false, true}) {
    const std::string stem = folder + (fp32_experts ? "/expected_fp32experts" : "/expected");
    if (!std::filesystem::exists(stem + ".json")) continue;
    Expected expected;
    expected.fp32_experts = fp32_experts;
    expected.values = read_json(stem + ".json");
    if (std::filesystem::exists(stem + ".safetensors")) {
      expected.tensors = read_tensors(stem + ".safetensors");
    }
    all.push_back(std::move(expected));
  }
  if (all.empty()) {
    throw StorageError(ErrorCode::kNotFound, "the folder has no expected results", folder + "/expected.json");
  }
  return all;
}

void load_weights(const std::shared_ptr<const Checkpoint>& weights, Model& model) {
  const at::NoGradGuard no_grad;
  std::vector<LoadTarget> targets;
  std::vector<std::pair<at::Tensor, at::Tensor>> pieces;  // what was read, and where it belongs
  for (Parameter* parameter : model.parameters()) {
    if (!parameter->saved) continue;
    if (parameter->parts.empty()) {
      at::Tensor whole = parameter->local.detach();
      targets.push_back(target(parameter->name, DType::kFloat32, whole, whole));
      continue;
    }
    for (const SavedPart& part : parameter->parts) {
      const at::Tensor rows = part_view(parameter->local.detach(), part);
      at::Tensor read = at::empty(rows.sizes(), rows.options());
      targets.push_back(target(part.name, DType::kFloat32, read, read.flatten(0, 1)));
      pieces.emplace_back(read, rows);
    }
  }
  load(weights, targets);
  for (auto& [read, rows] : pieces) rows.copy_(read);
}

}  // namespace milepost::train
