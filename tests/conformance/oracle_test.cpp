// SPDX-License-Identifier: Apache-2.0
// Group oracle: the reference itself, against answers worked out by hand, and
// the verdict against numbers that are a little off.
#include <cmath>

#include "case.h"
#include "judge.h"

namespace npu::kit {
namespace {

// A float64 case built by hand: operands in the kind's order.
class Hand {
 public:
  Hand(std::uint32_t slot, std::uint32_t code = 0) {
    case_.kind = npu_kind_of(slot);
    case_.code = code;
    case_.operands.resize(case_.kind->n_out + case_.kind->n_in);
    for (std::size_t i = 0; i < case_.operands.size(); ++i) {
      case_.operands[i].info = &case_.kind->operands[i];
    }
    case_.lists.resize(case_.kind->n_lists);
  }
  Hand& out(const char* name, Shape sizes, npu_dtype dtype = NPU_F64) {
    place(name, std::move(sizes), dtype);
    return *this;
  }
  Hand& in(
      const char* name,
      Shape sizes,
      const std::vector<double>& values,
      npu_dtype dtype = NPU_F64) {
    Operand& operand = place(name, std::move(sizes), dtype);
    for (const double number : values) {
      const bool whole = !is_floating(dtype);
      operand.values.push_back(
          {whole, false, static_cast<std::int64_t>(number), number});
    }
    return *this;
  }
  template <class Attrs>
  Hand& attrs(Attrs value) {
    value.size = sizeof(value);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    case_.attrs.assign(bytes, bytes + sizeof(value));
    return *this;
  }
  // The first output; empty when the host driver has no such kernel.
  std::vector<double> run(bool& there) {
    const Outcome outcome = run_case(oracle(), case_);
    there = !outcome.declined;
    EXPECT_TRUE(outcome.ok() || outcome.declined)
        << outcome.reason << outcome.broken;
    std::vector<double> out;
    for (const Value& value :
         outcome.values.empty() ? std::vector<Value>{} : outcome.values[0]) {
      out.push_back(value.number.real());
    }
    return out;
  }
  void expect(const std::vector<double>& right, double within = 1e-14) {
    bool there = false;
    const std::vector<double> got = run(there);
    if (!there) {
      GTEST_SKIP() << kNotDeclared << case_.kind->name;
    }
    ASSERT_EQ(got.size(), right.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], right[i], within) << "element " << i;
    }
  }

 private:
  Operand& place(const char* name, Shape sizes, npu_dtype dtype) {
    Operand& operand = case_.operand(name);
    operand.dtype = dtype;
    operand.strides = contiguous_strides(sizes);
    operand.sizes = std::move(sizes);
    return operand;
  }

  Case case_;
};

npu_scalar scalar(double value) {
  npu_scalar out{};
  out.kind = NPU_SCALAR_FLOAT;
  out.re = value;
  out.i = static_cast<std::int64_t>(value);
  return out;
}

TEST(oracle, Gemm) {
  npu_gemm_attrs attrs{};
  attrs.alpha = scalar(2);
  attrs.beta = scalar(1);
  Hand(NPU_KIND_GEMM)
      .out("out", {2, 2})
      .in("a", {2, 3}, {1, 2, 3, 4, 5, 6})
      .in("b", {3, 2}, {1, 0, 0, 1, 1, 1})
      .in("c", {2, 2}, {1, 1, 1, 1})
      .attrs(attrs)
      .expect({9, 11, 21, 23});
}

TEST(oracle, Softmax) {
  npu_softmax_attrs attrs{};
  attrs.dim = 1;
  const double e = std::exp(1.0);
  Hand(NPU_KIND_SOFTMAX)
      .out("out", {1, 3})
      .in("in", {1, 3}, {0, 1, 0})
      .attrs(attrs)
      .expect({1 / (2 + e), e / (2 + e), 1 / (2 + e)});
}

TEST(oracle, LayerNorm) {
  npu_layer_norm_attrs attrs{};
  attrs.axes = 1;
  Hand(NPU_KIND_LAYER_NORM)
      .out("out", {1, 2})
      .in("in", {1, 2}, {1, 3})
      .attrs(attrs)
      .expect({-1, 1});
}

TEST(oracle, Conv) {
  npu_conv_attrs attrs{};
  attrs.spatial = 1;
  attrs.groups = 1;
  for (int i = 0; i < 3; ++i) {
    attrs.stride[i] = attrs.dilation[i] = 1;
  }
  attrs.padding[0] = 1;
  Hand(NPU_KIND_CONV)
      .out("out", {1, 1, 3})
      .in("in", {1, 1, 3}, {1, 2, 4})
      .in("weight", {1, 1, 3}, {1, 10, 100})
      .attrs(attrs)
      .expect({210, 421, 42});
}

