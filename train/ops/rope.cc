#include "train/ops/rope.h"

#include "train/ops/kernels/rope.h"
#include "train/ops/tensor_rows.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_positions(const at::Tensor& positions_BL, const RopeTable& table) {
  const int64_t* position = positions_BL.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < positions_BL.numel(); ++i) {
    if (position[i] >= 0 && position[i] < table.length) continue;
    throw ValueError(
        fmt::format("position {} is outside the RoPE table of {} positions", position[i], table.length));
  }
}

// Rotates x [B, L, H, dim], last dimension dense, into `to` of the same shape, which may be x.
void rotate(const at::Tensor& x, const at::Tensor& to, const RopeTable& table, const at::Tensor& positions_BL,
            float direction) {
  const int64_t length = x.size(1), heads = x.size(2), pairs = table.dim / 2;
  const int64_t* position = positions_BL.const_data_ptr<int64_t>();
  with_element_type("apply_rope", x.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, x.size(0) * length, rows_per_task(heads * table.dim),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t token = begin; token < end; ++token) {
                         const int64_t row = token / length, at = token % length;
                         kernels::rotate_heads(const_data<T>(x) + row * x.stride(0) + at * x.stride(1),
                                               data<T>(to) + row * to.stride(0) + at * to.stride(1),
                                               const_data<float>(table.cos) + position[token] * pairs,
                                               const_data<float>(table.sin) + position[token] * pairs,
                                               direction, heads, x.stride(2), to.stride(2), pairs);
                       }
                     });
  });
}

at::Tensor with_heads(const at::Tensor& x) {
  const at::Tensor heads = x.dim() == 3 ? x.unsqueeze(2) : x;
  return heads.stride(3) == 1 ? heads : heads.contiguous();
}

at::Tensor rotated(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions_BL,
                   float direction) {
  at::Tensor to = at::empty(x.sizes(), x.options());
  rotate(with_heads(x), with_heads(to), table, positions_BL, direction);
  return to;
}

at::Tensor rotated_part(const at::Tensor& x, const RopeTable& table) {
  return x.narrow(3, x.size(3) - table.dim, table.dim);
}

struct Angles {
  RopeTable table;
  at::Tensor positions_BL;
};

void keep(AutogradContext* context, const Angles& angles) {
  context->saved_data["dim"] = angles.table.dim;
  context->saved_data["length"] = angles.table.length;
  context->saved_data["cos"] = angles.table.cos;
  context->saved_data["sin"] = angles.table.sin;
  context->saved_data["positions"] = angles.positions_BL;
}

Angles kept(AutogradContext* context) {
  auto& saved = context->saved_data;
  return {{saved["dim"].toInt(), saved["length"].toInt(), saved["cos"].toTensor(), saved["sin"].toTensor()},
          saved["positions"].toTensor()};
}

class Rope : public torch::autograd::Function<Rope> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Angles& angles) {
    keep(context, angles);
    return rotated(x, angles.table, angles.positions_BL, 1);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Angles angles = kept(context);
    return {rotated(gradients[0], angles.table, angles.positions_BL, -1), {}};
  }
};

class RopeInPlace : public torch::autograd::Function<RopeInPlace> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Angles& angles) {
    keep(context, angles);
    const at::Tensor part = rotated_part(x, angles.table);
    rotate(part, part, angles.table, angles.positions_BL, 1);
    return x.detach();
  }
  // In place too where nothing else holds the gradient.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Angles angles = kept(context);
    const bool is_ours = gradients[0].use_count() == 1 && gradients[0].storage().use_count() == 1;
    at::Tensor gradient = gradients[0];
    if (!is_ours || gradient.stride(3) != 1) gradient = gradient.clone(at::MemoryFormat::Contiguous);
    const at::Tensor part = rotated_part(gradient, angles.table);
    rotate(part, part, angles.table, angles.positions_BL, -1);
    return {gradient, {}};
  }
};

}  // namespace

at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions_BL) {
  if (!x.device().is_cpu()) return unfused::apply_rope(x, table, positions_BL);
  const at::Tensor positions = positions_BL.contiguous();
  check_positions(positions, table);
  return Rope::apply(x, Angles{table, positions});
}

at::Tensor rope_in_place(const at::Tensor& x_BLHD, const RopeTable& table, const at::Tensor& positions_BL) {
  if (!x_BLHD.device().is_cpu()) {
    const int64_t still = x_BLHD.size(3) - table.dim;
    return at::cat(
        {x_BLHD.narrow(3, 0, still), apply_rope(x_BLHD.narrow(3, still, table.dim), table, positions_BL)}, 3);
  }
  const at::Tensor positions = positions_BL.contiguous();
  check_positions(positions, table);
  return RopeInPlace::apply(x_BLHD.contiguous(), Angles{table, positions});
}

}  // namespace milepost::train
