// For tests of models: tiny ones of random values, made from the config.json files in tests/data/hf_config.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milepost/engine/derived.h"
#include "milepost/engine/model.h"
#include "milepost/engine/reader.h"

namespace milepost {

using CheckpointPtr = std::shared_ptr<const Checkpoint>;

inline std::string config_path(const std::string& name) {
  return std::string(MILEPOST_TEST_DATA) + "/hf_config/" + name + ".json";
}
inline nlohmann::ordered_json config_json(const std::string& name) {
  std::ifstream file(config_path(name));
  return nlohmann::ordered_json::parse(file);
}
inline ModelChoice by_config(const std::string& path) {
  ModelChoice choice;
  choice.config = path;
  return choice;
}
inline ModelChoice by_flavor(const std::string& model, const std::string& flavor) {
  ModelChoice choice;
  choice.model = model;
  choice.flavor = flavor;
  return choice;
}

// The checkpoint of a config.json under Hugging Face's names, of random values.
inline CheckpointPtr random_model(const std::string& path, DType dtype = DType::kFloat32, bool fp8 = false) {
  return synthetic_hugging_face(
      named_model(nlohmann::ordered_json::parse(std::ifstream(path))["model_type"] == "llama" ? "llama3"
                                                                                              : "deepseek_v3",
                  std::nullopt, path),
      dtype, fp8, 7);
}

inline std::vector<std::byte> bytes_of(const CheckpointPtr& checkpoint, int64_t tensor) {
  const Catalog::Tensor& info = checkpoint->catalog().tensors()[static_cast<size_t>(tensor)];
  std::vector<std::byte> bytes(static_cast<size_t>(tensor_bytes(info)));
  TensorReader(checkpoint)
      .read_linear(tensor, Box::whole(info.shape), 0, static_cast<int64_t>(bytes.size()), bytes.data());
  return bytes;
}
inline std::vector<std::byte> bytes_of(const CheckpointPtr& checkpoint, std::string_view name) {
  return bytes_of(checkpoint, checkpoint->catalog().find_tensor(name).value());
}

inline void expect_equal(const CheckpointPtr& a, const CheckpointPtr& b) {
  ASSERT_EQ(a->catalog().tensors().size(), b->catalog().tensors().size());
  for (const Catalog::Tensor& tensor : a->catalog().tensors()) {
    const auto other = b->catalog().find_tensor(tensor.name);
    ASSERT_TRUE(other) << tensor.name;
    const Catalog::Tensor& theirs = b->catalog().tensors()[static_cast<size_t>(*other)];
    EXPECT_EQ(tensor.dtype, theirs.dtype) << tensor.name;
    EXPECT_EQ(tensor.shape, theirs.shape) << tensor.name;
    EXPECT_EQ(bytes_of(a, tensor.name), bytes_of(b, tensor.name)) << tensor.name;
  }
}

// The checkpoint without the tensors whose names contain `part`.
inline CheckpointPtr without(const CheckpointPtr& source, std::string_view part) {
  KeyMap map;
  for (size_t i = 0; i < source->catalog().tensors().size(); ++i) {
    const Catalog::Tensor& info = source->catalog().tensors()[i];
    if (info.name.find(part) == std::string::npos)
      map.add(info.name, info.dtype, info.shape, {whole_part(static_cast<int64_t>(i), info.shape)});
  }
  return derive(source, std::move(map));
}

// The text of the error E that `call` throws.
template <typename E, typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace milepost
