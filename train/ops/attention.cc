#include "train/ops/attention.h"

#include "milepost/base/error.h"
#include "train/ops/kernels/attention_blocks.h"
#include "train/ops/run_tasks.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Borders = std::shared_ptr<const DocumentBorders>;

// For each key, one past the last query that sees it.
std::vector<int32_t> document_ends(const DocumentBorders& borders) {
  std::vector<int32_t> end_BL(borders.begin_BL.size());
  for (int64_t row = 0; row < borders.batch; ++row) {
    const int32_t* begin = borders.begin_BL.data() + row * borders.length;
    int32_t* end = end_BL.data() + row * borders.length;
    int64_t query = 0;
    for (int64_t key = 0; key < borders.length; ++key) {
      while (query < borders.length && begin[query] <= key) ++query;
      end[key] = static_cast<int32_t>(query);
    }
  }
  return end_BL;
}

template <class T>
HeadRows<T> head_rows(const at::Tensor& x_BLHD) {
  using Element = std::remove_const_t<T>;
  return {static_cast<Element*>(x_BLHD.data_ptr()), x_BLHD.stride(0), x_BLHD.stride(1), x_BLHD.stride(2)};
}

at::Tensor dense_last(const at::Tensor& x) {
  return x.numel() == 0 || x.size(-1) == 1 || x.stride(-1) == 1 ? x : x.contiguous();
}

// The parts of attention's inputs that tasks read; `k_shared` is undefined where keys are the heads' own.
struct Inputs {
  at::Tensor q_BLHD, k_BLGD, k_shared_BLR, v_BLGV;
};

template <class T>
AttentionProblem<T> make_problem(const Inputs& x, const DocumentBorders& borders, double scale) {
  AttentionProblem<T> problem;
  problem.batch = x.q_BLHD.size(0);
  problem.length = x.q_BLHD.size(1);
  problem.heads = x.q_BLHD.size(2);
  problem.key_heads = x.k_BLGD.size(2);
  problem.dim = x.q_BLHD.size(3);
  problem.value_dim = x.v_BLGV.size(3);
  problem.q = head_rows<const T>(x.q_BLHD);
  problem.k = head_rows<const T>(x.k_BLGD);
  problem.v = head_rows<const T>(x.v_BLGV);
  if (x.k_shared_BLR.defined()) {
    problem.shared_dim = x.k_shared_BLR.size(2);
    problem.k_shared = head_rows<const T>(x.k_shared_BLR.unsqueeze(2));
    problem.k_shared.head_stride = 0;
  }
  problem.begin_BL = borders.begin_BL.data();
  problem.scale = static_cast<float>(scale);
  return problem;
}

struct Forward {
  at::Tensor out_BLHV, lse2_BHL;
};

template <class T>
Forward forward_of(const Inputs& x, const DocumentBorders& borders, double scale) {
  const auto problem = make_problem<T>(x, borders, scale);
  Forward forward{
      at::empty({problem.batch, problem.length, problem.heads, problem.value_dim}, x.q_BLHD.options()),
      at::empty({problem.batch, problem.heads, problem.length}, x.q_BLHD.options().dtype(at::kFloat))};
  const AttentionResult<T> result{head_rows<T>(forward.out_BLHV), forward.lse2_BHL.data_ptr<float>()};
  run_tasks(num_forward_tasks(problem), [&](int64_t task) { attention_forward_task(problem, result, task); });
  return forward;
}
Forward run_forward(const Inputs& x, const DocumentBorders& borders, double scale) {
  return x.q_BLHD.scalar_type() == at::kFloat ? forward_of<float>(x, borders, scale)
                                              : forward_of<BFloat16>(x, borders, scale);
}

// Gradients of the parts; the caller owns dk's and dv's memory, so that they may be parts of one tensor.
struct Gradients {
  at::Tensor dq_BLHD, dk_BLGD, dk_shared_BLR, dv_BLGV;
};

