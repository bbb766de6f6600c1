// SPDX-License-Identifier: Apache-2.0
// LSTM and GRU steps whose tensors are all contiguous float32.
#include "kernels/recurrent_rows.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/dense.h"
#include "kernels/isa/cells.h"

namespace npu::host {
namespace {

// Present tensors are plain float32.
bool all_plain(std::initializer_list<const npu_tensor*> tensors) {
  return std::all_of(
      tensors.begin(), tensors.end(), [](const npu_tensor* tensor) {
        return tensor == nullptr || is_plain(*tensor, NPU_F32);
      });
}

// Row `row` of a tensor of `width` columns; null when it is absent.
float* row_of(const npu_tensor* tensor, std::int64_t row, std::int64_t width) {
  return tensor == nullptr ? nullptr
                           : static_cast<float*>(tensor->data) + row * width;
}

// body(row, n) for every row of a state (rows, n).
template <class Body>
npu_status each_row(const npu_tensor& state, Body body) {
  const std::int64_t n = state.sizes[state.ndim - 1];
  constexpr std::int64_t kCost = 16;  // of an element, against a plain loop's
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / kCost / n);
  return parallel(
      state.numel / n, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          body(row, n);
        }
      });
}

// One output column c of (rows, width), summed over rows.
npu_status sum_rows(
    const npu_tensor* gates, std::int64_t width, const npu_tensor* out) {
  if (out == nullptr) {
    return NPU_OK;
  }
  const std::int64_t rows = gates->numel / width;
  return parallel(
      width,
      std::max<std::int64_t>(1, kGrain / rows),
      [&](std::int64_t begin, std::int64_t end) {
        float* const sums = static_cast<float*>(out->data);
        constexpr std::int64_t kBlock = 64;
        for (std::int64_t at = begin; at < end; at += kBlock) {
          const std::int64_t n = std::min(kBlock, end - at);
          double sum[kBlock] = {};
          for (std::int64_t row = 0; row < rows; ++row) {
            const float* const from = row_of(gates, row, width) + at;
            for (std::int64_t c = 0; c < n; ++c) {
              sum[c] += from[c];
            }
          }
          std::copy(sum, sum + n, sums + at);
        }
      });
}

}  // namespace

const CellTable& cell_table() noexcept {
  return NPU_TABLE_IN_USE(kCells);
}

bool lstm_rows(const npu_lstm_cell_args& args, npu_status& status) {
  if (args.saved == nullptr ||
      (args.input_bias == nullptr) != (args.hidden_bias == nullptr) ||
      !all_plain(
          {args.hy,
           args.cy,
           args.saved,
           args.input_gates,
           args.hidden_gates,
           args.cx,
           args.input_bias,
           args.hidden_bias})) {
    return false;
  }
  const CellTable& table = cell_table();
  status = each_row(*args.cx, [&](std::int64_t row, std::int64_t n) {
    table.lstm(
        {row_of(args.input_gates, row, 4 * n),
         row_of(args.hidden_gates, row, 4 * n),
         row_of(args.input_bias, 0, 0),
         row_of(args.hidden_bias, 0, 0),
         row_of(args.cx, row, n),
         row_of(args.hy, row, n),
         row_of(args.cy, row, n),
         row_of(args.saved, row, 4 * n)},
        n);
  });
  return true;
}

bool lstm_grad_rows(const npu_lstm_cell_grad_args& args, npu_status& status) {
  if (!all_plain(
          {args.grad_gates,
           args.grad_cx,
           args.grad_bias,
           args.grad_hy,
           args.grad_cy,
           args.cx,
           args.cy,
           args.saved})) {
    return false;
  }
  const CellTable& table = cell_table();
  status = each_row(*args.cx, [&](std::int64_t row, std::int64_t n) {
    table.lstm_grad(
        {row_of(args.grad_hy, row, n),
         row_of(args.grad_cy, row, n),
         row_of(args.cx, row, n),
         row_of(args.cy, row, n),
         row_of(args.saved, row, 4 * n),
         row_of(args.grad_gates, row, 4 * n),
         row_of(args.grad_cx, row, n)},
        n);
  });
  const std::int64_t width = 4 * args.cx->sizes[args.cx->ndim - 1];
  status = status ? status : sum_rows(args.grad_gates, width, args.grad_bias);
  return true;
}

bool gru_rows(const npu_gru_cell_args& args, npu_status& status) {
  if (args.saved == nullptr ||
      (args.input_bias == nullptr) != (args.hidden_bias == nullptr) ||
      !all_plain(
          {args.hy,
           args.saved,
           args.input_gates,
           args.hidden_gates,
           args.hx,
           args.input_bias,
           args.hidden_bias})) {
    return false;
  }
  const CellTable& table = cell_table();
  status = each_row(*args.hx, [&](std::int64_t row, std::int64_t n) {
    table.gru(
        {row_of(args.input_gates, row, 3 * n),
         row_of(args.hidden_gates, row, 3 * n),
         row_of(args.input_bias, 0, 0),
         row_of(args.hidden_bias, 0, 0),
         row_of(args.hx, row, n),
         row_of(args.hy, row, n),
         row_of(args.saved, row, 5 * n)},
        n);
  });
  return true;
}

bool gru_grad_rows(const npu_gru_cell_grad_args& args, npu_status& status) {
  if (!all_plain(
          {args.grad_input_gates,
           args.grad_hidden_gates,
           args.grad_hx,
           args.grad_input_bias,
           args.grad_hidden_bias,
           args.grad_hy,
           args.saved})) {
    return false;
  }
  const CellTable& table = cell_table();
  status = each_row(*args.grad_hy, [&](std::int64_t row, std::int64_t n) {
    table.gru_grad(
        {row_of(args.grad_hy, row, n),
         row_of(args.saved, row, 5 * n),
         row_of(args.grad_input_gates, row, 3 * n),
         row_of(args.grad_hidden_gates, row, 3 * n),
         row_of(args.grad_hx, row, n)},
        n);
  });
  const std::int64_t width = 3 * args.grad_hy->sizes[args.grad_hy->ndim - 1];
  status = status
               ? status
               : sum_rows(args.grad_input_gates, width, args.grad_input_bias);
  status = status
               ? status
               : sum_rows(args.grad_hidden_gates, width, args.grad_hidden_bias);
  return true;
}

}  // namespace npu::host
