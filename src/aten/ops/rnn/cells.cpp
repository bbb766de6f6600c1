// SPDX-License-Identifier: Apache-2.0
// The fused LSTM and GRU cells. PyTorch's recurrent layers call them on every
// device but the CPU, which therefore has none: one call of the driver where it
// has the kind, else written in tensor operations.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <tuple>

#include "aten/core/factories.h"
#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu {
namespace {

// ---- one call of the driver ----

// Sizes and dtype of the tensors of a step, as the kinds expect them.
class Step {
 public:
  // `state` is (batch, hidden); gates have `count` times its columns.
  Step(const at::Tensor& state, std::int64_t count)
      : state_(state), count_(count), fits_(state.dim() == 2) {}

  Step& gates(const at::Tensor& tensor, std::int64_t count) {
    fits_ = fits_ && tensor.dim() == 2 && tensor.size(0) == state_.size(0) &&
            tensor.size(1) == count * state_.size(1);
    return typed(tensor);
  }
  Step& gates(const at::Tensor& tensor) {
    return gates(tensor, count_);
  }
  Step& bias(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return *this;
    }
    fits_ =
        fits_ && tensor.dim() == 1 && tensor.size(0) == count_ * state_.size(1);
    return typed(tensor);
  }
  Step& like(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return *this;
    }
    fits_ = fits_ && tensor.sizes().equals(state_.sizes());
    return typed(tensor);
  }
  bool fits() const {
    return fits_ && state_.numel() != 0;
  }
  at::Tensor make(std::int64_t count) const {
    return make_empty(
        {state_.size(0), count * state_.size(1)},
        state_.scalar_type(),
        state_.device().index());
  }
  at::Tensor make_bias() const {
    return make_empty(
        {count_ * state_.size(1)},
        state_.scalar_type(),
        state_.device().index());
  }

 private:
  Step& typed(const at::Tensor& tensor) {
    fits_ = fits_ && tensor.scalar_type() == state_.scalar_type();
    return *this;
  }

  const at::Tensor& state_;
  std::int64_t count_;
  bool fits_;
};

using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Five =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

std::optional<Three> try_lstm_cell(
    const at::Tensor& input,
    const at::Tensor& hidden,
    const at::Tensor& cx,
    const at::Tensor& ib,
    const at::Tensor& hb) {
  Step step(cx, 4);
  if (!step.like(cx).gates(input).gates(hidden).bias(ib).bias(hb).fits()) {
    return std::nullopt;
  }
  const at::Tensor hy = step.make(1);
  const at::Tensor cy = step.make(1);
  const at::Tensor saved = step.make(4);
  static Site site("aten::_thnn_fused_lstm_cell", NPU_KIND_LSTM_CELL, 0);
  if (run<build::lstm_cell>(site, hy, cy, saved, input, hidden, cx, ib, hb) !=
      NPU_REASON_NONE) {
    return std::nullopt;
  }
  return Three(hy, cy, saved);
}

std::optional<Three> try_lstm_cell_grad(
    const at::Tensor& dhy,
    const at::Tensor& dcy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& saved,
    bool has_bias) {
  Step step(cx, 4);
  if (!step.like(cx).like(dhy).like(dcy).like(cy).gates(saved).fits()) {
    return std::nullopt;
  }
  const at::Tensor dgates = step.make(4);
  const at::Tensor dcx = step.make(1);
  const at::Tensor dbias = has_bias ? step.make_bias() : at::Tensor();
  static Site site(
      "aten::_thnn_fused_lstm_cell_backward_impl", NPU_KIND_LSTM_CELL_GRAD, 0);
  if (run<build::lstm_cell_grad>(
          site, dgates, dcx, dbias, dhy, dcy, cx, cy, saved) !=
      NPU_REASON_NONE) {
    return std::nullopt;
  }
  return Three(dgates, dcx, dbias);
}

