// SPDX-License-Identifier: Apache-2.0
// A decomposition gives what the host driver's own kernel of the kind gives.
#include "compose/decompose_test.h"

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

// ---- tensors without dimensions, without elements and of one element ----

TEST(Compose, FlipAndRollAtEdges) {
  for (const Sizes& sizes :
       {Sizes{}, Sizes{1}, Sizes{0}, Sizes{3, 0}, Sizes{1, 1}}) {
    npu_flip_attrs flip{};
    flip.dims = 1;  // dimension 0, which a tensor without dimensions has too
    const Spec x{NPU_F32, sizes};
    const auto copied = [&](const std::vector<Operand>& got) {
      std::mt19937 random(NPU_KIND_FLIP * 31);
      const Operand given(x, random);
      for (std::int64_t i = 0; i < given.numel(); ++i) {
        EXPECT_EQ(got[0].get(i), given.get(i)) << sizes.size();
      }
    };
    copied(decomposed(NPU_KIND_FLIP, 0, {x}, {x}, flip));
    if (sizes.empty()) {
      continue;
    }
    npu_roll_attrs roll{};
    roll.n = 1;
    roll.shifts[0] = 5;
    const auto rolled = decomposed(NPU_KIND_ROLL, 0, {x}, {x}, roll);
    EXPECT_EQ(rolled.size(), 1u);
  }
}

TEST(Compose, IsinOfNothing) {
  const Spec found{NPU_BOOL, {3}};
  for (const std::uint32_t invert : {0u, 1u}) {
    npu_isin_attrs attrs{};
    attrs.invert = invert;
    const auto got = decomposed(
        NPU_KIND_ISIN, 0, {found}, {{NPU_I64, {3}}, {NPU_I64, {0}}}, attrs);
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(got[0].get(i), invert);
    }
    decomposed(
        NPU_KIND_ISIN,
        0,
        {{NPU_BOOL, {0}}},
        {{NPU_I64, {0}}, {NPU_I64, {3}}},
        attrs);
  }
}

TEST(Compose, WeightNormOfOneElementAndOfNone) {
  const Spec one{NPU_F32, {1, 1}, Values::kUnit};
  const auto got = decomposed(
      NPU_KIND_WEIGHT_NORM, 0, {one, one}, {one, one}, npu_weight_norm_attrs{});
  EXPECT_GT(got[1].get(0), 0);
  for (const Sizes& sizes : {Sizes{0, 3}, Sizes{3, 0}}) {
    const Spec v{NPU_F32, sizes};
    const Spec g{NPU_F32, {sizes[0], 1}};
    decomposed(
        NPU_KIND_WEIGHT_NORM, 0, {v, g}, {v, g}, npu_weight_norm_attrs{});
    decomposed(
        NPU_KIND_WEIGHT_NORM_GRAD,
        0,
        {v, g},
        {v, v, g, g},
        npu_weight_norm_grad_attrs{});
  }
}

TEST(Compose, LossesAtEdges) {
  for (const Sizes& sizes : {Sizes{}, Sizes{1}, Sizes{0}, Sizes{2, 0}}) {
    for (std::uint32_t code = 0; code < NPU_LOSS_CODES; ++code) {
      for (std::uint32_t reduction = 0; reduction < 3; ++reduction) {
        const bool none = reduction == NPU_LOSS_REDUCTION_NONE;
        const bool sign = code == NPU_LOSS_SOFT_MARGIN;
        const Spec x{NPU_F32, sizes, Values::kUnit};
        const Spec target{NPU_F32, sizes, sign ? Values::kSign : Values::kUnit};
        const Spec out{NPU_F32, none ? sizes : Sizes{}};
        npu_loss_attrs attrs{};
        attrs.a = 0.3;
        attrs.reduction = reduction;
        const auto got =
            decomposed(NPU_KIND_LOSS, code, {out}, {x, target, {}, {}}, attrs);
        const bool empty = !sizes.empty() && sizes.back() == 0;
        if (empty && !none) {
          const double value = got[0].get(0);
          EXPECT_TRUE(
              reduction == NPU_LOSS_REDUCTION_MEAN ? std::isnan(value)
                                                   : value == 0)
              << value;
        } else if (got[0].numel() == 1) {
          EXPECT_TRUE(std::isfinite(got[0].get(0)));
        }
        npu_loss_grad_attrs grad{};
        grad.a = 0.3;
        grad.reduction = reduction;
        decomposed(
            NPU_KIND_LOSS_GRAD, code, {x}, {out, x, target, {}, {}}, grad);
      }
    }
  }
}

TEST(Compose, MarginLossesOfNoSamples) {
  for (std::uint32_t code = 0; code < 2; ++code) {
    for (std::uint32_t reduction = 0; reduction < 3; ++reduction) {
      const bool none = reduction == NPU_MARGIN_REDUCTION_NONE;
      const bool multilabel = code == NPU_MARGIN_MULTILABEL_MARGIN;
      const Spec x{NPU_F32, {0, 5}};
      const Spec out{NPU_F32, none ? Sizes{0} : Sizes{}};
      const Spec target{NPU_I64, multilabel ? Sizes{0, 5} : Sizes{0}};
      const Spec weight =
          multilabel ? Spec{} : Spec{NPU_F32, {5}, Values::kUnit};
      npu_margin_attrs attrs{};
      attrs.p = 2;
      attrs.reduction = reduction;
      const auto got = decomposed(
          NPU_KIND_MARGIN,
          code,
          {out, multilabel ? x : Spec{}},
          {x, target, weight},
          attrs);
      if (!none) {
        const double value = got[0].get(0);
        EXPECT_TRUE(
            reduction == NPU_MARGIN_REDUCTION_MEAN ? std::isnan(value)
                                                   : value == 0)
            << value;
      }
      npu_margin_grad_attrs grad{};
      grad.p = 2;
      grad.reduction = reduction;
      decomposed(
          NPU_KIND_MARGIN_GRAD,
          code,
          {x},
          {out, x, target, weight, multilabel ? x : Spec{}},
          grad);
    }
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
