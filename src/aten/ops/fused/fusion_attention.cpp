// SPDX-License-Identifier: Apache-2.0
// npu_fusion_attention and its gradient on a device that is this computer's
// processor. What blockwise.h does not compute (dropout, float64, biases of
// packed sequences), and other devices, are left to the composition.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <string>
#include <utility>

#include "aten/ops/fused/blockwise.h"
#include "aten/ops/fused/fused.h"
#include "aten/ops/fused/fusion_problem.h"
#include "attempts/attention.h"
#include "runtime/capabilities.h"

namespace npu::fused {
namespace {

constexpr char kFlash[] = "aten::_scaled_dot_product_flash_attention_for_cpu";

using Tensors = std::vector<at::Tensor>;

// In float32, elements of the last dimension beside each other.
at::Tensor as_floats(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kFloat);
  return wide.stride(-1) == 1 ? wide : wide.contiguous();
}

// What a CPU function gets of a call. Only tensors that are there.
enum Given : std::size_t { kQuery, kKey, kValue, kRest };
struct Optional {
  // Takes its place in the list, where the tensor is defined.
  Optional(const at::Tensor& x, Tensors& list)
      : place(x.defined() ? list.size() : 0) {
    if (x.defined()) {
      list.push_back(x);
    }
  }
  at::Tensor of(at::TensorList list) const {
    return place == 0 ? at::Tensor() : list[place];
  }
  std::size_t place;
};
struct FusionCall {
  FusionCall(const FusionProblem& p, const Arguments& args)
      : problem(p),
        tensors{args.tensor("query"), args.tensor("key"), args.tensor("value")},
        mask(p.mask, tensors),
        bias(p.bias, tensors),
        sink(p.sink, tensors) {}
  // Sequences of the CPU's views of the tensors.
  std::vector<Sequence> sequences(at::TensorList given) const;

  const FusionProblem& problem;
  Tensors tensors;
  Optional mask;
  Optional bias;
  Optional sink;
};

std::vector<Sequence> FusionCall::sequences(at::TensorList given) const {
  const at::Tensor q = as_floats(given[kQuery]);
  const at::Tensor k = as_floats(given[kKey]);
  const at::Tensor v = as_floats(given[kValue]);
  const at::Tensor hidden = mask.of(given);
  at::Tensor added = bias.of(given);
  added = added.defined() ? added.to(at::kFloat) : added;
  at::Tensor logits = sink.of(given);
  logits = logits.defined() ? logits.contiguous() : logits;
  std::vector<Sequence> out;
  for (std::int64_t i = 0; i < problem.batch; ++i) {
    out.push_back(
        {problem.query_part(q, i),
         problem.key_part(k, i),
         problem.key_part(v, i),
         problem.mask_part(hidden, i),
         problem.bias_part(added, i),
         logits,
         problem.visible(i)});
  }
  return out;
}

// The size of value's heads.
std::int64_t value_size(const FusionProblem& p, const at::Tensor& value) {
  const bool flat = p.layout == Layout::kBsh || p.layout == Layout::kSbh;
  return flat ? value.size(2) / p.kv_heads : value.size(-1);
}

// Empty, in query's layout with value's head size.
at::Tensor empty_output(
    const FusionProblem& p, const at::Tensor& query, const at::Tensor& value) {
  std::vector<std::int64_t> sizes = query.sizes().vec();
  const bool flat = p.layout == Layout::kBsh || p.layout == Layout::kSbh;
  sizes.back() = value_size(p, value) * (flat ? p.heads : 1);
  return at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
}

// Rows behind the last sequence.
void clear_rest(
    const FusionProblem& p,
    const at::Tensor& out,
    const at::Tensor& most,
    const at::Tensor& total) {
  if (!p.packed()) {
    return;
  }
  std::int64_t used = 0;
  for (const std::int64_t n : p.q_rows) {
    used += n;
  }
  const std::int64_t rest = out.size(0) - used;
  if (rest > 0) {
    out.narrow(0, used, rest).zero_();
    most.narrow(0, used, rest).fill_(kNoKey);
    total.narrow(0, used, rest).zero_();
  }
}

Tensors attend_on_cpu(at::TensorList given, const FusionCall& call) {
  const FusionProblem& p = call.problem;
  const at::Tensor& query = given[kQuery];
  const auto float32 = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor out = empty_output(p, query, given[kValue]);
  const at::Tensor most = at::empty(p.statistic_sizes(query), float32);
  const at::Tensor total = at::empty(p.statistic_sizes(query), float32);
  clear_rest(p, out, most, total);
  std::vector<AttendResult> results;
  for (std::int64_t i = 0; i < p.batch; ++i) {
    results.push_back(
        {p.query_part(out, i),
         p.statistic_part(most, i),
         p.statistic_part(total, i)});
  }
  attend_blocks(call.sequences(given), results, p.scores);
  return {out.to(query.scalar_type()), most, total};
}

}  // namespace

npu_reason fusion_attention(const Arguments& args, torch::jit::Stack& results) {
  const FusionProblem p(args);
  if (!p.fits || !host_code_is_native()) {
    return kLeaveToCpu;
  }
  static twin::Entry& entry =
      twin::make_entry(find_operator(kFlash), "npu::npu_fusion_attention");
  const FusionCall call(p, args);
  const Tensors outs =
      ladder::run_unboxed<Tensors, at::TensorList, const FusionCall&>(
          entry, NPU_REASON_NO_KERNEL, &attend_on_cpu, call.tensors, call);
  const at::Tensor query = args.tensor("query");
  torch::jit::push(
      results,
      outs[0],
      outs[1],
      outs[2],
      make_empty({0}, query.scalar_type(), query.device().index()),
      std::int64_t{0},
      args["offset"],
      p.numels());
  return NPU_REASON_NONE;
}