std::optional<Two> try_gru_cell(
    const at::Tensor& input,
    const at::Tensor& hidden,
    const at::Tensor& hx,
    const at::Tensor& ib,
    const at::Tensor& hb) {
  Step step(hx, 3);
  if (!step.like(hx).gates(input).gates(hidden).bias(ib).bias(hb).fits()) {
    return std::nullopt;
  }
  const at::Tensor hy = step.make(1);
  const at::Tensor saved = step.make(5);
  static Site site("aten::_thnn_fused_gru_cell", NPU_KIND_GRU_CELL, 0);
  if (run<build::gru_cell>(site, hy, saved, input, hidden, hx, ib, hb) !=
      NPU_REASON_NONE) {
    return std::nullopt;
  }
  return Two(hy, saved);
}

std::optional<Five> try_gru_cell_grad(
    const at::Tensor& grad, const at::Tensor& saved, bool has_bias) {
  Step step(grad, 3);
  if (!step.like(grad).gates(saved, 5).fits()) {
    return std::nullopt;
  }
  const at::Tensor din = step.make(3);
  const at::Tensor dhidden = step.make(3);
  const at::Tensor dhx = step.make(1);
  const at::Tensor dib = has_bias ? step.make_bias() : at::Tensor();
  const at::Tensor dhb = has_bias ? step.make_bias() : at::Tensor();
  static Site site(
      "aten::_thnn_fused_gru_cell_backward", NPU_KIND_GRU_CELL_GRAD, 0);
  if (run<build::gru_cell_grad>(
          site, din, dhidden, dhx, dib, dhb, grad, saved) != NPU_REASON_NONE) {
    return std::nullopt;
  }
  return Five(din, dhidden, dhx, dib, dhb);
}

// ---- the same in tensor operations ----

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
Three lstm_cell(
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
  if (auto done = try_lstm_cell(input_gates, hidden_gates, cx, ib, hb)) {
    return *done;
  }
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
Three lstm_cell_backward(
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
  if (auto done = try_lstm_cell_grad(dhy, dcy, cx, cy, workspace, has_bias)) {
    return *done;
  }
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
Two gru_cell(
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
  if (auto done = try_gru_cell(input_gates, hidden_gates, hx, ib, hb)) {
    return *done;
  }
  const auto in = with_bias(input_gates, ib).unsafe_chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hb).unsafe_chunk(3, 1);
  const at::Tensor reset = hidden[0].add(in[0]).sigmoid_();
  const at::Tensor update = hidden[1].add(in[1]).sigmoid_();
  const at::Tensor fresh = in[2].add(hidden[2].mul(reset)).tanh_();
  at::Tensor hy = hx.sub(fresh).mul_(update).add_(fresh);
  return {hy, at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

// Gradients of the input gates, hidden gates, hx, and the two biases.
Five gru_cell_backward(
    const at::Tensor& grad, const at::Tensor& workspace, bool has_bias) {
  check_same_device("aten::_thnn_fused_gru_cell_backward", {&grad, &workspace});
  if (auto done = try_gru_cell_grad(grad, workspace, has_bias)) {
    return *done;
  }
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

// ---- shapes, for symbolic sizes; PyTorch has the LSTM's ----

at::Tensor sized(const at::Tensor& like, std::vector<c10::SymInt> sizes) {
  return at::empty_symint(sizes, like.options());
}

Two gru_cell_shapes(
    const at::Tensor&,
    const at::Tensor&,
    const at::Tensor& hx,
    const OptTensor&,
    const OptTensor&) {
  return {
      sized(hx, {hx.sym_size(0), hx.sym_size(1)}),
      sized(hx, {hx.sym_size(0), hx.sym_size(1) * 5})};
}

Five gru_cell_backward_shapes(
    const at::Tensor& grad, const at::Tensor&, bool has_bias) {
  const c10::SymInt batch = grad.sym_size(0);
  const c10::SymInt hidden = grad.sym_size(1);
  const auto bias = [&] {
    return has_bias ? sized(grad, {hidden * 3}) : at::Tensor();
  };
  return {
      sized(grad, {batch, hidden * 3}),
      sized(grad, {batch, hidden * 3}),
      sized(grad, {batch, hidden}),
      bias(),
      bias()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell_shapes));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward_shapes));
}

}  // namespace npu