template <class T>
void backward_of(const Inputs& x, const Forward& forward, const at::Tensor& d_out,
                 const DocumentBorders& borders, double scale, const Gradients& to) {
  auto problem = make_problem<T>(x, borders, scale);
  const std::vector<int32_t> ends = document_ends(borders);
  problem.end_BL = ends.data();
  AttentionGradient<T> gradient;
  gradient.out = head_rows<const T>(forward.out_BLHV);
  gradient.d_out = head_rows<const T>(d_out);
  gradient.lse2_BHL = forward.lse2_BHL.const_data_ptr<float>();
  gradient.dq = head_rows<T>(to.dq_BLHD);
  gradient.dk = head_rows<T>(to.dk_BLGD);
  gradient.dv = head_rows<T>(to.dv_BLGV);
  at::Tensor shared_BGLR;
  if (problem.shared_dim > 0) {
    shared_BGLR = at::empty({problem.batch, problem.key_heads, problem.length, problem.shared_dim},
                            x.q_BLHD.options().dtype(at::kFloat));
    gradient.dk_shared_BGLR = shared_BGLR.data_ptr<float>();
  }
  run_tasks(num_backward_tasks(problem),
            [&](int64_t task) { attention_backward_task(problem, gradient, task); });
  if (problem.shared_dim == 0) return;
  T* shared = static_cast<T*>(to.dk_shared_BLR.data_ptr());
  at::parallel_for(0, problem.batch * problem.length, 64, [&](int64_t first, int64_t last) {
    sum_shared_gradient(problem, gradient.dk_shared_BGLR, first, last, shared);
  });
}
void run_backward(const Inputs& x, const Forward& forward, const at::Tensor& d_out_BLHV,
                  const DocumentBorders& borders, double scale, const Gradients& to) {
  const at::Tensor d_out = dense_last(d_out_BLHV.to(x.q_BLHD.scalar_type()));
  if (x.q_BLHD.scalar_type() == at::kFloat) {
    backward_of<float>(x, forward, d_out, borders, scale, to);
  } else {
    backward_of<BFloat16>(x, forward, d_out, borders, scale, to);
  }
}

// autograd keeps tensors in its own list and the rest beside it.
class BordersHolder : public torch::CustomClassHolder {
 public:
  explicit BordersHolder(Borders held) : borders(std::move(held)) {}
  Borders borders;
};

class Attention : public torch::autograd::Function<Attention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const Borders& borders, double scale) {
    const Forward forward = run_forward({dense_last(q), dense_last(k), {}, dense_last(v)}, *borders, scale);
    context->save_for_backward({q, k, v, forward.out_BLHV, forward.lse2_BHL});
    context->saved_data["borders"] = c10::IValue::make_capsule(c10::make_intrusive<BordersHolder>(borders));
    context->saved_data["scale"] = scale;
    return forward.out_BLHV;
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Inputs x{dense_last(saved[0]), dense_last(saved[1]), {}, dense_last(saved[2])};
    const Gradients to{at::empty(x.q_BLHD.sizes(), x.q_BLHD.options()),
                       at::empty(x.k_BLGD.sizes(), x.k_BLGD.options()),
                       {},
                       at::empty(x.v_BLGV.sizes(), x.v_BLGV.options())};
    const auto holder =
        c10::static_intrusive_pointer_cast<BordersHolder>(context->saved_data["borders"].toCapsule());
    run_backward(x, {saved[3], saved[4]}, gradients[0], *holder->borders,
                 context->saved_data["scale"].toDouble(), to);
    return {to.dq_BLHD, to.dk_BLGD, to.dv_BLGV, {}, {}};
  }
};

Inputs latent_inputs(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& k_rope) {
  const at::Tensor dense = dense_last(kv);
  const int64_t own_dim = q.size(3) - k_rope.size(2);
  return {dense_last(q), dense.narrow(3, 0, own_dim), dense_last(k_rope),
          dense.narrow(3, own_dim, kv.size(3) - own_dim)};
}

