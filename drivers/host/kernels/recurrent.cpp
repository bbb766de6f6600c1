// SPDX-License-Identifier: Apache-2.0
// Kinds lstm_cell and gru_cell, and backward: one step, from the products of
// input and hidden state with their weights.
#include <cmath>

#include "kernels/dense.h"
#include "kernels/recurrent_rows.h"

namespace npu::host {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
// Derivatives, from the functions' results.
double sigmoid_slope(double y) {
  return y * (1 - y);
}
double tanh_slope(double y) {
  return 1 - y * y;
}

// A state is (N, hidden); gates are (N, k * hidden), one gate beside the other.
struct Cell {
  explicit Cell(const npu_tensor& state)
      : hidden(state.sizes[state.ndim - 1]), rows(state.numel / hidden) {}
  // Gate g of k, of element i of the state.
  std::int64_t gate(std::int64_t i, std::int64_t k, std::int64_t g) const {
    return i / hidden * k * hidden + g * hidden + i % hidden;
  }
  std::int64_t hidden;
  std::int64_t rows;
};

// A bias's gradient: the sum over rows of (N, k * hidden).
template <class T>
void sum_rows(
    const Stored<T>& gates, const Cell& cell, int k, const Stored<T>& out) {
  const std::int64_t width = k * cell.hidden;
  for (std::int64_t c = 0; c < width; ++c) {
    double sum = 0;
    for (std::int64_t n = 0; n < cell.rows; ++n) {
      sum += gates[n * width + c];
    }
    out.set(c, sum);
  }
}

npu_status lstm_cell_run(const npu_call& call) {
  const npu_lstm_cell_args args = npu_lstm_cell_unpack(&call);
  npu_status fast = NPU_OK;
  if (lstm_rows(args, fast)) {
    return fast;
  }
  return with_float(args.cx->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> input(args.input_gates);
    const Loaded<T> recurrent(args.hidden_gates);
    const Loaded<T> cx(args.cx);
    const Loaded<T> input_bias(args.input_bias);
    const Loaded<T> hidden_bias(args.hidden_bias);
    const Stored<T> hy(args.hy);
    const Stored<T> cy(args.cy);
    const Stored<T> saved(args.saved);
    const Cell cell(*args.cx);
    const auto element = [&](std::int64_t i) {
      const auto gate = [&](std::int64_t g) {
        const std::int64_t at = cell.gate(i, 4, g);
        const std::int64_t b = g * cell.hidden + i % cell.hidden;
        return static_cast<double>(input[at]) + recurrent[at] +
               input_bias.at(b, 0) + hidden_bias.at(b, 0);
      };
      const double in = sigmoid(gate(0));
      const double forget = sigmoid(gate(1));
      const double fresh = std::tanh(gate(2));
      const double out = sigmoid(gate(3));
      const double c = forget * cx[i] + in * fresh;
      cy.set(i, c);
      hy.set(i, out * std::tanh(c));
      saved.set(cell.gate(i, 4, 0), in);
      saved.set(cell.gate(i, 4, 1), forget);
      saved.set(cell.gate(i, 4, 2), fresh);
      saved.set(cell.gate(i, 4, 3), out);
    };
    const npu_status status = for_each_item(args.cx->numel, 64, element);
    return finish(
        status, input, recurrent, cx, input_bias, hidden_bias, hy, cy, saved);
  });
}

npu_status lstm_cell_grad_run(const npu_call& call) {
  const npu_lstm_cell_grad_args args = npu_lstm_cell_grad_unpack(&call);
  npu_status fast = NPU_OK;
  if (lstm_grad_rows(args, fast)) {
    return fast;
  }
  return with_float(args.cx->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad_hy(args.grad_hy);
    const Loaded<T> grad_cy(args.grad_cy);
    const Loaded<T> cx(args.cx);
    const Loaded<T> cy(args.cy);
    const Loaded<T> saved(args.saved);
    const Stored<T> grad_gates(args.grad_gates);
    const Stored<T> grad_cx(args.grad_cx);
    const Stored<T> grad_bias(args.grad_bias);
    const Cell cell(*args.cx);
    const auto element = [&](std::int64_t i) {
      const double in = saved[cell.gate(i, 4, 0)];
      const double forget = saved[cell.gate(i, 4, 1)];
      const double fresh = saved[cell.gate(i, 4, 2)];
      const double out = saved[cell.gate(i, 4, 3)];
      const double c = std::tanh(cy[i]);
      const double dh = grad_hy.at(i, 0);
      const double dc = grad_cy.at(i, 0) + dh * out * tanh_slope(c);
      grad_gates.set(cell.gate(i, 4, 0), dc * fresh * sigmoid_slope(in));
      grad_gates.set(cell.gate(i, 4, 1), dc * cx[i] * sigmoid_slope(forget));
      grad_gates.set(cell.gate(i, 4, 2), dc * in * tanh_slope(fresh));
      grad_gates.set(cell.gate(i, 4, 3), dh * c * sigmoid_slope(out));
      grad_cx.set(i, dc * forget);
    };
    const npu_status status = for_each_item(args.cx->numel, 32, element);
    if (grad_bias) {
      sum_rows(grad_gates, cell, 4, grad_bias);
    }
    return finish(
        status,
        grad_hy,
        grad_cy,
        cx,
        cy,
        saved,
        grad_gates,
        grad_cx,
        grad_bias);
  });
}

