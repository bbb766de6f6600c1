// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: npu_moe_token_permute, npu_moe_token_unpermute and
// npu_moe_gating_top_k_softmax on their kinds.
//
// Ascend's sorted_indices hold the place of each pair; the kind wants the pair
// at each place, the inverse permutation.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include "aten/ops/fused/fused.h"
#include "attempts/moe.h"

namespace npu::fused {
namespace {

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

// What unpermute, and permute's gradient, have in common: rows gathered back to
// their tokens.
npu_reason gathered(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& in,
    const at::Tensor& places,
    const at::Tensor& weights,
    std::int64_t k) {
  if (!is_matrix(in) || !is_places(places) || k <= 0 ||
      places.numel() % k != 0) {
    return kLeaveToCpu;
  }
  const at::Tensor rows = inverse(places);
  if (!rows.defined()) {
    return kLeaveToCpu;
  }
  npu_moe_route_attrs attrs{};
  attrs.k = k;
  const at::Tensor& tokens =
      set_output(out, 0, {places.numel() / k, in.size(1)}, in);
  return run<build::moe_route>(
      site,
      tokens,
      nullptr,
      nullptr,
      nullptr,
      in,
      nullptr,
      rows,
      weights,
      nullptr,
      attrs);
}

// (tokens, k) weights for the places, or none.
bool fits_probs(const at::Tensor& probs, const at::Tensor& places) {
  return !probs.defined() ||
         (is_matrix(probs) && probs.numel() == places.numel());
}

std::int64_t weights_per_token(const at::Tensor& probs) {
  return probs.defined() && probs.dim() == 2 ? probs.size(1) : 1;
}

}  // namespace

npu_reason token_permute(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& tokens,
    const at::Tensor& indices,
    std::optional<std::int64_t> asked,
    bool padded) {
  const std::int64_t k = indices.dim() == 2 ? indices.size(1) : 1;
  const std::int64_t pairs = indices.numel();
  const std::int64_t limit = asked.value_or(0);
  const std::int64_t rows = limit > 0 ? std::min(limit, pairs) : pairs + limit;
  if (padded || !is_matrix(tokens) || !is_index(indices) || k <= 0 ||
      indices.dim() < 1 || indices.dim() > 2 || rows <= 0 ||
      pairs != tokens.size(0) * k) {
    return kLeaveToCpu;
  }
  npu_moe_route_attrs attrs{};
  attrs.k = k;
  const at::Tensor& permuted =
      set_output(out, 0, {rows, tokens.size(1)}, tokens);
  const at::Tensor order =
      make_empty({pairs}, at::kInt, tokens.device().index());
  const at::Tensor experts = indices.to(at::kInt);
  const npu_reason why = run<build::moe_route>(
      site,
      permuted,
      order,
      nullptr,
      nullptr,
      tokens,
      experts,
      nullptr,
      nullptr,
      nullptr,
      attrs);
  if (why == NPU_REASON_NONE) {
    out.keep(1, inverse(order));
  }
  return why;
}

npu_reason token_permute_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& places,
    std::int64_t tokens,
    at::ScalarType dtype,
    std::int64_t k,
    bool padded) {
  return !padded && dtype == grad.scalar_type() && places.numel() == tokens * k
             ? gathered(site, out, grad, places, {}, k)
             : kLeaveToCpu;
}

npu_reason token_unpermute(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& rows,
    const at::Tensor& places,
    const at::Tensor& probs,
    bool padded) {
  return !padded && fits_probs(probs, places)
             ? gathered(
                   site, out, rows, places, probs, weights_per_token(probs))
             : kLeaveToCpu;
}

bool token_unpermute_has_gradient(const Arguments& args) {
  return !args["padded_mode"].toBool();
}

npu_reason token_unpermute_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& tokens,
    const at::Tensor& grad,
    const at::Tensor& places,
    const at::Tensor& probs,
    bool padded) {
  const std::int64_t k = weights_per_token(probs);
  if (padded || !is_matrix(tokens) || !is_matrix(grad) ||
      !same_dtype(tokens, grad) || tokens.size(1) != grad.size(1) ||
      !is_places(places) || !fits_probs(probs, places) ||
      places.numel() != grad.size(0) * k) {
    return kLeaveToCpu;
  }
  const at::Tensor rows = inverse(places);
  if (!rows.defined()) {
    return kLeaveToCpu;
  }
  npu_moe_route_attrs attrs{};
  attrs.k = k;
  const at::Tensor& of_tokens = set_output(out, 0, tokens.sizes(), tokens);
  const at::Tensor& of_probs = probs.defined()
                                   ? set_output(out, 1, probs.sizes(), probs)
                                   : set_output(out, 1, {0}, tokens);
  return run<build::moe_route>(
      site,
      of_tokens,
      nullptr,
      nullptr,
      probs.defined() ? of_probs : at::Tensor(),
      grad,
      nullptr,
      rows,
      probs,
      tokens,
      attrs);
}

npu_reason gating_top_k_softmax(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& x,
    const at::Tensor& finished,
    std::int64_t k) {
  if (!is_narrow(x) || (x.dim() != 2 && x.dim() != 3) || k <= 0 ||
      k > x.size(-1)) {
    return kLeaveToCpu;
  }
  if (finished.defined() && (finished.scalar_type() != at::kBool ||
                             finished.numel() * x.size(-1) != x.numel())) {
    return kLeaveToCpu;
  }
  npu_moe_gating_attrs attrs{};
  attrs.k = k;
  attrs.groups = attrs.top_groups = 1;
  attrs.scale = 1;
  attrs.score = NPU_MOE_GATING_SCORE_SOFTMAX;
  c10::DimVector sizes(x.sizes());
  sizes.back() = k;
  const at::Tensor& weights = set_output(out, 0, sizes, x);
  const at::Tensor& experts = set_output(out, 1, sizes, x, at::kInt);
  const at::Tensor& rows = set_output(out, 2, sizes, x, at::kInt);
  return run<build::moe_gating>(
      site, weights, experts, rows, nullptr, x, nullptr, finished, attrs);
}

}  // namespace npu::fused
