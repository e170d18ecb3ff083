// For tests of key maps: small models, and lists of tensors to be damaged and made into catalogs.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "milepost/adapt/key_table.h"
#include "milepost/adapt/model_map.h"
#include "milepost/catalog/catalog.h"

namespace milepost::adapt {

inline flavor::Llama3 tiny_llama() {
  return {.dim = 8,
          .n_layers = 1,
          .n_heads = 4,
          .n_kv_heads = 2,
          .head_dim = 4,
          .hidden_dim = 12,
          .vocab_size = 10};
}

// A dense layer and one of two experts; queries through a low rank; one stage of multi-token prediction.
inline flavor::DeepSeekV3 tiny_deepseek() {
  flavor::DeepSeekV3 dims;
  dims.dim = 8;
  dims.n_layers = 2;
  dims.n_dense_layers = 1;
  dims.n_heads = 2;
  dims.vocab_size = 10;
  dims.q_lora_rank = 6;
  dims.kv_lora_rank = 5;
  dims.qk_nope_head_dim = 4;
  dims.qk_rope_head_dim = 2;
  dims.v_head_dim = 3;
  dims.hidden_dim = 12;
  dims.moe_hidden_dim = 7;
  dims.num_experts = 2;
  dims.num_shared_experts = 3;
  dims.top_k = 1;
  dims.score_func = flavor::DeepSeekV3::Score::kSigmoid;
  dims.num_mtp_layers = 1;
  return dims;
}

class TestTensors {
 public:
  struct Tensor {
    std::string name;
    DType dtype;
    Dims shape;
  };

  static TestTensors hugging_face(const flavor::Model& model, DType dtype = DType::kBFloat16) {
    TestTensors out;
    for (const KeyEntry& entry : expand(key_table(model.model()), model)) {
      if (entry.row->kind == KeyKind::kOnlyHf) continue;
      for (const std::string& name : entry.hf) out.add(name, dtype, entry.hf_shape());
    }
    return out;
  }
  static TestTensors native(const flavor::Model& model, DType dtype = DType::kBFloat16) {
    TestTensors out;
    for (const KeyEntry& entry : expand(key_table(model.model()), model)) {
      if (entry.row->kind != KeyKind::kOnlyHf) out.add(entry.native, dtype, entry.shape);
    }
    return out;
  }

  TestTensors& add(std::string name, DType dtype, Dims shape) {
    tensors.push_back({std::move(name), dtype, std::move(shape)});
    return *this;
  }
  TestTensors& remove(std::string_view name) {
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
    return *this;
  }
  TestTensors& remove_containing(std::string_view part) {
    std::erase_if(tensors, [&](const Tensor& t) { return t.name.find(part) != std::string::npos; });
    return *this;
  }
  Tensor& at(std::string_view name) {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  }

  std::vector<Tensor> tensors;
};

// A catalog of those tensors, and the list of all of them.
struct TestCatalog {
  explicit TestCatalog(const TestTensors& list) {
    for (const TestTensors::Tensor& tensor : list.tensors)
      all.push_back(catalog.add_tensor(tensor.name, tensor.dtype, tensor.shape));
  }
  Catalog catalog;
  std::vector<int64_t> all;
};

inline ModelMap imported(const TestTensors& list, const flavor::Model& model,
                         const MapOptions& options = {}) {
  const TestCatalog source(list);
  return import_map(source.catalog, source.all, model, options);
}
inline ModelMap exported(const TestTensors& list, const flavor::Model& model,
                         const MapOptions& options = {}) {
  const TestCatalog source(list);
  return export_map(source.catalog, source.all, model, options);
}

}  // namespace milepost::adapt
