// SPDX-License-Identifier: Apache-2.0
// The fused kinds, decomposed, against the host driver's kernels.
#include "compose/decompose_kit.h"

namespace npu::compose {
namespace {

constexpr npu_dtype kNarrow[] = {NPU_F32, NPU_BF16};

TEST(ComposeFused, Swiglu) {
  for (const npu_dtype dtype : kNarrow) {
    for (const std::int64_t dim : {0, 1, 2}) {
      Sizes half{4, 6, 10};
      half[static_cast<std::size_t>(dim)] /= 2;
      const Spec x{dtype, {4, 6, 10}};
      const Spec y{dtype, half};
      npu_swiglu_attrs attrs{};
      attrs.dim = dim;
      expect_equal(NPU_KIND_SWIGLU, 0, {y}, {x}, attrs);
      npu_swiglu_grad_attrs grad{};
      grad.dim = dim;
      expect_equal(NPU_KIND_SWIGLU_GRAD, 0, {x}, {y, x}, grad);
    }
  }
}

// Of kinds that have none.
struct NoAttrs {
  std::uint32_t size;
};

TEST(ComposeFused, Rotary) {
  const Sizes angles[] = {{2, 3, 5, 8}, {1, 3, 1, 8}, {5, 8}, {1, 8}};
  for (const npu_dtype dtype : kNarrow) {
    for (std::uint32_t code = 0; code < NPU_ROTARY_CODES; ++code) {
      for (const Sizes& sizes : angles) {
        const Spec x{dtype, {2, 3, 5, 8}};
        const Spec angle{dtype, sizes};
        expect_equal(NPU_KIND_ROTARY, code, {x}, {x, angle, angle}, NoAttrs{});
        expect_equal(
            NPU_KIND_ROTARY_GRAD,
            code,
            {x, angle, angle},
            {x, x, angle, angle},
            NoAttrs{});
        expect_equal(
            NPU_KIND_ROTARY_GRAD,
            code,
            {x, {}, {}},
            {x, {}, angle, angle},
            NoAttrs{});
      }
    }
  }
}

TEST(ComposeFused, AddRmsNorm) {
  for (const npu_dtype dtype : kNarrow) {
    const Spec x{dtype, {3, 2, 5}};
    const Spec rstd{NPU_F32, {3, 1, 1}, Values::kUnit};
    const Spec weight{dtype, {2, 5}};
    npu_add_rms_norm_attrs attrs{};
    attrs.eps = 1e-5;
    expect_equal(NPU_KIND_ADD_RMS_NORM, 0, {x, x, rstd}, {x, x, weight}, attrs);
    expect_equal(NPU_KIND_ADD_RMS_NORM, 0, {x, x, {}}, {x, x, weight}, attrs);
    for (const Spec& grad_sum : {x, Spec{}}) {
      expect_equal(
          NPU_KIND_ADD_RMS_NORM_GRAD,
          0,
          {x, {NPU_F32, {2, 5}}},
          {x, grad_sum, x, rstd, weight},
          NoAttrs{});
    }
  }
}

npu_quantise_attrs quantise_attrs(bool symmetric) {
  npu_quantise_attrs attrs{};
  attrs.axis = 1;
  attrs.group_size = 4;
  attrs.low = -128;
  attrs.high = 127;
  attrs.symmetric = symmetric ? 1 : 0;
  return attrs;
}

TEST(ComposeFused, Quantise) {
  const Spec x{NPU_F32, {3, 2, 8}};
  const Spec y{NPU_I8, {3, 2, 8}};
  const Sizes scales[] = {{1}, {2}, {12}};
  for (std::uint32_t code = 0; code < NPU_QUANTISE_DYNAMIC_TENSOR; ++code) {
    const Spec scale{NPU_F32, scales[code], Values::kUnit};
    for (const Spec& zero : {scale, Spec{}}) {
      expect_equal(
          NPU_KIND_QUANTISE,
          code,
          {y, {}, {}},
          {x, scale, zero, {}},
          quantise_attrs(true));
    }
  }
  const Sizes found[] = {{1}, {3, 2}, {12}};
  for (std::uint32_t code = NPU_QUANTISE_DYNAMIC_TENSOR;
       code < NPU_QUANTISE_CODES;
       ++code) {
    const Spec scale{NPU_F32, found[code - NPU_QUANTISE_DYNAMIC_TENSOR]};
    for (const bool symmetric : {true, false}) {
      expect_equal(
          NPU_KIND_QUANTISE,
          code,
          {y, scale, symmetric ? Spec{} : scale},
          {x, {}, {}, {}},
          quantise_attrs(symmetric));
    }
  }
  expect_equal(
      NPU_KIND_QUANTISE,
      NPU_QUANTISE_DYNAMIC_TOKEN,
      {y, {NPU_F32, {3, 2}}, {}},
      {x, {}, {}, {NPU_F32, {8}, Values::kUnit}},
      quantise_attrs(true));
}

TEST(ComposeFused, Dequantise) {
  const Sizes scales[] = {{1}, {2}, {12}, {8}};
  for (const npu_dtype dtype : {NPU_I8, NPU_I32}) {
    const Spec x{dtype, {3, 2, 8}, Values::kIndex, 90};
    const Spec y{NPU_F32, {3, 2, 8}};
    npu_dequantise_attrs attrs{};
    attrs.axis = 1;
    attrs.group_size = 4;
    for (std::uint32_t code = 0; code < NPU_DEQUANTISE_CODES; ++code) {
      const bool product = code == NPU_DEQUANTISE_PRODUCT;
      const Spec scale{NPU_F32, scales[code], Values::kUnit};
      const Spec token =
          product ? Spec{NPU_F32, {3, 2}, Values::kUnit} : Spec{};
      const Spec bias =
          product ? Spec{NPU_I32, {8}, Values::kIndex, 50} : Spec{};
      expect_equal(
          NPU_KIND_DEQUANTISE,
          code,
          {y},
          {x, scale, product ? Spec{} : scale, token, bias},
          attrs);
    }
  }
}

TEST(ComposeFused, MoeGating) {
  const Spec logits{NPU_F32, {5, 12}};
  const Spec weights{NPU_F32, {5, 3}};
  const Spec experts{NPU_I32, {5, 3}};
  for (const std::uint32_t score : {0u, 1u}) {
    for (const std::int64_t groups : {1, 4}) {
      for (const bool with_bias : {false, true}) {
        npu_moe_gating_attrs attrs{};
        attrs.k = 3;
        attrs.groups = groups;
        attrs.top_groups = 2;
        attrs.scale = 1.5;
        attrs.score = score;
        attrs.renormalise = with_bias ? 1 : 0;
        expect_equal(
            NPU_KIND_MOE_GATING,
            0,
            {weights, experts, experts, logits},
            {logits,
             with_bias ? Spec{NPU_F32, {12}} : Spec{},
             with_bias ? Spec{} : Spec{NPU_BOOL, {5}, Values::kBool}},
            attrs);
      }
    }
  }
}

TEST(ComposeFused, MoeRoute) {
  constexpr std::int64_t kTokens = 5;
  constexpr std::int64_t kWidth = 6;
  for (const npu_dtype dtype : kNarrow) {
    for (const std::int64_t k : {1, 2}) {
      const std::int64_t pairs = kTokens * k;
      npu_moe_route_attrs attrs{};
      attrs.k = k;
      attrs.experts_total = 4;
      const Spec tokens{dtype, {kTokens, kWidth}};
      const Spec rows{dtype, {pairs, kWidth}};
      const Spec places{NPU_I32, {pairs}, Values::kPlaces, pairs};
      const Spec weights{dtype, {kTokens, k}, Values::kUnit};
      expect_equal(
          NPU_KIND_MOE_ROUTE,
          NPU_MOE_ROUTE_PERMUTE,
          {rows, places, {NPU_I64, {4}}, {}},
          {tokens, {NPU_I32, {kTokens, k}, Values::kIndex, 4}, {}, {}, {}},
          attrs);
      expect_equal(
          NPU_KIND_MOE_ROUTE,
          NPU_MOE_ROUTE_PERMUTE_GRAD,
          {tokens, {}, {}, {}},
          {rows, {}, places, {}, {}},
          attrs);
      expect_equal(
          NPU_KIND_MOE_ROUTE,
          NPU_MOE_ROUTE_UNPERMUTE,
          {tokens, {}, {}, {}},
          {rows, {}, places, weights, {}},
          attrs);
      expect_equal(
          NPU_KIND_MOE_ROUTE,
          NPU_MOE_ROUTE_UNPERMUTE_GRAD,
          {rows, {}, {}, weights},
          {tokens, {}, places, weights, rows},
          attrs);
    }
  }
}

TEST(ComposeFused, PagedAttention) {
  constexpr std::int64_t kBatch = 3;
  constexpr std::int64_t kBlock = 4;
  for (const npu_dtype dtype : kNarrow) {
    for (const std::int64_t window : {0, 3}) {
      for (const double softcap : {0.0, 2.0}) {
        const Spec q{dtype, {kBatch, 4, 6}};
        const Spec cache{dtype, {7, kBlock, 2, 6}};
        npu_paged_attention_attrs attrs{};
        attrs.scale = 0.5;
        attrs.softcap = softcap;
        attrs.block_size = kBlock;
        attrs.max_length = 3 * kBlock;
        attrs.window = window;
        expect_equal(
            NPU_KIND_PAGED_ATTENTION,
            0,
            {q, {NPU_F32, {kBatch, 4}}},
            {q,
             cache,
             cache,
             {NPU_I32, {kBatch, 3}, Values::kIndex, 7},
             {NPU_I32, {kBatch}, Values::kIndex, 3 * kBlock + 1},
             {},
             {},
             {},
             {}},
            attrs);
      }
    }
  }
}

}  // namespace
}  // namespace npu::compose
