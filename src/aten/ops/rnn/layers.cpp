// SPDX-License-Identifier: Apache-2.0
// nn.LSTM layer by layer. PyTorch goes cell by cell on every device but the
// CPU, where oneDNN has a kernel for a whole layer, forward and backward. Where
// the device is this CPU, or lacks the cells, and host code can read its
// memory, that kernel runs here too; otherwise the driver runs the cells.
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/lstm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "aten/ladder/ladder.h"
#include "aten/ops/autocast.h"
#include "aten/ops/rnn/recurrent.h"
#include "driver/registry.h"
#include "npu/kinds.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"

namespace npu {
namespace {

using Lstm = Recurrent<at::TensorList>;
using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr std::int64_t kLstmMode = 2;  // in PyTorch's numbering of cells

// What oneDNN says about this processor.
bool onednn_has(const char* question) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(question, "")
      .typed<bool()>()
      .call();
}

bool onednn_takes(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return true;
    case at::kBFloat16: {
      static const bool has = onednn_has("mkldnn::_is_mkldnn_bf16_supported");
      return has;
    }
    case at::kHalf: {
      static const bool has = onednn_has("mkldnn::_is_mkldnn_fp16_supported");
      return has && !at::GradMode::is_enabled();
    }
    default:
      return false;
  }
}

bool is_like(const at::Tensor& tensor, const at::Tensor& input) {
  return tensor.device() == input.device() &&
         tensor.scalar_type() == input.scalar_type() &&
         tensor.layout() == at::kStrided;
}

// A device of its own runs its own kernels; the embedded host driver is the CPU
// that oneDNN runs on.
bool driver_runs_cells() {
  const Driver& driver = active_driver();
  return &driver != &host_driver() && driver.has_kind(NPU_KIND_LSTM_CELL) &&
         driver.has_kind(NPU_KIND_LSTM_CELL_GRAD);
}

// Whether PyTorch would use oneDNN's layers for these tensors on the CPU, and
// they are the best this device has.
bool goes_by_layer(const Lstm& c) {
  const at::Tensor& input = c.input;
  if (c.hx.size() != 2 || input.device().type() != kDeviceType ||
      driver_runs_cells() || !at::globalContext().userEnabledMkldnn() ||
      autocast_enabled() || is_symbolic(input) || input.dim() != 3 ||
      input.numel() == 0 || c.hx[0].dim() != 3 || c.hx[1].dim() != 3 ||
      !onednn_takes(input.scalar_type())) {
    return false;
  }
  for (const at::TensorList& list : {c.hx, c.params}) {
    for (const at::Tensor& tensor : list) {
      if (!is_like(tensor, input) || is_symbolic(tensor)) {
        return false;
      }
    }
  }
  // oneDNN trusts the sizes it is given, so all of them are checked here.
  return input.layout() == at::kStrided && c.fits(c.hx[0], 4) &&
         c.hx[1].sizes() == c.hx[0].sizes() &&
         host_can_read(input.device().index());
}

// ---- the layer kernel itself ----

// Counted as what it is part of: the device's own way to run an LSTM.
void rnn_layer(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const ladder::TwinOp op(
      "aten::mkldnn_rnn_layer", "", "aten::lstm.input");
  op.run(stack);
}

void rnn_layer_backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const ladder::TwinOp op(
      "aten::mkldnn_rnn_layer_backward",
      "",
      "aten::_thnn_fused_lstm_cell_backward_impl");
  op.run(stack);
}

// ---- all layers ----

Result by_layer(const Lstm& c) {
  const std::int64_t hidden = c.hx[0].size(2);
  std::vector<at::Tensor> hy;
  std::vector<at::Tensor> cy;
  const at::Tensor result = c.run(
      (c.batch_first ? c.input.transpose(0, 1) : c.input).contiguous(),
      [&](const at::Tensor& input, std::int64_t state, bool reverse) {
        const Weights w = c.weights(state);
        auto [out, h, cell, workspace] = at::mkldnn_rnn_layer(
            input,
            w.input,
            w.hidden,
            c.has_biases ? *w.input_bias : at::zeros_like(w.input),
            c.has_biases ? *w.hidden_bias : at::zeros_like(w.hidden),
            c.hx[0].select(0, state),
            c.hx[1].select(0, state),
            reverse,
            /*batch_sizes=*/{},
            kLstmMode,
            hidden,
            c.layers,
            c.has_biases,
            c.bidirectional,
            c.batch_first,
            c.train);
        hy.push_back(std::move(h));
        cy.push_back(std::move(cell));
        return std::move(out);
      });
  return {result, at::stack(hy, 0), at::stack(cy, 0)};
}

constexpr Layers<Result, at::TensorList> kComposite =
    &at::compositeimplicitautograd::lstm;
constexpr Layers<Result, at::TensorList> kLstm =
    &run_recurrent<&goes_by_layer, &by_layer, kComposite>;

}  // namespace

// Made of differentiable operators: the same function above and below autograd.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("lstm.input", kLstm);
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("lstm.input", kLstm);
  using torch::CppFunction;
  m.impl("mkldnn_rnn_layer", CppFunction::makeFromBoxedFunction<&rnn_layer>());
  m.impl(
      "mkldnn_rnn_layer_backward",
      CppFunction::makeFromBoxedFunction<&rnn_layer_backward>());
}

}  // namespace npu
