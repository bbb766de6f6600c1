// SPDX-License-Identifier: Apache-2.0
// Recurrent layers and cells by their definitions.
#include "judge/recurrent.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

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
    if (!in[i].isTensor() || !in[i].toTensor().defined()) {
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

at::Tensor with_bias(const c10::IValue& gates, const c10::IValue& bias) {
  return bias.isTensor() && bias.toTensor().defined()
             ? gates.toTensor().add(bias.toTensor())
             : gates.toTensor();
}

// Derivatives of sigmoid and tanh by their results.
at::Tensor sigmoid_slope(const at::Tensor& y) {
  return y.sub(y.square());
}
at::Tensor tanh_slope(const at::Tensor& y) {
  return y.square().neg_().add_(1);
}

// A batch of so many parts beside each other.
bool has_parts(const c10::IValue& value, int64_t parts) {
  return value.isTensor() && value.toTensor().defined() &&
         value.toTensor().dim() == 2 && value.toTensor().size(1) != 0 &&
         value.toTensor().size(1) % parts == 0;
}

}  // namespace

std::optional<Values> lstm_layer(const Values& inputs) {
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

std::optional<Values> lstm_cell(const Values& in) {
  if (!has_parts(in[0], 4) || !has_parts(in[1], 4) || !has_parts(in[2], 1)) {
    return std::nullopt;
  }
  const auto gates = with_bias(in[0], in[3]).add(with_bias(in[1], in[4]));
  const auto parts = gates.chunk(4, 1);
  const at::Tensor c = parts[1]
                           .sigmoid()
                           .mul_(in[2].toTensor())
                           .add_(parts[0].sigmoid().mul_(parts[2].tanh()));
  return Values{parts[3].sigmoid().mul_(c.tanh()), c, at::Tensor()};
}

std::optional<Values> lstm_cell_backward(const Values& in) {
  if (!has_parts(in[2], 1) || !has_parts(in[3], 1) || !has_parts(in[4], 4)) {
    return std::nullopt;
  }
  const at::Tensor cx = in[2].toTensor();
  const at::Tensor tanh_c = in[3].toTensor().tanh();
  const auto gates = in[4].toTensor().chunk(4, 1);
  const auto given = [&](const c10::IValue& grad) {
    return grad.isTensor() && grad.toTensor().defined() ? grad.toTensor()
                                                        : at::zeros_like(cx);
  };
  const at::Tensor grad_h = given(in[0]);
  const at::Tensor grad_c =
      grad_h.mul(gates[3]).mul_(tanh_slope(tanh_c)).add_(given(in[1]));
  const at::Tensor grad_gates = at::cat(
      {grad_c.mul(gates[2]).mul_(sigmoid_slope(gates[0])),
       grad_c.mul(cx).mul_(sigmoid_slope(gates[1])),
       grad_c.mul(gates[0]).mul_(tanh_slope(gates[2])),
       grad_h.mul(tanh_c).mul_(sigmoid_slope(gates[3]))},
      1);
  return Values{
      grad_gates,
      grad_c.mul(gates[1]),
      in[5].toBool() ? grad_gates.sum(0) : at::Tensor()};
}

std::optional<Values> gru_cell(const Values& in) {
  if (!has_parts(in[0], 3) || !has_parts(in[1], 3) || !has_parts(in[2], 1)) {
    return std::nullopt;
  }
  const auto input = with_bias(in[0], in[3]).chunk(3, 1);
  const auto hidden = with_bias(in[1], in[4]).chunk(3, 1);
  const at::Tensor reset = input[0].add(hidden[0]).sigmoid_();
  const at::Tensor update = input[1].add(hidden[1]).sigmoid_();
  const at::Tensor fresh = reset.mul(hidden[2]).add_(input[2]).tanh_();
  const at::Tensor kept = update.mul(in[2].toTensor());
  return Values{update.neg().add_(1).mul_(fresh).add_(kept), at::Tensor()};
}

std::optional<Values> gru_cell_backward(const Values& in) {
  if (!has_parts(in[0], 1) || !has_parts(in[1], 5)) {
    return std::nullopt;
  }
  const at::Tensor grad = in[0].toTensor();
  const auto saved = in[1].toTensor().chunk(5, 1);
  const at::Tensor& reset = saved[0];
  const at::Tensor& update = saved[1];
  const at::Tensor& fresh = saved[2];
  const at::Tensor of_fresh =
      grad.mul(update.neg().add_(1)).mul_(tanh_slope(fresh));
  const at::Tensor of_update =
      grad.mul(saved[3].sub(fresh)).mul_(sigmoid_slope(update));
  const at::Tensor of_reset = of_fresh.mul(saved[4]).mul_(sigmoid_slope(reset));
  const at::Tensor of_input = at::cat({of_reset, of_update, of_fresh}, 1);
  const at::Tensor of_hidden =
      at::cat({of_reset, of_update, of_fresh.mul(reset)}, 1);
  const bool bias = in[2].toBool();
  return Values{
      of_input,
      of_hidden,
      grad.mul(update),
      bias ? of_input.sum(0) : at::Tensor(),
      bias ? of_hidden.sum(0) : at::Tensor()};
}

}  // namespace optools
