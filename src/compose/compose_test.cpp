// SPDX-License-Identifier: Apache-2.0
// A decomposition gives what the host driver's own kernel of the kind gives.
#include "compose/decompose_kit.h"

namespace npu::compose {
namespace {

TEST(Compose, FlipAndRoll) {
  for (const std::uint64_t dims : {0u, 1u, 5u, 7u}) {
    npu_flip_attrs attrs{};
    attrs.dims = dims;
    const Spec x{NPU_F32, {2, 3, 4}};
    expect_equal(NPU_KIND_FLIP, 0, {x}, {x}, attrs);
  }
  npu_roll_attrs attrs{};
  attrs.n = 2;
  attrs.axes[0] = 2;
  attrs.shifts[0] = -5;
  attrs.axes[1] = 0;
  attrs.shifts[1] = 1;
  const Spec x{NPU_I64, {3, 2, 4}, Values::kIndex, 9};
  expect_equal(NPU_KIND_ROLL, 0, {x}, {x}, attrs);
}

TEST(Compose, Isin) {
  for (const std::uint32_t invert : {0u, 1u}) {
    npu_isin_attrs attrs{};
    attrs.invert = invert;
    expect_equal(
        NPU_KIND_ISIN,
        0,
        {{NPU_BOOL, {4, 5}}},
        {{NPU_I64, {4, 5}, Values::kIndex, 30},
         {NPU_I64, {7}, Values::kIndex, 30}},
        attrs);
  }
}

TEST(Compose, RmsNorm) {
  for (const npu_dtype dtype : kFloats) {
    const Spec x{dtype, {3, 2, 5}};
    const Spec rstd{wide(dtype), {3, 1, 1}, Values::kUnit};
    const Spec weight{dtype, {2, 5}};
    npu_rms_norm_attrs attrs{};
    attrs.axes = 2;
    attrs.eps = 1e-5;
    expect_equal(NPU_KIND_RMS_NORM, 0, {x, rstd}, {x, weight}, attrs);
    expect_equal(NPU_KIND_RMS_NORM, 0, {x, {}}, {x, {}}, attrs);
    npu_rms_norm_grad_attrs grad{};
    grad.axes = 2;
    expect_equal(
        NPU_KIND_RMS_NORM_GRAD, 0, {x, weight}, {x, x, rstd, weight}, grad);
    expect_equal(NPU_KIND_RMS_NORM_GRAD, 0, {x, {}}, {x, x, rstd, {}}, grad);
  }
}

TEST(Compose, WeightNorm) {
  for (const npu_dtype dtype : kFloats) {
    for (const std::int64_t dim : {0, 2}) {
      const Spec v{dtype, {3, 2, 5}};
      const Sizes one = dim == 0 ? Sizes{3, 1, 1} : Sizes{1, 1, 5};
      const Spec g{dtype, one};
      const Spec norms{wide(dtype), one, Values::kUnit};
      npu_weight_norm_attrs attrs{};
      attrs.dim = dim;
      expect_equal(NPU_KIND_WEIGHT_NORM, 0, {v, norms}, {v, g}, attrs);
      npu_weight_norm_grad_attrs grad{};
      grad.dim = dim;
      expect_equal(
          NPU_KIND_WEIGHT_NORM_GRAD, 0, {v, g}, {v, v, g, norms}, grad);
    }
  }
}

TEST(Compose, Losses) {
  for (const npu_dtype dtype : {NPU_F32, NPU_F64}) {
    for (std::uint32_t code = 0; code < NPU_LOSS_CODES; ++code) {
      for (std::uint32_t reduction = 0; reduction < 3; ++reduction) {
        const bool one = reduction != NPU_LOSS_REDUCTION_NONE;
        const auto d = static_cast<npu_dtype>(dtype);
        const Spec x{d, {4, 5}, Values::kUnit};
        const Spec out{d, one ? Sizes{} : Sizes{4, 5}};
        const bool sign = code == NPU_LOSS_SOFT_MARGIN;
        const Spec target{d, {4, 5}, sign ? Values::kSign : Values::kUnit};
        const Spec pos = code == NPU_LOSS_BCE_LOGITS ? x : Spec{};
        npu_loss_attrs attrs{};
        attrs.a = 0.3;
        attrs.reduction = reduction;
        expect_equal(NPU_KIND_LOSS, code, {out}, {x, target, x, pos}, attrs);
        npu_loss_grad_attrs grad{};
        grad.a = 0.3;
        grad.reduction = reduction;
        expect_equal(
            NPU_KIND_LOSS_GRAD, code, {x}, {out, x, target, {}, pos}, grad);
      }
    }
  }
}

TEST(Compose, CrossEntropy) {
  for (const std::uint32_t code : {0u, 1u}) {
    for (const double smoothing : {0.0, 0.1}) {
      for (std::uint32_t reduction = 0; reduction < 3; ++reduction) {
        const bool one = reduction != NPU_CROSS_ENTROPY_REDUCTION_NONE;
        const Spec x{NPU_F32, {3, 5, 2}};
        const Spec rows{NPU_F32, {3, 2}};
        const Spec out = one ? Spec{NPU_F32, {}} : rows;
        const Spec target = code == NPU_CROSS_ENTROPY_INDEX
                                ? Spec{NPU_I64, {3, 2}, Values::kIndex, 5}
                                : Spec{NPU_F32, {3, 5, 2}, Values::kUnit};
        const Spec weight{NPU_F32, {5}, Values::kUnit};
        const Spec total{NPU_F32, {}};
        npu_cross_entropy_attrs attrs{};
        attrs.ignore_index = 2;
        attrs.label_smoothing = smoothing;
        attrs.reduction = reduction;
        expect_equal(
            NPU_KIND_CROSS_ENTROPY,
            code,
            {out, rows, total},
            {x, target, weight},
            attrs);
        npu_cross_entropy_grad_attrs grad{};
        grad.ignore_index = 2;
        grad.label_smoothing = smoothing;
        grad.reduction = reduction;
        expect_equal(
            NPU_KIND_CROSS_ENTROPY_GRAD,
            code,
            {x},
            {out, x, target, weight, rows, {}},
            grad);
      }
    }
  }
}

TEST(Compose, MarginLosses) {
  for (std::uint32_t code = 0; code < 2; ++code) {
    for (std::uint32_t reduction = 0; reduction < 3; ++reduction) {
      const bool one = reduction != NPU_MARGIN_REDUCTION_NONE;
      const bool multilabel = code == NPU_MARGIN_MULTILABEL_MARGIN;
      const Spec x{NPU_F32, {4, 5}};
      const Spec out{NPU_F32, one ? Sizes{} : Sizes{4}};
      const Spec target = multilabel ? Spec{NPU_I64, {4, 5}, Values::kLabels, 5}
                                     : Spec{NPU_I64, {4}, Values::kIndex, 5};
      const Spec weight =
          multilabel ? Spec{} : Spec{NPU_F32, {5}, Values::kUnit};
      npu_margin_attrs attrs{};
      attrs.p = 2;
      attrs.margin = 0.8;
      attrs.reduction = reduction;
      expect_equal(
          NPU_KIND_MARGIN,
          code,
          {out, multilabel ? x : Spec{}},
          {x, target, weight},
          attrs);
      if (multilabel) {
        continue;  // its backward reads is_target, tested in the ATen tests
      }
      npu_margin_grad_attrs grad{};
      grad.p = 2;
      grad.margin = 0.8;
      grad.reduction = reduction;
      expect_equal(
          NPU_KIND_MARGIN_GRAD, code, {x}, {out, x, target, weight, {}}, grad);
    }
  }
}

struct AttentionCase {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::uint32_t layout;
  std::uint32_t causal;
  std::int64_t window_left;
  double softcap;
  Spec mask;
  bool sink;
};

TEST(Compose, Attention) {
  constexpr std::int64_t kBatch = 2;
  constexpr std::int64_t kSq = 5;
  constexpr std::int64_t kSk = 7;
  const AttentionCase cases[] = {
      {4, 4, NPU_ATTENTION_LAYOUT_BHSD, 0, -1, 0, {}, false},
      {4,
       2,
       NPU_ATTENTION_LAYOUT_BSHD,
       1,
       -1,
       0,
       {NPU_BOOL, {kBatch, 1, kSq, kSk}, Values::kBool},
       false},
      {4,
       2,
       NPU_ATTENTION_LAYOUT_BHSD,
       2,
       2,
       3.0,
       {NPU_F32, {kBatch, 4, kSq, kSk}},
       true},
      {2, 1, NPU_ATTENTION_LAYOUT_BHSD, 0, -1, 0, {NPU_F32, {kSq, kSk}}, true},
  };
  for (const AttentionCase& c : cases) {
    const bool bhsd = c.layout == NPU_ATTENTION_LAYOUT_BHSD;
    const auto shape = [&](std::int64_t h, std::int64_t s) {
      return bhsd ? Sizes{kBatch, h, s, 6} : Sizes{kBatch, s, h, 6};
    };
    const Spec q{NPU_F32, shape(c.heads, kSq)};
    const Spec k{NPU_F32, shape(c.kv_heads, kSk)};
    const Spec lse{NPU_F32, {kBatch, c.heads, kSq}, Values::kUnit};
    const Spec sink = c.sink ? Spec{NPU_F32, {c.heads}} : Spec{};
    npu_attention_attrs attrs{};
    attrs.scale = 0.4;
    attrs.softcap = c.softcap;
    attrs.window_left = c.window_left;
    attrs.window_right = -1;
    attrs.causal = c.causal;
    attrs.layout = c.layout;
    expect_equal(
        NPU_KIND_ATTENTION,
        0,
        {q, lse},
        {q, k, k, c.mask, {}, {}, sink},
        attrs);
    npu_attention_grad_attrs grad{};
    std::memcpy(&grad, &attrs, sizeof(grad));
    const Spec grad_mask = c.mask.dtype == NPU_F32 ? c.mask : Spec{};
    expect_equal(
        NPU_KIND_ATTENTION_GRAD,
        0,
        {q, k, k, grad_mask, sink},
        {q, q, k, k, q, lse, c.mask, {}, {}, sink},
        grad);
  }
}

// A declined part means that the caller takes another road.
TEST(Compose, DeclinedPart) {
  class Refuses final : public Runner {
   public:
    void* allocate(std::uint64_t) override {
      return nullptr;
    }
    bool run(Call&) override {
      return false;
    }
  } runner;
  Tensor x(NPU_F32, {2, 2}, nullptr, 0);
  npu_flip_attrs attrs{};
  attrs.size = sizeof(attrs);
  attrs.dims = 1;
  Call call(NPU_KIND_FLIP, 0, "test");
  call.add_output(x.operand());
  call.add_input(x.operand());
  call.set_attrs(attrs);
  EXPECT_FALSE(run(runner, call.frame()));
  EXPECT_FALSE(has_decomposition(NPU_KIND_COPY));
}

}  // namespace
}  // namespace npu::compose
