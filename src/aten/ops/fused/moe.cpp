// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: npu_moe_token_permute, npu_moe_token_unpermute and
// npu_moe_gating_top_k_softmax on their kinds.
//
// Ascend's sorted_indices hold the place of each pair; the kind wants the pair
// at each place, the inverse permutation.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include "aten/ops/fused/fused.h"

namespace npu::fused {
namespace {

constexpr char kPermute[] = "npu::npu_moe_token_permute";
constexpr char kPermuteGrad[] = "npu::npu_moe_token_permute_grad_v2";
constexpr char kUnpermute[] = "npu::npu_moe_token_unpermute";
constexpr char kUnpermuteGrad[] = "npu::npu_moe_token_unpermute_grad";
constexpr char kGate[] = "npu::npu_moe_gating_top_k_softmax";
using PermuteFn = Pair(
    const at::Tensor&, const at::Tensor&, std::optional<std::int64_t>, bool);
using PermuteGradFn = at::Tensor(
    const at::Tensor&,
    const at::Tensor&,
    std::int64_t,
    at::ScalarType,
    std::int64_t,
    bool);
using UnpermuteFn = at::Tensor(
    const at::Tensor&,
    const at::Tensor&,
    const OptTensor&,
    bool,
    at::OptionalIntArrayRef);
using UnpermuteGradFn = Pair(
    const at::Tensor&,
    const at::Tensor&,
    const at::Tensor&,
    const OptTensor&,
    bool,
    at::OptionalIntArrayRef);
using GateFn = Triple(const at::Tensor&, const OptTensor&, std::int64_t);

// Of places 0 to n - 1; undefined where they are no permutation.
at::Tensor inverse(const at::Tensor& places) {
  const std::int64_t n = places.numel();
  if (n == 0 || places.min().item<std::int64_t>() != 0 ||
      places.max().item<std::int64_t>() != n - 1) {
    return {};
  }
  at::Tensor out =
      at::full({n}, -1, places.options().dtype(at::kInt)).contiguous();
  out.scatter_(
      0, places.to(at::kLong), at::arange(n, places.options().dtype(at::kInt)));
  return out.min().item<std::int64_t>() >= 0 ? out : at::Tensor();
}

bool is_matrix(const at::Tensor& x) {
  return x.dim() == 2 && is_narrow(x);
}

bool is_places(const at::Tensor& x) {
  return x.dim() == 1 && is_index(x);
}

Pair permute(
    const at::Tensor& tokens,
    const at::Tensor& indices,
    std::optional<std::int64_t> asked,
    bool padded) {
  static NativeSite site(kPermute, NPU_KIND_MOE_ROUTE, NPU_MOE_ROUTE_PERMUTE);
  npu_reason why = site.wants(tokens, indices);
  const std::int64_t k = indices.dim() == 2 ? indices.size(1) : 1;
  const std::int64_t pairs = indices.numel();
  const std::int64_t limit = asked.value_or(0);
  const std::int64_t rows = limit > 0 ? std::min(limit, pairs) : pairs + limit;
  if (takes(
          is_matrix(tokens) && !padded && is_index(indices) && k > 0 &&
              (indices.dim() == 1 || indices.dim() == 2) && rows > 0 &&
              pairs == tokens.size(0) * k,
          why)) {
    npu_moe_route_attrs attrs{};
    attrs.k = k;
    at::Tensor out =
        empty_of(tokens, {rows, tokens.size(1)}, tokens.scalar_type());
    at::Tensor order = empty_of(tokens, {pairs}, at::kInt);
    const at::Tensor experts = indices.to(at::kInt);
    if (run<build::moe_route>(
            site,
            out,
            order,
            nullptr,
            nullptr,
            tokens,
            experts,
            nullptr,
            nullptr,
            nullptr,
            attrs) == NPU_REASON_NONE) {
      return {std::move(out), inverse(order)};
    }
  }
  static const auto op = typed<PermuteFn>(kPermute);
  return op.redispatch(kComposition, tokens, indices, asked, padded);
}

// What unpermute, and permute's gradient, have in common: rows gathered back to
// their tokens. Undefined where the driver or the arguments say no.
at::Tensor gathered(
    NativeSite& site,
    const at::Tensor& in,
    const at::Tensor& places,
    const at::Tensor& weights,
    std::int64_t k) {
  npu_reason why = site.wants(in, places, weights);
  if (!takes(
          is_matrix(in) && is_places(places) && k > 0 &&
              places.numel() % k == 0,
          why)) {
    return {};
  }
  const at::Tensor rows = inverse(places);
  if (!rows.defined()) {
    return {};
  }
  npu_moe_route_attrs attrs{};
  attrs.k = k;
  at::Tensor out =
      empty_of(in, {places.numel() / k, in.size(1)}, in.scalar_type());
  const npu_reason said = run<build::moe_route>(
      site,
      out,
      nullptr,
      nullptr,
      nullptr,
      in,
      nullptr,
      rows,
      weights,
      nullptr,
      attrs);
  return said == NPU_REASON_NONE ? out : at::Tensor();
}

at::Tensor permute_grad(
    const at::Tensor& grad,
    const at::Tensor& places,
    std::int64_t tokens,
    at::ScalarType dtype,
    std::int64_t k,
    bool padded) {
  static NativeSite site(
      kPermuteGrad, NPU_KIND_MOE_ROUTE, NPU_MOE_ROUTE_PERMUTE_GRAD);
  if (!padded && dtype == grad.scalar_type() && places.numel() == tokens * k) {
    at::Tensor out = gathered(site, grad, places, {}, k);
    if (out.defined()) {
      return out;
    }
  }
  static const auto op = typed<PermuteGradFn>(kPermuteGrad);
  return op.redispatch(kComposition, grad, places, tokens, dtype, k, padded);
}

// (tokens, k) weights for the places, or none.
bool fits_probs(const at::Tensor& probs, const at::Tensor& places) {
  return !probs.defined() ||
         (is_matrix(probs) && probs.numel() == places.numel());
}

at::Tensor unpermute(
    const at::Tensor& rows,
    const at::Tensor& places,
    const OptTensor& given,
    bool padded,
    at::OptionalIntArrayRef shape) {
  static NativeSite site(
      kUnpermute, NPU_KIND_MOE_ROUTE, NPU_MOE_ROUTE_UNPERMUTE);
  const at::Tensor& probs = or_undefined(given);
  if (!padded && fits_probs(probs, places)) {
    at::Tensor out = gathered(
        site, rows, places, probs, probs.defined() ? probs.size(1) : 1);
    if (out.defined()) {
      return out;
    }
  }
  static const auto op = typed<UnpermuteFn>(kUnpermute);
  return op.redispatch(kComposition, rows, places, given, padded, shape);
}

Pair unpermute_grad(
    const at::Tensor& tokens,
    const at::Tensor& grad,
    const at::Tensor& places,
    const OptTensor& given,
    bool padded,
    at::OptionalIntArrayRef shape) {
  static NativeSite site(
      kUnpermuteGrad, NPU_KIND_MOE_ROUTE, NPU_MOE_ROUTE_UNPERMUTE_GRAD);
  const at::Tensor& probs = or_undefined(given);
  npu_reason why = site.wants(grad, tokens, places, probs);
  const std::int64_t k =
      probs.defined() && probs.dim() == 2 ? probs.size(1) : 1;
  if (takes(
          !padded && is_matrix(tokens) && is_matrix(grad) &&
              same_dtype(tokens, grad) && tokens.size(1) == grad.size(1) &&
              is_places(places) && fits_probs(probs, places) &&
              places.numel() == grad.size(0) * k,
          why)) {
    const at::Tensor rows = inverse(places);
    if (rows.defined()) {
      npu_moe_route_attrs attrs{};
      attrs.k = k;
      at::Tensor out = empty_of(tokens, tokens.sizes(), tokens.scalar_type());
      at::Tensor of_probs =
          probs.defined() ? empty_of(probs, probs.sizes(), probs.scalar_type())
                          : at::Tensor();
      if (run<build::moe_route>(
              site,
              out,
              nullptr,
              nullptr,
              of_probs,
              grad,
              nullptr,
              rows,
              probs,
              tokens,
              attrs) == NPU_REASON_NONE) {
        return {
            std::move(out),
            of_probs.defined() ? of_probs
                               : empty_of(tokens, {0}, tokens.scalar_type())};
      }
    }
  }
  static const auto op = typed<UnpermuteGradFn>(kUnpermuteGrad);
  return op.redispatch(
      kComposition, tokens, grad, places, given, padded, shape);
}

struct NpuMoePermute : torch::autograd::Function<NpuMoePermute> {
  static variable_list forward(
      AutogradContext* ctx,
      const at::Tensor& tokens,
      const at::Tensor& indices,
      std::optional<std::int64_t> asked,
      bool padded) {
    static const auto op = typed<PermuteFn>(kPermute);
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [out, places] = op.call(tokens, indices, asked, padded);
    ctx->save_for_backward({places});
    ctx->saved_data["tokens"] = tokens.sym_size(0);
    ctx->saved_data["dtype"] = tokens.scalar_type();
    ctx->saved_data["k"] =
        indices.dim() == 2 ? indices.sym_size(1) : c10::SymInt(1);
    ctx->saved_data["padded"] = padded;
    ctx->mark_non_differentiable({places});
    return {out, places};
  }
  static variable_list backward(
      AutogradContext* ctx, const variable_list& grads) {
    static const auto op = typed<PermuteGradFn>(kPermuteGrad);
    auto& data = ctx->saved_data;
    at::Tensor grad = op.call(
        grads[0],
        ctx->get_saved_variables()[0],
        data["tokens"].toSymInt().guard_int(__FILE__, __LINE__),
        data["dtype"].toScalarType(),
        data["k"].toSymInt().guard_int(__FILE__, __LINE__),
        data["padded"].toBool());
    return {grad, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

Pair permute_autograd(
    const at::Tensor& tokens,
    const at::Tensor& indices,
    std::optional<std::int64_t> asked,
    bool padded) {
  static const auto op = typed<PermuteFn>(kPermute);
  if (is_transformed(tokens)) {
    return op.redispatch(kComposition, tokens, indices, asked, padded);
  }
  if (!needs_grad(tokens)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(tokens, indices, asked, padded);
  }
  const variable_list outs =
      NpuMoePermute::apply(tokens, indices, asked, padded);
  return {outs[0], outs[1]};
}

struct NpuMoeUnpermute : torch::autograd::Function<NpuMoeUnpermute> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& rows,
      const at::Tensor& places,
      const OptTensor& probs) {
    static const auto op = typed<UnpermuteFn>(kUnpermute);
    ctx->save_for_backward({rows, places, or_undefined(probs)});
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(rows, places, probs, false, std::nullopt);
  }
  static variable_list backward(
      AutogradContext* ctx, const variable_list& grads) {
    static const auto op = typed<UnpermuteGradFn>(kUnpermuteGrad);
    const variable_list saved = ctx->get_saved_variables();
    const bool weighted = saved[2].defined();
    auto [of_rows, of_probs] = op.call(
        saved[0],
        grads[0],
        saved[1],
        weighted ? OptTensor(saved[2]) : OptTensor(),
        false,
        std::nullopt);
    return {of_rows, at::Tensor(), weighted ? of_probs : at::Tensor()};
  }
};

at::Tensor unpermute_autograd(
    const at::Tensor& rows,
    const at::Tensor& places,
    const OptTensor& given,
    bool padded,
    at::OptionalIntArrayRef shape) {
  static const auto op = typed<UnpermuteFn>(kUnpermute);
  const at::Tensor& probs = or_undefined(given);
  const bool wanted = needs_grad(rows, probs);
  if (is_transformed(rows, probs) || (wanted && padded)) {
    return op.redispatch(kComposition, rows, places, given, padded, shape);
  }
  if (!wanted) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(rows, places, given, padded, shape);
  }
  return NpuMoeUnpermute::apply(rows, places, given);
}

Triple gate(const at::Tensor& x, const OptTensor& given, std::int64_t k) {
  static NativeSite site(kGate, NPU_KIND_MOE_GATING, 0);
  const at::Tensor& finished = or_undefined(given);
  npu_reason why = site.wants(x, finished);
  if (takes(
          is_narrow(x) && (x.dim() == 2 || x.dim() == 3) && k > 0 &&
              k <= x.size(-1) &&
              (!finished.defined() ||
               (finished.scalar_type() == at::kBool &&
                finished.numel() * x.size(-1) == x.numel())),
          why)) {
    npu_moe_gating_attrs attrs{};
    attrs.k = k;
    attrs.groups = attrs.top_groups = 1;
    attrs.scale = 1;
    attrs.score = NPU_MOE_GATING_SCORE_SOFTMAX;
    c10::DimVector sizes(x.sizes());
    sizes.back() = k;
    at::Tensor weights = empty_of(x, sizes, x.scalar_type());
    at::Tensor experts = empty_of(x, sizes, at::kInt);
    at::Tensor rows = empty_of(x, sizes, at::kInt);
    if (run<build::moe_gating>(
            site,
            weights,
            experts,
            rows,
            nullptr,
            x,
            nullptr,
            finished,
            attrs) == NPU_REASON_NONE) {
      return {std::move(weights), std::move(experts), std::move(rows)};
    }
  }
  static const auto op = typed<GateFn>(kGate);
  return op.redispatch(kComposition, x, given, k);
}

const custom::Native kInstallPermute(
    "npu_moe_token_permute", &install<&permute, &permute_autograd>);
const custom::Native kInstallPermuteGrad(
    "npu_moe_token_permute_grad_v2", &install<&permute_grad>);
const custom::Native kInstallUnpermute(
    "npu_moe_token_unpermute", &install<&unpermute, &unpermute_autograd>);
const custom::Native kInstallUnpermuteGrad(
    "npu_moe_token_unpermute_grad", &install<&unpermute_grad>);
const custom::Native kInstallGate(
    "npu_moe_gating_top_k_softmax", &install<&gate>);

}  // namespace
}  // namespace npu::fused