TEST(oracle, Reduce) {
  npu_reduce_attrs attrs{};
  attrs.dims = 2;
  attrs.correction = 1;
  Hand(NPU_KIND_REDUCE, NPU_REDUCE_VAR)
      .out("out", {2})
      .in("in", {2, 2}, {1, 3, 2, 2})
      .attrs(attrs)
      .expect({2, 0});
}

TEST(oracle, Scan) {
  npu_scan_attrs attrs{};
  Hand(NPU_KIND_SCAN, NPU_SCAN_CUMSUM)
      .out("out", {4})
      .in("in", {4}, {1, 2, 3, 4})
      .attrs(attrs)
      .expect({1, 3, 6, 10});
}

TEST(oracle, Sort) {
  npu_sort_attrs attrs{};
  attrs.descending = 1;
  Hand(NPU_KIND_SORT)
      .out("values", {4})
      .in("in", {4}, {2, 9, -1, 4})
      .attrs(attrs)
      .expect({9, 4, 2, -1});
}

TEST(oracle, Gather) {
  npu_gather_attrs attrs{};
  attrs.dim = 1;
  Hand(NPU_KIND_GATHER)
      .out("out", {2, 1})
      .in("in", {2, 2}, {1, 2, 3, 4})
      .in("index", {2, 1}, {1, 0}, NPU_I64)
      .attrs(attrs)
      .expect({2, 3});
}

TEST(oracle, Unary) {
  const double x = 0.5;
  const struct {
    std::uint32_t code;
    double right;
  } rows[] = {
      {NPU_UNARY_EXP, std::exp(x)},
      {NPU_UNARY_TANH, std::tanh(x)},
      {NPU_UNARY_ERF, std::erf(x)},
      {NPU_UNARY_SIGMOID, 1 / (1 + std::exp(-x))},
      {NPU_UNARY_GELU, 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)))},
      {NPU_UNARY_LGAMMA, std::lgamma(x)},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(npu_code_name(NPU_KIND_UNARY, row.code));
    Hand(NPU_KIND_UNARY, row.code)
        .out("out", {1})
        .in("in", {1}, {x})
        .expect({row.right});
  }
}

TEST(oracle, Pool) {
  npu_pool_attrs attrs{};
  attrs.spatial = 1;
  for (int i = 0; i < 3; ++i) {
    attrs.kernel[i] = attrs.stride[i] = attrs.dilation[i] = 1;
  }
  attrs.kernel[0] = attrs.stride[0] = 2;
  Hand(NPU_KIND_POOL, NPU_POOL_AVG)
      .out("out", {1, 1, 2})
      .in("in", {1, 1, 4}, {1, 3, 5, 9})
      .attrs(attrs)
      .expect({2, 7});
}

TEST(oracle, Nll) {
  npu_nll_attrs attrs{};
  attrs.ignore_index = -100;
  attrs.reduction = 1;
  Hand(NPU_KIND_NLL)
      .out("out", {})
      .out("total_weight", {})
      .in("in", {2, 2}, {-1, -2, -3, -4})
      .in("target", {2}, {1, 0}, NPU_I64)
      .attrs(attrs)
      .expect({2.5});
}

TEST(oracle, Attention) {
  npu_attention_attrs attrs{};
  attrs.scale = 1;
  attrs.window_left = attrs.window_right = -1;
  attrs.max_q = 1;
  attrs.max_k = 2;
  const double e = std::exp(1.0);
  Hand(NPU_KIND_ATTENTION)
      .out("out", {1, 1, 1, 1})
      .in("q", {1, 1, 1, 1}, {1})
      .in("k", {1, 1, 2, 1}, {0, 1})
      .in("v", {1, 1, 2, 1}, {10, 20})
      .attrs(attrs)
      .expect({(10 + 20 * e) / (1 + e)}, 1e-12);
}

// The verdict lets rounding pass and nothing else.
TEST(oracle, Verdict) {
  const double x = 1.0 / 3;
  const double rounded = static_cast<float>(x);
  EXPECT_LE(error_units(NPU_F32, rounded, x, 0, 1), 1);
  EXPECT_GT(error_units(NPU_F32, rounded * (1 + 1e-6), x, 0, 1), 1);
  EXPECT_GT(error_units(NPU_F32, 0, x, 0, 1), 1);
  EXPECT_EQ(error_units(NPU_F32, NAN, NAN, 0, 1), 0);
  EXPECT_GT(error_units(NPU_F32, NAN, x, 0, 1), 1);
  EXPECT_GT(error_units(NPU_F32, INFINITY, x, 0, 1), 1);
  // A sum of large terms that cancel may be off by their roundoff.
  EXPECT_LE(error_units(NPU_F32, 1e-5, 0, 100, 4), 1);
  EXPECT_GT(error_units(NPU_F32, 1e-3, 0, 100, 4), 1);
}

}  // namespace
}  // namespace npu::kit
