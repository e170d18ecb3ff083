// Products of each expert's rows with its weight: operands laid out for kernels/gemm.h. Private to train/ops.
// T is float or BFloat16; with BFloat16, dimensions that are summed over are even.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "train/ops/expert_order.h"
#include "train/ops/kernels/gemm.h"
#include "train/ops/kernels/pack.h"
#include "train/ops/kernels/rows.h"
#include "train/ops/tensor_rows.h"

namespace milepost::train {

// One matrix [K, N] for each expert, in panels.
template <class T>
struct Panels {
  at::Tensor memory;  // int32 units
  int64_t columns = 0, k_units = 0;

  int64_t panel_stride() const { return k_units * kPanelColumns; }
  int64_t matrix_units() const { return (columns + kPanelColumns - 1) / kPanelColumns * panel_stride(); }
  int32_t* panel(int64_t expert, int64_t column) const {
    return data<int32_t>(memory) + expert * matrix_units() + column / kPanelColumns * panel_stride();
  }
};

template <class T>
Panels<T> empty_panels(int64_t count, int64_t columns, int64_t k) {
  Panels<T> panels{{}, columns, num_units<T>(k)};
  panels.memory = at::empty({count * panels.matrix_units()}, at::kInt);
  return panels;
}

constexpr int64_t kPackedColumns = 64;  // of a task

// B[e] = weight[e] transposed, of a weight [E, N, K] of dtype T, dense.
template <class T>
Panels<T> transposed_panels(const at::Tensor& weight_ENK) {
  const int64_t n = weight_ENK.size(1), k = weight_ENK.size(2),
                parts = (n + kPackedColumns - 1) / kPackedColumns;
  const Panels<T> panels = empty_panels<T>(weight_ENK.size(0), n, k);
  at::parallel_for(0, weight_ENK.size(0) * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t expert = task / parts, column = task % parts * kPackedColumns;
      pack_transposed(const_data<T>(weight_ENK) + (expert * n + column) * k, k / kPerUnit<T>,
                      std::min(kPackedColumns, n - column), k / kPerUnit<T>, panels.panel(expert, column));
    }
  });
  return panels;
}

// B[e] = weight[e], of a weight [E, K, N] of dtype T, dense.
template <class T>
Panels<T> plain_panels(const at::Tensor& weight_EKN) {
  const int64_t k = weight_EKN.size(1), n = weight_EKN.size(2),
                parts = (n + kPackedColumns - 1) / kPackedColumns;
  const Panels<T> panels = empty_panels<T>(weight_EKN.size(0), n, k);
  at::parallel_for(0, weight_EKN.size(0) * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t expert = task / parts, column = task % parts * kPackedColumns;
      pack_rows(const_data<T>(weight_EKN) + expert * k * n + column, n, k,
                std::min(kPackedColumns, n - column), panels.panel(expert, column));
    }
  });
  return panels;
}

// c [m, panels.columns] = a [m, K] times B[expert], or added to it. K is cut in fixed pieces that fit the
// cache.
template <class T>
void multiply(const T* a, int64_t m, const Panels<T>& panels, int64_t expert, float* c,
              Sum sum = Sum::kReplace) {
  constexpr int64_t kUnits = 512;
  const auto* a_units = reinterpret_cast<const int32_t*>(a);
  for (int64_t k = 0; k < panels.k_units; k += kUnits) {
    gemm_block<T>(m, panels.columns, std::min(kUnits, panels.k_units - k), {a_units + k, panels.k_units, 1},
                  {panels.panel(expert, 0) + k * kPanelColumns, panels.panel_stride()}, c, panels.columns,
                  k == 0 ? sum : Sum::kAdd);
  }
}

// The rows of every expert as one operand over which rows are summed: [rows of expert e, columns] in panels.
template <class T>
struct RowPanels {
  at::Tensor memory;
  int64_t columns = 0;
  std::vector<int64_t> first_unit, k_units;  // of each expert

  int64_t panel_stride(int64_t expert) const { return k_units[static_cast<size_t>(expert)] * kPanelColumns; }
  int32_t* panel(int64_t expert, int64_t column) const {
    return data<int32_t>(memory) + first_unit[static_cast<size_t>(expert)] +
           column / kPanelColumns * panel_stride(expert);
  }
};

// rows_RN: dense rows of dtype T, sorted by expert.
template <class T>
RowPanels<T> row_panels(const at::Tensor& rows_RN, const ExpertOrder& order) {
  const int64_t n = rows_RN.size(1), parts = (n + kPackedColumns - 1) / kPackedColumns;
  RowPanels<T> panels{{}, n, {}, {}};
  int64_t total = 0;
  for (int64_t expert = 0; expert < order.num_experts(); ++expert) {
    panels.first_unit.push_back(total);
    panels.k_units.push_back(num_units<T>(order.num_rows_of(expert)));
    total += (n + kPanelColumns - 1) / kPanelColumns * panels.panel_stride(expert);
  }
  panels.memory = at::empty({total}, at::kInt);
  at::parallel_for(0, order.num_experts() * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t expert = task / parts, column = task % parts * kPackedColumns;
      const int64_t row = order.first_row[static_cast<size_t>(expert)];
      if (order.num_rows_of(expert) == 0) continue;
      pack_rows(const_data<T>(rows_RN) + row * n + column, n, order.num_rows_of(expert),
                std::min(kPackedColumns, n - column), panels.panel(expert, column));
    }
  });
  return panels;
}

// For each expert the sum over its rows of left^T right: [E, M, N] in dtype T, zeros for an expert without
// rows.
template <class T>
at::Tensor row_products(const RowPanels<T>& left, const RowPanels<T>& right, at::ScalarType dtype) {
  constexpr int64_t kUnits = 256;
  const auto num_experts = static_cast<int64_t>(left.k_units.size());
  const int64_t m = left.columns, n = right.columns, parts = (m + kPanelColumns - 1) / kPanelColumns;
  at::Tensor result = at::empty({num_experts, m, n}, dtype);
  at::parallel_for(0, num_experts * parts, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> sums(static_cast<size_t>(kPanelColumns * n));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t expert = task / parts, row = task % parts * kPanelColumns;
      const int64_t rows = std::min(kPanelColumns, m - row),
                    k_units = left.k_units[static_cast<size_t>(expert)];
      if (k_units == 0) std::fill(sums.begin(), sums.end(), 0.0F);
      for (int64_t k = 0; k < k_units; k += kUnits) {
        gemm_block<T>(rows, n, std::min(kUnits, k_units - k),
                      {left.panel(expert, row) + k * kPanelColumns, 1, kPanelColumns},
                      {right.panel(expert, 0) + k * kPanelColumns, right.panel_stride(expert)}, sums.data(),
                      n, k == 0 ? Sum::kReplace : Sum::kAdd);
      }
      kernels::cast_row(sums.data(), data<T>(result) + (expert * m + row) * n, rows * n);
    }
  });
  return result;
}

}  // namespace milepost::train
