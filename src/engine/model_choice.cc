// Where the model comes from, first that says something:
//
// 1. Dimensions that the caller has; --flavor (with --model, or the models that have a flavor of that name):
// the registry's dimensions.
// 2. The config.json that was named, or that lies beside the source.
// 3. Names and shapes, where exactly one known flavor fits them.
//
// The number of multi-token prediction stages is set apart, since checkpoints of one flavor come with and
// without them.
#include "engine/model_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "milepost/base/error.h"

namespace milepost {
namespace {

constexpr std::string_view kConfigName = "config.json";
constexpr int64_t kMaxConfigBytes = 16 << 20;

using flavor::Model;

int64_t* mtp_layers(Model* model) {
  auto* dims = std::get_if<flavor::DeepSeekV3>(&model->dims);
  return dims == nullptr ? nullptr : &dims->num_mtp_layers;
}

// Sizes that show in no tensor's shape: releases and registries differ in them.
constexpr std::array<std::string_view, 7> kNotOfShapes = {
    "top_k",      "num_expert_groups", "num_limited_groups", "softmax",
    "route_norm", "num_mtp_layers",    "tied_embeddings"};

std::vector<Model> models_of(const ModelChoice& choice) {
  std::vector<Model> models = flavor::all();
  std::erase_if(models, [&](const Model& model) {
    return (choice.model && model.model() != *choice.model) ||
           (choice.flavor && model.name != *choice.flavor);
  });
  return models;
}

std::string names_of(const std::vector<Model>& models) {
  std::vector<std::string> names;
  for (const Model& model : models) names.push_back(fmt::format("{} {}", model.model(), model.name));
  return fmt::format("{}", fmt::join(names, ", "));
}

// The one of `candidates` that fits.
Model fitting_model(const Checkpoint& source, std::span<const int64_t> tensors, adapt::Naming naming,
                    const std::vector<Model>& candidates) {
  return only_fit(adapt::find_fitting(source.catalog(), tensors, naming, candidates), source.path());
}

Model registry_model(const Checkpoint& source, std::span<const int64_t> tensors, adapt::Naming naming,
                     const ModelChoice& choice) {
  if (choice.model) return flavor::find(*choice.model, *choice.flavor);
  const std::vector<Model> candidates = models_of(choice);
  if (candidates.size() == 1) return candidates[0];
  if (candidates.empty()) {
    throw ValueError(fmt::format("no model has a flavor '{}'", printable(*choice.flavor)),
                     fmt::format("known flavors: {}", names_of(flavor::all())));
  }
  Model model = fitting_model(source, tensors, naming, candidates);
  if (int64_t* stages = mtp_layers(&model)) *stages = 0;  // as the registry has it
  return model;
}

}  // namespace

std::optional<std::string> read_config_text(const StorageLocation& location) {
  std::string path = location.path;
  std::optional<FileInfo> info = location.storage->stat(path);
  if (info && info->is_directory) {
    path = join_path(path, kConfigName);
    info = location.storage->stat(path);
  }
  if (!info) return std::nullopt;
  const ByteVector bytes = read_all(*location.storage->open_read(path), kMaxConfigBytes);
  return std::string(as_text(bytes));
}

std::string difference_of_sizes(const Model& theirs, const Model& ours) {
  if (theirs.model() != ours.model()) return fmt::format("it is of a {}", theirs.model());
  const auto their_sizes = flavor::variables(theirs), our_sizes = flavor::variables(ours);
  for (size_t i = 0; i < our_sizes.size(); ++i) {
    const auto& [name, value] = our_sizes[i];
    const bool is_compared = std::count(kNotOfShapes.begin(), kNotOfShapes.end(), name) == 0;
    if (is_compared && their_sizes[i].second != value)
      return fmt::format("its {} is {}, not {}", name, their_sizes[i].second, value);
  }
  return {};
}

flavor::Model only_fit(const adapt::Fit& fit, std::string_view path) {
  if (fit.exact.size() == 1) return fit.exact[0];
  const bool is_ambiguous = !fit.exact.empty();
  ValueError error(
      is_ambiguous ? fmt::format("its names and shapes fit more than one model: {}", names_of(fit.exact))
                   : fmt::format("its names and shapes fit no known flavor (the nearest is {})", fit.closest),
      is_ambiguous
          ? "say which with --model and --flavor"
          : "give the model's config.json with --config, or say which it is with --model and --flavor");
  error.set_path(path);
  throw error;
}

std::optional<adapt::HfConfig> find_config(const Checkpoint& source, const ModelChoice& choice,
                                           std::vector<std::string>* notes) {
  if (choice.config) {
    const std::optional<std::string> text = read_config_text(resolve_location(*choice.config));
    if (!text) {
      StorageError error(ErrorCode::kNotFound, "there is no config.json", *choice.config);
      error.set_hint("name a config.json, or a folder that holds one");
      throw error;
    }
    return adapt::read_hf_config(*text, *choice.config);
  }
  if (source.format() == CheckpointFormat::kMemory) return std::nullopt;
  StorageLocation beside = resolve_location(source.path());
  const std::optional<FileInfo> info = beside.storage->stat(beside.path);
  if (info && !info->is_directory) beside.path = parent_path(beside.path);
  const std::string path = join_path(beside.path, kConfigName);
  const std::optional<std::string> text = read_config_text({beside.storage, path});
  if (!text) return std::nullopt;
  try {
    return adapt::read_hf_config(*text, path);
  } catch (const Error& error) {
    if (!choice.flavor && !choice.exact) throw;  // which says all that is needed but the size of blocks
    notes->push_back(fmt::format("config.json is not used: {}", error.what()));
    return std::nullopt;
  }
}

ChosenModel choose_model(const Checkpoint& source, std::span<const int64_t> tensors, adapt::Naming naming,
                         const ModelChoice& choice, const std::optional<adapt::HfConfig>& config) {
  if (choice.model) flavor::flavor_names(*choice.model);  // must be known
  if (choice.flavor && choice.config) {
    throw ValueError("a flavor and a config.json were both given", "give one of them");
  }
  if (config && !choice.flavor && choice.model && config->model.model() != *choice.model) {
    ValueError error(
        fmt::format("its config.json is of a {}, not a {}", config->model.model(), *choice.model),
        "leave out --model, or give the flavor as well");
    error.set_path(choice.config.value_or(source.path()));
    throw error;
  }
  ChosenModel out;
  out.map.drop_unknown = choice.drop_unknown;
  if (choice.exact || choice.flavor) {
    out.model = choice.exact ? *choice.exact : registry_model(source, tensors, naming, choice);
    // Heads of another size fit the same shapes, but their rows are in another order.
    const std::string difference = config ? difference_of_sizes(config->model, out.model) : "";
    if (!difference.empty()) {
      out.notes.push_back(fmt::format("the {} is taken, although the config.json of the source differs: {}",
                                      choice.exact ? "configured model" : "flavor", difference));
    }
  } else if (config) {
    out.model = config->model;
  } else {
    out.model = fitting_model(source, tensors, naming, models_of(choice));
  }
  int64_t* const stages = mtp_layers(&out.model);
  if (choice.mtp_layers) set_mtp_layers(&out.model, *choice.mtp_layers);
  if (stages == nullptr) return out;
  if (choice.mtp_layers) {
    out.map.drop_extra_mtp = true;
  } else if (*stages > 0 && adapt::count_mtp_stages(source.catalog(), tensors, out.model, naming) == 0) {
    // Copies that went through transformers have lost them.
    out.notes.push_back(fmt::format(
        "the configuration has {} multi-token prediction stages, the checkpoint has none", *stages));
    *stages = 0;
  }
  return out;
}

flavor::Model named_model(const std::string& model, const std::optional<std::string>& flavor,
                          const std::optional<std::string>& config) {
  if (flavor && config) throw ValueError("a flavor and a config.json were both given", "give one of them");
  if (flavor) return flavor::find(model, *flavor);
  ModelChoice choice;
  choice.config = config;
  std::vector<std::string> notes;
  flavor::Model out = find_config(*Checkpoint::in_memory({}, {}, {}), choice, &notes)->model;
  if (out.model() != model) {
    ValueError error(
        fmt::format("this is the configuration of a {}, not of a {}", out.model(), printable(model)));
    error.set_path(*config);
    throw error;
  }
  return out;
}

void set_mtp_layers(flavor::Model* model, int64_t number) {
  int64_t* stages = mtp_layers(model);
  if (stages != nullptr) {
    *stages = number;
  } else if (number > 0) {
    throw ValueError(fmt::format("{} has no multi-token prediction", model->text()),
                     "leave out --mtp-layers");
  }
}

}  // namespace milepost