// saved: reset, update and new gate, hx, and the hidden part of the new gate.
npu_status gru_cell_run(const npu_call& call) {
  const npu_gru_cell_args args = npu_gru_cell_unpack(&call);
  npu_status fast = NPU_OK;
  if (gru_rows(args, fast)) {
    return fast;
  }
  return with_float(args.hx->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> input(args.input_gates);
    const Loaded<T> recurrent(args.hidden_gates);
    const Loaded<T> hx(args.hx);
    const Loaded<T> input_bias(args.input_bias);
    const Loaded<T> hidden_bias(args.hidden_bias);
    const Stored<T> hy(args.hy);
    const Stored<T> saved(args.saved);
    const Cell cell(*args.hx);
    const auto element = [&](std::int64_t i) {
      const auto part = [&](const auto& gates, const auto& bias, int g) {
        const std::int64_t b = g * cell.hidden + i % cell.hidden;
        return static_cast<double>(gates[cell.gate(i, 3, g)]) + bias.at(b, 0);
      };
      const double reset =
          sigmoid(part(input, input_bias, 0) + part(recurrent, hidden_bias, 0));
      const double update =
          sigmoid(part(input, input_bias, 1) + part(recurrent, hidden_bias, 1));
      const double inner = part(recurrent, hidden_bias, 2);
      const double fresh =
          std::tanh(part(input, input_bias, 2) + reset * inner);
      hy.set(i, fresh + update * (hx[i] - fresh));
      saved.set(cell.gate(i, 5, 0), reset);
      saved.set(cell.gate(i, 5, 1), update);
      saved.set(cell.gate(i, 5, 2), fresh);
      saved.set(cell.gate(i, 5, 3), hx[i]);
      saved.set(cell.gate(i, 5, 4), inner);
    };
    const npu_status status = for_each_item(args.hx->numel, 64, element);
    return finish(
        status, input, recurrent, hx, input_bias, hidden_bias, hy, saved);
  });
}

npu_status gru_cell_grad_run(const npu_call& call) {
  const npu_gru_cell_grad_args args = npu_gru_cell_grad_unpack(&call);
  npu_status fast = NPU_OK;
  if (gru_grad_rows(args, fast)) {
    return fast;
  }
  return with_float(args.grad_hy->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_hy);
    const Loaded<T> saved(args.saved);
    const Stored<T> grad_input(args.grad_input_gates);
    const Stored<T> grad_hidden(args.grad_hidden_gates);
    const Stored<T> grad_hx(args.grad_hx);
    const Stored<T> input_bias(args.grad_input_bias);
    const Stored<T> hidden_bias(args.grad_hidden_bias);
    const Cell cell(*args.grad_hy);
    const auto element = [&](std::int64_t i) {
      const double reset = saved[cell.gate(i, 5, 0)];
      const double update = saved[cell.gate(i, 5, 1)];
      const double fresh = saved[cell.gate(i, 5, 2)];
      const double hx = saved[cell.gate(i, 5, 3)];
      const double inner = saved[cell.gate(i, 5, 4)];
      const double g = grad[i];
      const double dfresh = g * (1 - update) * tanh_slope(fresh);
      const double dupdate = g * (hx - fresh) * sigmoid_slope(update);
      const double dreset = dfresh * inner * sigmoid_slope(reset);
      grad_input.set(cell.gate(i, 3, 0), dreset);
      grad_input.set(cell.gate(i, 3, 1), dupdate);
      grad_input.set(cell.gate(i, 3, 2), dfresh);
      grad_hidden.set(cell.gate(i, 3, 0), dreset);
      grad_hidden.set(cell.gate(i, 3, 1), dupdate);
      grad_hidden.set(cell.gate(i, 3, 2), dfresh * reset);
      grad_hx.set(i, g * update);
    };
    const npu_status status = for_each_item(args.grad_hy->numel, 32, element);
    if (input_bias) {
      sum_rows(grad_input, cell, 3, input_bias);
    }
    if (hidden_bias) {
      sum_rows(grad_hidden, cell, 3, hidden_bias);
    }
    return finish(
        status,
        grad,
        saved,
        grad_input,
        grad_hidden,
        grad_hx,
        input_bias,
        hidden_bias);
  });
}

npu_status cell_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 8);
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_LSTM_CELL, cell_caps, nullptr, lstm_cell_run},
    {NPU_KIND_LSTM_CELL_GRAD, cell_caps, nullptr, lstm_cell_grad_run},
    {NPU_KIND_GRU_CELL, cell_caps, nullptr, gru_cell_run},
    {NPU_KIND_GRU_CELL_GRAD, cell_caps, nullptr, gru_cell_grad_run},
};

}  // namespace

const std::span<const KernelRow> kRecurrentKernels = kRows;

}  // namespace npu::host
