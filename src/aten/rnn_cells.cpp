// SPDX-License-Identifier: Apache-2.0
// The fused LSTM and GRU cells. PyTorch's recurrent layers call them on every
// device but the CPU, which therefore has none: written in tensor operations.
#include <ATen/ops/cat.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <tuple>

#include "aten/frame.h"

namespace npu {
namespace {

using OptTensor = std::optional<at::Tensor>;

const at::Tensor& or_undefined(const OptTensor& tensor) {
  static const at::Tensor undefined;
  return tensor ? *tensor : undefined;
}

at::Tensor with_bias(const at::Tensor& gates, const at::Tensor& bias) {
  return bias.defined() ? gates.add(bias) : gates;
}

// d sigmoid, from its result.
at::Tensor sigmoid_slope(const at::Tensor& y) {
  return at::rsub(y, 1).mul_(y);
}

// d tanh, from its result.
at::Tensor tanh_slope(const at::Tensor& y) {
  return at::rsub(y.mul(y), 1);
}

// hy, cy, and the activated gates (batch, 4 * hidden): input, forget, cell,
// output.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const OptTensor& input_bias,
    const OptTensor& hidden_bias) {
  const at::Tensor& ib = or_undefined(input_bias);
  const at::Tensor& hb = or_undefined(hidden_bias);
  check_same_device(
      "aten::_thnn_fused_lstm_cell",
      {&input_gates, &hidden_gates, &cx, &ib, &hb});
  at::Tensor gates =
      with_bias(hidden_gates, hb).add(with_bias(input_gates, ib));
  const auto parts = gates.unsafe_chunk(4, 1);
  parts[0].sigmoid_();
  parts[1].sigmoid_();
  parts[2].tanh_();
  parts[3].sigmoid_();
  at::Tensor cy = parts[1].mul(cx).add_(parts[0].mul(parts[2]));
  at::Tensor hy = parts[3].mul(cy.tanh());
  return {hy, cy, gates};
}

// Gradients of the gates, of cx, and of either bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const OptTensor& grad_hy,
    const OptTensor& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias) {
  const at::Tensor& dhy = or_undefined(grad_hy);
  const at::Tensor& dcy = or_undefined(grad_cy);
  if (!dhy.defined() && !dcy.defined()) {
    return {};
  }
  check_same_device(
      "aten::_thnn_fused_lstm_cell_backward_impl",
      {&dhy, &dcy, &cx, &cy, &workspace});
  const auto parts = workspace.unsafe_chunk(4, 1);
  const at::Tensor tanh_cy = cy.tanh();
  at::Tensor dc = dcy.defined() ? dcy : at::zeros_like(cx);
  at::Tensor dout;
  if (dhy.defined()) {
    dc = dc.add(dhy.mul(parts[3]).mul_(tanh_slope(tanh_cy)));
    dout = dhy.mul(tanh_cy).mul_(sigmoid_slope(parts[3]));
  } else {
    dout = at::zeros_like(cx);
  }
  const at::Tensor din = dc.mul(parts[2]).mul_(sigmoid_slope(parts[0]));
  const at::Tensor dforget = dc.mul(cx).mul_(sigmoid_slope(parts[1]));
  const at::Tensor dcell = dc.mul(parts[0]).mul_(tanh_slope(parts[2]));
  at::Tensor dgates = at::cat({din, dforget, dcell, dout}, 1);
  at::Tensor dbias = has_bias ? dgates.sum(0) : at::Tensor();
  return {dgates, dc.mul(parts[1]), dbias};
}

// hy, and what backward needs (batch, 5 * hidden): reset, update and new gate,
// hx, and the hidden part of the new gate.
std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const OptTensor& input_bias,
    const OptTensor& hidden_bias) {
  const at::Tensor& ib = or_undefined(input_bias);
  const at::Tensor& hb = or_undefined(hidden_bias);
  check_same_device(
      "aten::_thnn_fused_gru_cell",
      {&input_gates, &hidden_gates, &hx, &ib, &hb});
  const auto in = with_bias(input_gates, ib).unsafe_chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hb).unsafe_chunk(3, 1);
  const at::Tensor reset = hidden[0].add(in[0]).sigmoid_();
  const at::Tensor update = hidden[1].add(in[1]).sigmoid_();
  const at::Tensor fresh = in[2].add(hidden[2].mul(reset)).tanh_();
  at::Tensor hy = hx.sub(fresh).mul_(update).add_(fresh);
  return {hy, at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

// Gradients of the input gates, hidden gates, hx, and the two biases.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
gru_cell_backward(
    const at::Tensor& grad, const at::Tensor& workspace, bool has_bias) {
  check_same_device("aten::_thnn_fused_gru_cell_backward", {&grad, &workspace});
  const auto saved = workspace.unsafe_chunk(5, 1);
  const at::Tensor& reset = saved[0];
  const at::Tensor& update = saved[1];
  const at::Tensor& fresh = saved[2];
  const at::Tensor dfresh =
      grad.mul(at::rsub(update, 1)).mul_(tanh_slope(fresh));
  const at::Tensor dupdate =
      grad.mul(saved[3].sub(fresh)).mul_(sigmoid_slope(update));
  const at::Tensor dreset = dfresh.mul(saved[4]).mul_(sigmoid_slope(reset));
  at::Tensor din = at::cat({dreset, dupdate, dfresh}, 1);
  at::Tensor dhidden = at::cat({dreset, dupdate, dfresh.mul(reset)}, 1);
  at::Tensor dib = has_bias ? din.sum(0) : at::Tensor();
  at::Tensor dhb = has_bias ? dhidden.sum(0) : at::Tensor();
  return {din, dhidden, grad.mul(update), dib, dhb};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace npu
