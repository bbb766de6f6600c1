// SPDX-License-Identifier: Apache-2.0
// npu_fusion_attention and its gradient: whole sequences, full or causal.
//
// The operator returns each row's maximum and sum of exponentials, which
// PyTorch's flash kernel does not. Forward takes blocks of scores that stay in
// the cache; backward is the flash kernel's, from their logsumexp. Dropout,
// position biases, other masks, sinks and packed sequences are left to the
// composition.
#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "aten/ops/fused/fused.h"
#include "aten/ops/fused/fusion_problem.h"
#include "driver/registry.h"

namespace npu::fused {
namespace {

constexpr char kFusion[] = "npu::npu_fusion_attention";
constexpr char kFusionGrad[] = "npu::npu_fusion_attention_grad";
constexpr char kFlash[] = "aten::_scaled_dot_product_flash_attention_for_cpu";

// (B, Nkv, S, D) as (B * N, S, D) in float32, each head for its query heads.
at::Tensor for_each_head(const at::Tensor& x, std::int64_t heads) {
  at::Tensor all = x;
  if (x.size(1) != heads) {
    const std::int64_t group = heads / x.size(1);
    all = x.unsqueeze(2)
              .expand({x.size(0), x.size(1), group, x.size(2), x.size(3)})
              .flatten(1, 2);
  }
  return all.flatten(0, 1).to(at::kFloat).contiguous();
}

// The device is this computer's processor.
bool is_on_cpu() {
  const Driver* const driver = active_driver_or_null();
  return driver != nullptr && driver->device_is_cpu();
}

// The queries of a block against keys; `out`, `most` and `total` are their
// places in the results, `scores` is memory for theirs. Scores stand keys by
// queries: PyTorch reduces over a leading dimension many columns at a time,
// over the last one by one.
void attend_block(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& hidden,
    at::Tensor scores,
    at::Tensor out,
    const at::Tensor& most,
    const at::Tensor& total) {
  at::bmm_out(scores, k, q.transpose(1, 2));
  if (hidden.defined()) {
    const std::int64_t n = hidden.size(0);
    scores.narrow(1, scores.size(1) - n, n)
        .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor top = at::amax(scores, 1, /*keepdim=*/true);
  scores.sub_(top).exp_();
  const at::Tensor sum = at::sum(scores, 1, /*keepdim=*/true);
  at::bmm_out(out, scores.transpose(1, 2), v);
  most.copy_(top.transpose(1, 2));
  total.copy_(sum.transpose(1, 2));
  out.div_(total);
}

// Of heads [first, last) of (heads, S, D), in blocks that stay in the cache of
// a core.
void attend_heads(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const Triple& results,
    bool causal,
    std::int64_t first,
    std::int64_t last) {
  const std::int64_t sq = q.size(1);
  const std::int64_t rows = std::min<std::int64_t>(sq, causal ? 128 : 256);
  const at::Tensor memory = at::empty({rows * k.size(1)}, q.options());
  at::Tensor later;  // (keys, queries) of a block on the diagonal: keys behind
  if (causal) {
    later = at::ones({rows, rows}, q.options().dtype(at::kBool)).tril_(-1);
  }
  for (std::int64_t h = first; h < last; ++h) {
    for (std::int64_t r = 0; r < sq; r += rows) {
      const std::int64_t count = std::min(rows, sq - r);
      const std::int64_t keys = causal ? r + count : k.size(1);
      const auto part = [&](const at::Tensor& x) {
        return x.narrow(0, h, 1).narrow(1, r, count);
      };
      attend_block(
          part(q),
          k.narrow(0, h, 1).narrow(1, 0, keys),
          v.narrow(0, h, 1).narrow(1, 0, keys),
          causal ? later.narrow(0, 0, count).narrow(1, 0, count) : at::Tensor(),
          memory.narrow(0, 0, keys * count).view({1, keys, count}),
          part(std::get<0>(results)),
          part(std::get<1>(results)),
          part(std::get<2>(results)));
    }
  }
}

Triple empty_results(const at::Tensor& q, const at::Tensor& v) {
  const std::int64_t n = q.size(0);
  const std::int64_t rows = q.size(1);
  return {
      at::empty({n, rows, v.size(2)}, q.options()),
      at::empty({n, rows, 1}, q.options()),
      at::empty({n, rows, 1}, q.options())};
}

// On the CPU, a thread for some of the heads.
Triple attend_on_cpu(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    bool causal) {
  Triple results = empty_results(q, v);
  at::parallel_for(0, q.size(0), 1, [&](std::int64_t first, std::int64_t last) {
    const at::AutoDispatchBelowADInplaceOrView below;
    attend_heads(q, k, v, results, causal, first, last);
  });
  return results;
}

Triple attend(const Problem& p, const at::Tensor* qkv) {
  const at::Tensor q = for_each_head(qkv[0], p.heads).mul(p.scale);
  const at::Tensor k = for_each_head(qkv[1], p.heads);
  const at::Tensor v = for_each_head(qkv[2], p.heads);
  if (is_on_cpu()) {
    static ladder::Entry& entry =
        ladder::make_entry(find_operator(kFlash), kFusion);
    return ladder::run_unboxed<
        Triple,
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        bool>(entry, NPU_REASON_NO_KERNEL, &attend_on_cpu, q, k, v, p.causal);
  }
  Triple results = empty_results(q, v);
  attend_heads(q, k, v, results, p.causal, 0, q.size(0));
  return results;
}

// (B * N, S, 1) as (B, N, S, 8).
at::Tensor statistic(
    const at::Tensor& x, std::int64_t batch, std::int64_t heads) {
  return x.view({batch, heads, x.size(1), 1})
      .expand({batch, heads, x.size(1), 8})
      .contiguous();
}

void fusion_attention(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet,
    torch::jit::Stack* stack) {
  const Arguments args(op, *stack);
  const Problem p(args);
  if (!p.plain) {
    op.redispatchBoxed(kComposition, stack);
    return;
  }
  const at::Tensor query = args.tensor("query");
  const at::Tensor qkv[] = {
      heads_first(query, p.layout, p.heads),
      heads_first(args.tensor("key"), p.layout, p.kv_heads),
      heads_first(args.tensor("value"), p.layout, p.kv_heads)};
  const std::int64_t batch = qkv[0].size(0);
  const std::int64_t offset = args["offset"].toInt();
  const std::int64_t numels = batch * p.heads * qkv[0].size(2) * qkv[1].size(2);
  const auto [out, most, total] = attend(p, qkv);
  const at::Tensor four = out.view({batch, p.heads, out.size(1), out.size(2)});
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(
      *stack,
      from_heads(four.to(query.scalar_type()), p.layout),
      statistic(most, batch, p.heads),
      statistic(total, batch, p.heads),
      empty_of(query, {0}, query.scalar_type()),
      std::int64_t{0},
      offset,
      numels);
}

// Sums what query heads of one group gave their head of key and value.
at::Tensor sum_group(const at::Tensor& x, std::int64_t kv_heads) {
  return x.size(1) == kv_heads
             ? x
             : x.unflatten(1, {kv_heads, x.size(1) / kv_heads}).sum(2);
}

void fusion_attention_grad(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet,
    torch::jit::Stack* stack) {
  const Arguments args(op, *stack);
  const Problem p(args);
  bool ready = p.plain;
  for (const char* name : {"softmax_max", "softmax_sum", "attention_in"}) {
    ready = ready && args.has(name);
  }
  if (!ready || args.tensor("softmax_max").dim() != 4 ||
      args.tensor("dy").sizes() != args.tensor("query").sizes()) {
    op.redispatchBoxed(kComposition, stack);
    return;
  }
  const at::Tensor query = args.tensor("query");
  const auto first = [&](const char* name, std::int64_t heads) {
    return heads_first(args.tensor(name), p.layout, heads);
  };
  const auto shared = [&](const char* name) {
    const at::Tensor x = first(name, p.kv_heads);
    return p.kv_heads == p.heads ? x
                                 : x.repeat_interleave(p.heads / p.kv_heads, 1);
  };
  const at::Tensor lse = args.tensor("softmax_sum")
                             .select(-1, 0)
                             .log()
                             .add_(args.tensor("softmax_max").select(-1, 0));
  const at::Tensor q = first("query", p.heads);
  const at::Tensor k = shared("key");
  const at::Tensor word =
      at::zeros({}, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
  auto [dq, dk, dv, unused] =
      at::_scaled_dot_product_fused_attention_overrideable_backward(
          first("dy", p.heads).to(query.scalar_type()),
          q,
          k,
          shared("value"),
          at::Tensor(),
          {true, true, true, false},
          first("attention_in", p.heads),
          lse.transpose(1, 2).contiguous().transpose(1, 2),
          at::Tensor(),
          at::Tensor(),
          q.size(2),
          k.size(2),
          0.0,
          p.causal,
          word,
          word,
          p.scale);
  const at::Tensor grads[] = {
      from_heads(dq, p.layout),
      from_heads(sum_group(dk, p.kv_heads), p.layout),
      from_heads(sum_group(dv, p.kv_heads), p.layout)};
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(
      *stack,
      grads[0],
      grads[1],
      grads[2],
      empty_of(query, {0}, query.scalar_type()),
      empty_of(query, {0}, at::kFloat));
}

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
    {"sparse_mode", "sparse_mode"},
};

// To be differentiated again: through the composition, where the row maximum
// and sum depend on the inputs.
variable_list attention_grads_again(
    AutogradContext* ctx, const variable_list& saved, const at::Tensor& grad) {
  const c10::OperatorHandle op = find_operator(kFusion);
  // One tensor may be query, key and value: each gets a variable of its own.
  variable_list own;
  for (std::size_t i = 0; i < 3; ++i) {
    own.push_back(saved[i].view_as(saved[i]));
  }
  torch::jit::Stack stack;
  for (const c10::Argument& argument : op.schema().arguments()) {
    c10::IValue value = argument.default_value().value_or(c10::IValue());
    for (const Renamed& name : kSame) {
      if (argument.name() == name.forward) {
        value = ctx->saved_data[name.grad];
      }
    }
    stack.push_back(
        argument.name() == "query"   ? own[0]
        : argument.name() == "key"   ? own[1]
        : argument.name() == "value" ? own[2]
                                     : std::move(value));
  }
  op.redispatchBoxed(kComposition, &stack);
  variable_list inputs;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < 3; ++i) {
    if (own[i].requires_grad()) {
      inputs.push_back(own[i]);
      places.push_back(i);
    }
  }
  const variable_list found = torch::autograd::grad(
      {stack[0].toTensor()}, inputs, {grad}, true, /*create_graph=*/true);
  variable_list all(4);
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
    ctx->save_for_backward({query, key, value, outs[0], outs[1], outs[2]});
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
      const auto kept = ctx->saved_data.find(name);
      stack.push_back(
          name == "query"          ? saved[0]
          : name == "key"          ? saved[1]
          : name == "value"        ? saved[2]
          : name == "dy"           ? grads[0]
          : name == "attention_in" ? saved[3]
          : name == "softmax_max"  ? saved[4]
          : name == "softmax_sum"  ? saved[5]
          : kept != ctx->saved_data.end()
              ? kept->second
              : argument.default_value().value_or(c10::IValue()));
    }
    op.callBoxed(&stack);
    return {
        stack[0].toTensor(),
        stack[1].toTensor(),
        stack[2].toTensor(),
        at::Tensor()};
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
  const bool wanted = needs_grad(query, key, value);
  bool simple = !is_transformed(query, key, value) && query.dim() >= 3 &&
                args["keep_prob"].toDouble() == 1 &&
                layout_of(args["input_layout"].toStringRef()) != Layout::kOther;
  for (const char* name : {"pse", "prefix", "sink", "dropout_mask"}) {
    simple = simple && !args.has(name);
  }
  if (!wanted || !simple) {
    record_parts(op, keys, stack);
    return;
  }
  const variable_list outs =
      NpuFusionAttention::apply(query, key, value, stack);
  for (std::size_t i = 0; i < 4; ++i) {
    (*stack)[stack->size() - 7 + i] = outs[i];
  }
}

const custom::Native kInstallFusion(
    "npu_fusion_attention", [](torch::Library& m) {
      const char* const name = "npu_fusion_attention";
      impl(
          m,
          name,
          c10::DispatchKey::PrivateUse1,
          torch::CppFunction::makeFromBoxedFunction<&fusion_attention>());
      impl(
          m,
          name,
          c10::DispatchKey::Autograd,
          torch::CppFunction::makeFromBoxedFunction<
              &fusion_attention_autograd>());
    });
const custom::Native kInstallFusionGrad(
    "npu_fusion_attention_grad", [](torch::Library& m) {
      const char* const name = "npu_fusion_attention_grad";
      impl(
          m,
          name,
          c10::DispatchKey::PrivateUse1,
          torch::CppFunction::makeFromBoxedFunction<&fusion_attention_grad>());
      impl_parts(m, name);
    });

}  // namespace
}  // namespace npu::fused