// A gradient without parts: what blockwise.h computes, whatever the dtype.
bool fusion_attention_has_gradient(const Arguments& args) {
  const Layout layout = layout_of(args["input_layout"].toStringRef());
  return args.tensor("query").dim() >= 3 && args["keep_prob"].toDouble() == 1 &&
         !args.has("dropout_mask") && layout != Layout::kOther &&
         (layout != Layout::kTnd || !args.has("pse"));
}

namespace {

// The tensors of a gradient's call behind those of the forward call.
struct FusionGradCall : FusionCall {
  FusionGradCall(const FusionProblem& p, const Arguments& args)
      : FusionCall(p, args), first(tensors.size()) {
    for (const char* name :
         {"dy", "attention_in", "softmax_max", "softmax_sum"}) {
      tensors.push_back(args.tensor(name));
    }
  }
  std::size_t first;
};

// -sum(sink's share * sum(grad * out)).
at::Tensor sink_grad(
    const FusionProblem& p,
    const at::Tensor& sink,
    const std::vector<AttendGrad>& grads) {
  at::Tensor sum = at::zeros_like(sink);
  for (const AttendGrad& g : grads) {
    const at::Tensor share = sink.unsqueeze(1)
                                 .sub(g.most.select(2, 0))
                                 .exp_()
                                 .div_(g.total.select(2, 0));
    sum.sub_(share.mul_(g.grad.mul(g.out).sum(-1)).sum(1));
  }
  return sum.view({p.heads});
}

Tensors attend_grad_on_cpu(at::TensorList given, const FusionGradCall& call) {
  const FusionProblem& p = call.problem;
  const at::Tensor grad = as_floats(given[call.first]);
  const at::Tensor output = as_floats(given[call.first + 1]);
  const at::Tensor most = given[call.first + 2].contiguous();
  const at::Tensor total = given[call.first + 3].contiguous();
  const auto zeros = [&](std::size_t i) {
    return at::zeros(given[i].sizes(), at::TensorOptions().dtype(at::kFloat));
  };
  const at::Tensor dq = zeros(kQuery);
  const at::Tensor dk = zeros(kKey);
  const at::Tensor dv = zeros(kValue);
  std::vector<AttendGrad> grads;
  for (std::int64_t i = 0; i < p.batch; ++i) {
    grads.push_back(
        {p.query_part(grad, i),
         p.query_part(output, i),
         p.statistic_part(most, i),
         p.statistic_part(total, i),
         p.query_part(dq, i),
         p.key_part(dk, i),
         p.key_part(dv, i)});
  }
  const std::vector<Sequence> sequences = call.sequences(given);
  attend_blocks_grad(sequences, grads, p.scores);
  const c10::ScalarType type = given[kQuery].scalar_type();
  Tensors out{dq.to(type), dk.to(type), dv.to(type)};
  if (p.sink.defined()) {
    out.push_back(sink_grad(p, sequences[0].sink, grads));
  }
  return out;
}

// Statistics and output as the forward operator gave them.
bool fits_grad(const FusionProblem& p, const Arguments& args) {
  if (!p.fits || p.bias.defined()) {
    return false;
  }
  const at::Tensor query = args.tensor("query");
  for (const char* name : {"softmax_max", "softmax_sum"}) {
    const at::Tensor x = args.maybe(name);
    if (!x.defined() || x.scalar_type() != at::kFloat || !on_device(x) ||
        x.sizes() != at::IntArrayRef(p.statistic_sizes(query))) {
      return false;
    }
  }
  std::vector<std::int64_t> sizes = query.sizes().vec();
  const bool flat = p.layout == Layout::kBsh || p.layout == Layout::kSbh;
  sizes.back() = value_size(p, args.tensor("value")) * (flat ? p.heads : 1);
  const at::Tensor grad = args.tensor("dy");
  const at::Tensor out = args.maybe("attention_in");
  return out.defined() && is_narrow(out) && is_narrow(grad) &&
         on_device(out, grad) && out.sizes() == at::IntArrayRef(sizes) &&
         grad.sizes() == at::IntArrayRef(sizes);
}

}  // namespace

npu_reason fusion_attention_grad(
    const Arguments& args, torch::jit::Stack& results) {
  const FusionProblem p(args);
  if (!fits_grad(p, args) || !host_code_is_native()) {
    return kLeaveToCpu;
  }
  static twin::Entry& entry =
      twin::make_entry(find_operator(kFlash), "npu::npu_fusion_attention_grad");
  const FusionGradCall call(p, args);
  const Tensors grads =
      ladder::run_unboxed<Tensors, at::TensorList, const FusionGradCall&>(
          entry, NPU_REASON_NO_KERNEL, &attend_grad_on_cpu, call.tensors, call);
  const at::Tensor query = args.tensor("query");
  const c10::DeviceIndex device = query.device().index();
  torch::jit::push(
      results,
      grads[0],
      grads[1],
      grads[2],
      make_empty({0}, query.scalar_type(), device),
      grads.size() > 3 ? grads[3] : make_empty({0}, at::kFloat, device));
  return NPU_REASON_NONE;
}

}  // namespace npu::fused
