// SPDX-License-Identifier: Apache-2.0
// nn.GRU and nn.RNN: the input's products for all steps in one gemm. PyTorch
// does that on the CPU only; on other devices it makes one product per step.
#include <ATen/ops/_pack_padded_sequence_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_thnn_fused_gru_cell.h>
#include <ATen/ops/gru_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rnn_relu_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rnn_tanh_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "aten/ops/autocast.h"
#include "aten/ops/rnn/recurrent.h"
#include "runtime/device.h"

namespace npu {
namespace {

using Sequence = Recurrent<const at::Tensor&>;
using SequenceResult = std::tuple<at::Tensor, at::Tensor>;

// A cell: `project` makes the products of the input for all steps, `step` goes
// from one hidden state (batch, hidden) to the next. hidden_t is hidden's
// transpose, taken once.
struct GruCell {
  static constexpr std::int64_t kGates = 3;
  static at::Tensor project(const at::Tensor& input, const Weights& w) {
    return at::linear(input, w.input);
  }
  static at::Tensor step(
      const at::Tensor& gates,
      const at::Tensor& h,
      const Weights& w,
      const at::Tensor& hidden_t) {
    return std::get<0>(at::_thnn_fused_gru_cell(
        gates, at::mm(h, hidden_t), h, w.input_bias, w.hidden_bias));
  }
};

template <bool kTanh>
struct SimpleCell {
  static constexpr std::int64_t kGates = 1;
  static at::Tensor project(const at::Tensor& input, const Weights& w) {
    return at::linear(input, w.input, w.input_bias);
  }
  static at::Tensor step(
      const at::Tensor& gates,
      const at::Tensor& h,
      const Weights& w,
      const at::Tensor&) {
    const at::Tensor sum = at::linear(h, w.hidden, w.hidden_bias).add(gates);
    return kTanh ? sum.tanh() : sum.relu();
  }
};

// Sizes, dtypes and devices that go together; PyTorch's own way says what is
// wrong with others.
template <std::int64_t kGates>
bool goes_by_sequence(const Sequence& c) {
  const at::Tensor& input = c.input;
  if (is_symbolic(input) || is_symbolic(c.hx) ||
      std::any_of(c.params.begin(), c.params.end(), is_symbolic)) {
    return false;
  }
  const auto is_like = [&](const at::Tensor& tensor) {
    return tensor.device() == input.device() && same_dtype(tensor, input);
  };
  return input.device().type() == kDeviceType && input.dim() == 3 &&
         c.hx.dim() == 3 && input.numel() != 0 && !autocast_enabled() &&
         c.fits(c.hx, kGates) && is_like(c.hx) &&
         std::all_of(c.params.begin(), c.params.end(), is_like);
}

// All steps of one layer and direction; the last hidden state goes to `hy`.
template <class Cell>
at::Tensor run_steps(
    const at::Tensor& input,
    at::Tensor h,
    const Weights& w,
    bool reverse,
    std::vector<at::Tensor>& hy) {
  const auto gates = Cell::project(input, w).unbind(0);
  const at::Tensor hidden_t = w.hidden.t();
  std::vector<at::Tensor> outputs(gates.size());
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const std::size_t t = reverse ? gates.size() - 1 - i : i;
    h = outputs[t] = Cell::step(gates[t], h, w, hidden_t);
  }
  hy.push_back(h);
  return at::stack(outputs, 0);
}

template <class Cell>
SequenceResult run_layers(const Sequence& c) {
  std::vector<at::Tensor> hy;
  const at::Tensor out = c.run(
      c.batch_first ? c.input.transpose(0, 1) : c.input,
      [&](const at::Tensor& input, std::int64_t state, bool reverse) {
        return run_steps<Cell>(
            input, c.hx.select(0, state), c.weights(state), reverse, hy);
      });
  return {out, at::stack(hy, 0)};
}

namespace composites = at::compositeimplicitautograd;

using Kernel = Layers<SequenceResult, const at::Tensor&>;
template <class Cell, Kernel kComposite>
constexpr Kernel kSequence = &run_recurrent<
    &goes_by_sequence<Cell::kGates>,
    &run_layers<Cell>,
    kComposite>;

// Made of differentiable operators: the same above and below autograd.
void register_sequences(torch::Library& m) {
  m.impl("gru.input", kSequence<GruCell, &composites::gru>);
  m.impl("rnn_tanh.input", kSequence<SimpleCell<true>, &composites::rnn_tanh>);
  m.impl("rnn_relu.input", kSequence<SimpleCell<false>, &composites::rnn_relu>);
}

// PyTorch takes lengths as int64 on the CPU only.
SequenceResult pack_padded_sequence(
    const at::Tensor& input, const at::Tensor& lengths, bool batch_first) {
  return at::compositeexplicitautograd::_pack_padded_sequence(
      input,
      at::isIntegralType(lengths.scalar_type(), false)
          ? lengths.to(at::kCPU, at::kLong)
          : lengths,
      batch_first);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  register_sequences(m);
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_sequences(m);
  m.impl("_pack_padded_sequence", TORCH_FN(pack_padded_sequence));
}

}  // namespace npu
