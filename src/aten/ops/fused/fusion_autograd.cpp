// SPDX-License-Identifier: Apache-2.0
// The node of autograd of npu_fusion_attention: backward is the operator of the
// gradient.
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <string>
#include <utility>

#include "aten/ops/fused/fused.h"
#include "aten/ops/fused/fusion_problem.h"

namespace npu::fused {
namespace {

// Tensors whose gradient the operator has.
constexpr std::array<const char*, 5> kInputs = {
    "query", "key", "value", "pse", "sink"};

// Arguments of the gradient that are those of the forward operator.
struct Renamed {
  const char* grad;
  const char* forward;
};
constexpr Renamed kSame[] = {
    {"head_num", "head_num"},
    {"input_layout", "input_layout"},
    {"atten_mask", "atten_mask"},
    {"scale_value", "scale"},
    {"pre_tockens", "pre_tockens"},
    {"next_tockens", "next_tockens"},
    {"inner_precise", "inner_precise"},
    {"prefix", "prefix"},
    {"actual_seq_qlen", "actual_seq_qlen"},
    {"actual_seq_kvlen", "actual_seq_kvlen"},
    {"sparse_mode", "sparse_mode"},
    {"softmax_layout", "softmax_layout"},
};

// The place among kInputs; their number for other arguments.
std::size_t input_of(const std::string& name) {
  const auto* const at =
      std::find(kInputs.begin(), kInputs.end(), std::string_view(name));
  return static_cast<std::size_t>(at - kInputs.begin());
}

c10::IValue optional_tensor(const at::Tensor& x) {
  return x.defined() ? c10::IValue(x) : c10::IValue();
}

// To be differentiated again: through the composition, where the row maximum
// and sum depend on the inputs.
variable_list attention_grads_again(
    AutogradContext* ctx, const variable_list& saved, const at::Tensor& grad) {
  const c10::OperatorHandle op = find_operator(kFusion);
  // One tensor may be query, key and value: each gets a variable of its own.
  variable_list own;
  for (std::size_t i = 0; i < kInputs.size(); ++i) {
    own.push_back(saved[i].defined() ? saved[i].view_as(saved[i]) : saved[i]);
  }
  torch::jit::Stack stack;
  for (const c10::Argument& argument : op.schema().arguments()) {
    c10::IValue value = argument.default_value().value_or(c10::IValue());
    for (const Renamed& name : kSame) {
      if (argument.name() == name.forward) {
        value = ctx->saved_data[name.grad];
      }
    }
    const std::size_t input = input_of(argument.name());
    stack.push_back(
        input < own.size() ? optional_tensor(own[input]) : std::move(value));
  }
  op.redispatchBoxed(kComposition, &stack);
  variable_list inputs;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].defined() && own[i].requires_grad()) {
      inputs.push_back(own[i]);
      places.push_back(i);
    }
  }
  const variable_list found = torch::autograd::grad(
      {stack[0].toTensor()}, inputs, {grad}, true, /*create_graph=*/true);
  variable_list all(kInputs.size() + 1);
  for (std::size_t i = 0; i < places.size(); ++i) {
    all[places[i]] = found[i];
  }
  return all;
}

struct NpuFusionAttention : torch::autograd::Function<NpuFusionAttention> {
  // The rest of the arguments come as the stack of the call.
  static variable_list forward(
      AutogradContext* ctx,
      const at::Tensor& query,
      const at::Tensor& key,
      const at::Tensor& value,
      const OptTensor& pse,
      const OptTensor& sink,
      torch::jit::Stack* stack) {
    const c10::OperatorHandle op = find_operator(kFusion);
    const Arguments args(op, *stack);
    for (const Renamed& name : kSame) {
      ctx->saved_data[name.grad] = args[name.forward];
    }
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      op.callBoxed(stack);
    }
    const auto results = torch::jit::last(*stack, 7);
    variable_list outs;
    for (std::size_t i = 0; i < 4; ++i) {
      outs.push_back(results[i].toTensor());
    }
    ctx->save_for_backward(
        {query,
         key,
         value,
         or_undefined(pse),
         or_undefined(sink),
         outs[0],
         outs[1],
         outs[2]});
    ctx->mark_non_differentiable({outs[1], outs[2], outs[3]});
    return outs;
  }
  static variable_list backward(
      AutogradContext* ctx, const variable_list& grads) {
    const c10::OperatorHandle op = find_operator(kFusionGrad);
    const variable_list saved = ctx->get_saved_variables();
    if (at::GradMode::is_enabled()) {
      return attention_grads_again(ctx, saved, grads[0]);
    }
    torch::jit::Stack stack;
    for (const c10::Argument& argument : op.schema().arguments()) {
      const std::string& name = argument.name();
      const std::size_t input = input_of(name);
      const auto kept = ctx->saved_data.find(name);
      stack.push_back(
          input < kInputs.size()   ? optional_tensor(saved[input])
          : name == "dy"           ? grads[0]
          : name == "attention_in" ? saved[5]
          : name == "softmax_max"  ? saved[6]
          : name == "softmax_sum"  ? saved[7]
          : kept != ctx->saved_data.end()
              ? kept->second
              : argument.default_value().value_or(c10::IValue()));
    }
    op.callBoxed(&stack);
    variable_list all(kInputs.size() + 1);
    for (std::size_t i = 0; i < kInputs.size(); ++i) {
      if (saved[i].defined()) {
        all[i] = stack[i].toTensor();
      }
    }
    return all;
  }
};

void fusion_attention_autograd(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  const Arguments args(op, *stack);
  const at::Tensor query = args.tensor("query");
  const at::Tensor key = args.tensor("key");
  const at::Tensor value = args.tensor("value");
  const at::Tensor pse = args.maybe("pse");
  const at::Tensor sink = args.maybe("sink");
  const Layout layout = layout_of(args["input_layout"].toStringRef());
  const bool simple = !is_transformed(query, key, value, pse, sink) &&
                      query.dim() >= 3 && args["keep_prob"].toDouble() == 1 &&
                      !args.has("dropout_mask") && layout != Layout::kOther &&
                      (layout != Layout::kTnd || !pse.defined());
  if (!needs_grad(query, key, value, pse, sink) || !simple) {
    record_parts(op, keys, stack);
    return;
  }
  // An undefined tensor is no argument of a node; an absent one is.
  const auto given = [](const at::Tensor& x) {
    return x.defined() ? OptTensor(x) : std::nullopt;
  };
  const variable_list outs = NpuFusionAttention::apply(
      query, key, value, given(pse), given(sink), stack);
  for (std::size_t i = 0; i < 4; ++i) {
    (*stack)[stack->size() - 7 + i] = outs[i];
  }
}

const custom::Native kInstallFusionAutograd(
    "npu_fusion_attention", &install_autograd<&fusion_attention_autograd>);

}  // namespace
}  // namespace npu::fused