class LatentAttention : public torch::autograd::Function<LatentAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& kv,
                            const at::Tensor& k_rope, const Borders& borders, double scale) {
    const Forward forward = run_forward(latent_inputs(q, kv, k_rope), *borders, scale);
    context->save_for_backward({q, kv, k_rope, forward.out_BLHV, forward.lse2_BHL});
    context->saved_data["borders"] = c10::IValue::make_capsule(c10::make_intrusive<BordersHolder>(borders));
    context->saved_data["scale"] = scale;
    return forward.out_BLHV;
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Inputs x = latent_inputs(saved[0], saved[1], saved[2]);
    const int64_t own_dim = x.k_BLGD.size(3);
    const at::Tensor d_kv = at::empty(saved[1].sizes(), saved[1].options());
    const Gradients to{at::empty(x.q_BLHD.sizes(), x.q_BLHD.options()), d_kv.narrow(3, 0, own_dim),
                       at::empty(x.k_shared_BLR.sizes(), x.k_shared_BLR.options()),
                       d_kv.narrow(3, own_dim, x.v_BLGV.size(3))};
    const auto holder =
        c10::static_intrusive_pointer_cast<BordersHolder>(context->saved_data["borders"].toCapsule());
    run_backward(x, {saved[3], saved[4]}, gradients[0], *holder->borders,
                 context->saved_data["scale"].toDouble(), to);
    return {to.dq_BLHD, d_kv, to.dk_shared_BLR, {}, {}};
  }
};

void require(bool holds, const char* what) {
  if (!holds) throw ValueError(std::string("attention: ") + what);
}

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Borders& borders) {
  require(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, "queries, keys and values must have four dimensions");
  require(borders != nullptr && borders->batch == q.size(0) && borders->length == q.size(1),
          "document borders must be of the queries' batch and length");
  require(
      k.size(0) == q.size(0) && k.size(1) == q.size(1) && v.size(0) == q.size(0) && v.size(1) == q.size(1),
      "keys and values must be of the queries' batch and length");
  require(k.size(2) > 0 && q.size(2) % k.size(2) == 0 && v.size(2) == k.size(2),
          "the number of key heads must divide that of query heads and equal that of values");
  require(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(),
          "inputs must share a dtype");
}

bool has_kernel(const at::Tensor& q) {
  return q.is_cpu() && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kBFloat16) && q.numel() > 0;
}

}  // namespace

at::Tensor attention(const at::Tensor& q_BLHD, const at::Tensor& k_BLGD, const at::Tensor& v_BLGV,
                     const Borders& borders, double scale) {
  check(q_BLHD, k_BLGD, v_BLGV, borders);
  require(k_BLGD.size(3) == q_BLHD.size(3), "keys must be as wide as queries");
  if (!has_kernel(q_BLHD)) return unfused::attention(q_BLHD, k_BLGD, v_BLGV, borders, scale);
  return Attention::apply(q_BLHD, k_BLGD, v_BLGV, borders, scale);
}

at::Tensor latent_attention(const at::Tensor& q_BLHD, const at::Tensor& kv_BLHE, const at::Tensor& k_rope_BLR,
                            const Borders& borders, double scale) {
  check(q_BLHD, kv_BLHE, kv_BLHE, borders);
  require(k_rope_BLR.dim() == 3 && k_rope_BLR.size(0) == q_BLHD.size(0) &&
              k_rope_BLR.size(1) == q_BLHD.size(1) && k_rope_BLR.scalar_type() == q_BLHD.scalar_type(),
          "the keys' rotated part must be of the queries' batch, length and dtype");
  require(k_rope_BLR.size(2) <= q_BLHD.size(3) && q_BLHD.size(3) - k_rope_BLR.size(2) < kv_BLHE.size(3),
          "keys must be as wide as queries, and values at least one wide");
  if (!has_kernel(q_BLHD)) return unfused::latent_attention(q_BLHD, kv_BLHE, k_rope_BLR, borders, scale);
  return LatentAttention::apply(q_BLHD, kv_BLHE, k_rope_BLR, borders, scale);
}

}  // namespace milepost::train
