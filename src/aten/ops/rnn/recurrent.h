// SPDX-License-Identifier: Apache-2.0
// What nn.LSTM, nn.GRU and nn.RNN share: their arguments, which sizes go
// together, and the way through layers and directions.
#pragma once

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>

#include <cstdint>
#include <vector>

#include "aten/ops/operands.h"

namespace npu {

// The weights of one layer and direction.
struct Weights {
  at::Tensor input;
  at::Tensor hidden;
  OptTensor input_bias;
  OptTensor hidden_bias;

  bool fit(std::int64_t rows, std::int64_t in, std::int64_t h) const {
    const auto is_bias = [&](const OptTensor& bias) {
      return !bias || bias->sizes().equals({rows});
    };
    return input.sizes().equals({rows, in}) &&
           hidden.sizes().equals({rows, h}) && is_bias(input_bias) &&
           is_bias(hidden_bias);
  }
};

// The arguments of aten::gru.input and its like. `Hx` is the hidden state, or
// the list of both of an LSTM's.
template <class Hx>
struct Recurrent {
  const at::Tensor& input;
  Hx hx;
  at::TensorList params;
  bool has_biases;
  std::int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;

  std::int64_t directions() const {
    return bidirectional ? 2 : 1;
  }
  std::int64_t states() const {
    return layers * directions();
  }
  Weights weights(std::int64_t state) const {
    const at::Tensor* p = params.data() + (has_biases ? 4 : 2) * state;
    if (!has_biases) {
      return {p[0], p[1], std::nullopt, std::nullopt};
    }
    return {p[0], p[1], p[2], p[3]};
  }
  // A state for every layer and direction, and weights of `gates` times its
  // columns that go with it and the input.
  bool fits(const at::Tensor& state, std::int64_t gates) const {
    const std::int64_t hidden = state.size(2);
    const std::int64_t batch = input.size(batch_first ? 0 : 1);
    if (layers < 1 || !state.sizes().equals({states(), batch, hidden}) ||
        params.size() != (has_biases ? 4 : 2) * std::size_t(states())) {
      return false;
    }
    for (std::int64_t i = 0; i < states(); ++i) {
      const std::int64_t width =
          i < directions() ? input.size(2) : hidden * directions();
      if (!weights(i).fit(gates * hidden, width, hidden)) {
        return false;
      }
    }
    return true;
  }
  // step(input, state, reverse) gives the output of one layer and direction,
  // steps first; the result is laid out as the caller's input.
  template <class Step>
  at::Tensor run(at::Tensor in, Step step) const {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      std::vector<at::Tensor> outputs;
      for (std::int64_t direction = 0; direction < directions(); ++direction) {
        const std::int64_t state = layer * directions() + direction;
        outputs.push_back(step(in, state, direction == 1));
      }
      in = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
      if (train && dropout != 0 && layer + 1 < layers) {
        in = at::dropout(in, dropout, /*train=*/true);
      }
    }
    return batch_first ? in.transpose(0, 1) : in;
  }
};

// Kernels of such operators, and PyTorch's composites.
template <class Result, class Hx>
using Layers = Result (*)(
    const at::Tensor&,
    Hx,
    at::TensorList,
    bool,
    std::int64_t,
    double,
    bool,
    bool,
    bool);

// The kernel of such an operator: kRun where kTakes the call, else PyTorch's
// composite of the same arguments.
template <auto kTakes, auto kRun, auto kComposite, class Hx, class... Rest>
auto run_recurrent(
    const at::Tensor& input, Hx hx, at::TensorList params, Rest... rest) {
  const Recurrent<Hx> call{input, hx, params, rest...};
  return kTakes(call) ? kRun(call) : kComposite(input, hx, params, rest...);
}

}  // namespace npu
