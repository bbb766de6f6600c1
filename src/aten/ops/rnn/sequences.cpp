// SPDX-License-Identifier: Apache-2.0
// nn.GRU and nn.RNN: the input's products for all steps in one gemm. PyTorch
// does that on the CPU only; on other devices it makes one product per step.
#include <ATen/autocast_mode.h>
#include <ATen/ops/_thnn_fused_gru_cell.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rnn_relu_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rnn_tanh_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "aten/ops/operands.h"
#include "runtime/device.h"

namespace npu {
namespace {

using List = at::TensorList;
using SequenceResult = std::tuple<at::Tensor, at::Tensor>;
using Composite = SequenceResult (*)(
    const at::Tensor&,
    const at::Tensor&,
    List,
    bool,
    std::int64_t,
    double,
    bool,
    bool,
    bool);

// The weights of one layer and direction.
struct Weights {
  at::Tensor input;
  at::Tensor hidden;
  std::optional<at::Tensor> input_bias;
  std::optional<at::Tensor> hidden_bias;
};

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

// The arguments of aten::gru.input and its like.
struct Sequence {
  const at::Tensor& input;
  const at::Tensor& hx;
  List params;
  bool has_biases;
  std::int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;

  std::int64_t directions() const {
    return bidirectional ? 2 : 1;
  }
  std::size_t params_each() const {
    return has_biases ? 4 : 2;
  }
  Weights weights(std::int64_t state) const {
    const at::Tensor* p = params.data() + params_each() * state;
    if (!has_biases) {
      return {p[0], p[1], std::nullopt, std::nullopt};
    }
    return {p[0], p[1], p[2], p[3]};
  }
};

bool fits(
    const Weights& w, std::int64_t rows, std::int64_t in, std::int64_t h) {
  const auto is_vector = [&](const std::optional<at::Tensor>& bias) {
    return !bias || bias->sizes().equals({rows});
  };
  return w.input.sizes().equals({rows, in}) &&
         w.hidden.sizes().equals({rows, h}) && is_vector(w.input_bias) &&
         is_vector(w.hidden_bias);
}

// Sizes, dtypes and devices that go together; PyTorch's own way says what is
// wrong with others.
bool goes_by_sequence(const Sequence& c, std::int64_t gates) {
  const at::Tensor& input = c.input;
  if (is_symbolic(input) || is_symbolic(c.hx) ||
      std::any_of(c.params.begin(), c.params.end(), is_symbolic)) {
    return false;
  }
  if (input.device().type() != kDeviceType || input.dim() != 3 ||
      c.hx.dim() != 3 || input.numel() == 0 || c.layers < 1 ||
      at::autocast::is_autocast_enabled(kDeviceType)) {
    return false;
  }
  const std::int64_t states = c.layers * c.directions();
  const std::int64_t hidden = c.hx.size(2);
  const std::int64_t batch = input.size(c.batch_first ? 0 : 1);
  if (!c.hx.sizes().equals({states, batch, hidden}) ||
      c.params.size() != c.params_each() * states) {
    return false;
  }
  const auto is_like = [&](const at::Tensor& tensor) {
    return tensor.device() == input.device() &&
           tensor.scalar_type() == input.scalar_type();
  };
  if (!is_like(c.hx) ||
      !std::all_of(c.params.begin(), c.params.end(), is_like)) {
    return false;
  }
  for (std::int64_t i = 0; i < states; ++i) {
    const std::int64_t width =
        i < c.directions() ? input.size(2) : hidden * c.directions();
    if (!fits(c.weights(i), gates * hidden, width, hidden)) {
      return false;
    }
  }
  return true;
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
  at::Tensor input = c.batch_first ? c.input.transpose(0, 1) : c.input;
  std::vector<at::Tensor> hy;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (std::int64_t direction = 0; direction < c.directions(); ++direction) {
      const std::int64_t state = layer * c.directions() + direction;
      outputs.push_back(run_steps<Cell>(
          input, c.hx.select(0, state), c.weights(state), direction == 1, hy));
    }
    input = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    if (c.train && c.dropout != 0 && layer + 1 < c.layers) {
      input = at::dropout(input, c.dropout, /*train=*/true);
    }
  }
  return {c.batch_first ? input.transpose(0, 1) : input, at::stack(hy, 0)};
}

template <class Cell, Composite composite>
SequenceResult sequence(
    const at::Tensor& input,
    const at::Tensor& hx,
    List params,
    bool has_biases,
    std::int64_t layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  const Sequence call{
      input,
      hx,
      params,
      has_biases,
      layers,
      dropout,
      train,
      bidirectional,
      batch_first};
  return goes_by_sequence(call, Cell::kGates) ? run_layers<Cell>(call)
                                              : composite(
                                                    input,
                                                    hx,
                                                    params,
                                                    has_biases,
                                                    layers,
                                                    dropout,
                                                    train,
                                                    bidirectional,
                                                    batch_first);
}

namespace composites = at::compositeimplicitautograd;

// Made of differentiable operators: the same above and below autograd.
void register_sequences(torch::Library& m) {
  m.impl("gru.input", &sequence<GruCell, &composites::gru>);
  m.impl("rnn_tanh.input", &sequence<SimpleCell<true>, &composites::rnn_tanh>);
  m.impl("rnn_relu.input", &sequence<SimpleCell<false>, &composites::rnn_relu>);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  register_sequences(m);
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_sequences(m);
}

}  // namespace npu
