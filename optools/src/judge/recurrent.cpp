// SPDX-License-Identifier: Apache-2.0
// oneDNN's LSTM layer by its definition.
#include "judge/recurrent.h"

#include <ATen/ops/empty.h>

namespace optools {
namespace {

using Values = std::vector<c10::IValue>;

constexpr int64_t kLstm = 2;  // PyTorch's number of that mode

struct Layer {
  at::Tensor input;  // time, batch, width
  at::Tensor weight_ih, weight_hh, bias;
  at::Tensor h, c;
  bool reverse = false;
};

// The operator's arguments in the order of its schema.
std::optional<Layer> layer_of(const Values& in) {
  constexpr size_t kArguments = 16;
  if (in.size() != kArguments || !in[9].isInt() || in[9].toInt() != kLstm) {
    return std::nullopt;
  }
  for (size_t i = 0; i < 7; ++i) {
    if (!in[i].isTensor() || !in[i].toTensor().defined() ||
        in[i].toTensor().scalar_type() != c10::ScalarType::Double) {
      return std::nullopt;
    }
  }
  Layer layer;
  layer.input = in[0].toTensor();
  layer.weight_ih = in[1].toTensor();
  layer.weight_hh = in[2].toTensor();
  if (in[12].toBool()) {
    layer.bias = in[3].toTensor().add(in[4].toTensor());
  }
  layer.h = in[5].toTensor();
  layer.c = in[6].toTensor();
  layer.reverse = in[7].toBool();
  if (layer.input.dim() != 3 || layer.h.dim() != 2) {
    return std::nullopt;
  }
  return layer;
}

}  // namespace

std::optional<Values> recurrent_answer(
    const Operator& op, const Values& inputs) {
  if (base_name(op) != "mkldnn_rnn_layer") {
    return std::nullopt;
  }
  const auto layer = layer_of(inputs);
  if (!layer) {
    return std::nullopt;
  }
  const int64_t steps = layer->input.size(0);
  at::Tensor h = layer->h;
  at::Tensor c = layer->c;
  const at::Tensor all = at::empty(
      {steps, layer->input.size(1), h.size(1)}, layer->input.options());
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = layer->reverse ? steps - 1 - step : step;
    at::Tensor gates = layer->input.select(0, at).matmul(layer->weight_ih.t());
    gates = gates.add_(h.matmul(layer->weight_hh.t()));
    gates = layer->bias.defined() ? gates.add_(layer->bias) : gates;
    const auto parts = gates.chunk(4, 1);
    c = parts[1].sigmoid().mul_(c).add_(
        parts[0].sigmoid().mul_(parts[2].tanh()));
    h = parts[3].sigmoid().mul_(c.tanh());
    all.select(0, at).copy_(h);
  }
  return Values{all, h, c};
}

}  // namespace optools
