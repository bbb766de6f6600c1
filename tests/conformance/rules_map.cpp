// SPDX-License-Identifier: Apache-2.0
// Rules of the kinds that work element by element, lists included.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "rules.h"

namespace npu::kit {
namespace {

using Names = std::set<std::string>;

// Results that are yes or no.
const Names kPredicates = {
    "isnan",
    "isinf",
    "isfinite",
    "isposinf",
    "isneginf",
    "signbit",
    "logical_not",
    "logical_and",
    "logical_or",
    "logical_xor",
    "isclose"};
// Results that are real where the input is complex.
const Names kReal = {"abs", "angle", "real", "imag"};
// Integers in, integers out; every other code makes them floating point.
const Names kOnIntegers = {
    "abs",
    "neg",
    "sign",
    "sgn",
    "ceil",
    "floor",
    "round",
    "trunc",
    "square",
    "relu",
    "relu6",
    "bitwise_not",
    "conj",
    "real",
    "clamp",
    "threshold",
    "hardtanh",
    "pow",
    "affine",
    "nan_to_num",
    "add",
    "sub",
    "mul",
    "div_trunc",
    "div_floor",
    "fmod",
    "remainder",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "heaviside",
    "gcd",
    "lcm",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "shift_left",
    "shift_right",
    "where",
    "addcmul",
    "mul_add",
    "squared_difference"};

struct Domain {
  const char* code;
  double low;
  double high;
};
constexpr Domain kDomains[] = {
    {"sqrt", 0.1, 9},
    {"rsqrt", 0.1, 9},
    {"log", 0.1, 9},
    {"log2", 0.1, 9},
    {"log10", 0.1, 9},
    {"log1p", -0.9, 9},
    {"asin", -1, 1},
    {"acos", -1, 1},
    {"atanh", -0.9, 0.9},
    {"acosh", 1.1, 9},
    {"erfinv", -0.9, 0.9},
    {"ndtri", 0.05, 0.95},
    {"entr", 0.1, 3},
    {"lgamma", 0.2, 6},
    {"digamma", 0.2, 6},
    {"trigamma", 0.2, 6},
    {"reciprocal", 0.2, 5},
    {"logit", 0.05, 0.95},
    {"polygamma", 0.5, 5},
    {"rpow", -2, 2},
    {"bessel_y0", 0.2, 8},
    {"bessel_y1", 0.2, 8},
    {"tan", -1.2, 1.2},
    {"airy_ai", -3, 3},
    {"modified_bessel_k0", 0.2, 8},
    {"modified_bessel_k1", 0.2, 8},
    {"scaled_modified_bessel_k0", 0.2, 8},
    {"scaled_modified_bessel_k1", 0.2, 8},
};

// Codes that give a bool for bools; others count them as integers.
const Names kOnBool = {
    "bitwise_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "maximum",
    "minimum",
    "where"};

// Sets what integers and complex numbers become.
void settle_dtype(Draw& d, const char* in) {
  const std::string code = d.code();
  const npu_dtype main = d.natural(in);
  if (kPredicates.contains(code)) {
    d.dtype("out", NPU_BOOL);
  } else if (is_complex(main) && kReal.contains(code)) {
    d.dtype(
        "out",
        main == NPU_C128  ? NPU_F64
        : main == NPU_C64 ? NPU_F32
                          : NPU_F16);
  } else if (is_integer(main) && !kOnIntegers.contains(code)) {
    d.dtype("out", NPU_F32).compute(NPU_F32);
  } else if (main == NPU_BOOL && !kOnBool.contains(code)) {
    d.dtype("out", NPU_I64).compute(NPU_I64);
  }
}

void unary(Draw& d) {
  const Shape sizes = d.shape(0, 4);
  d.set("out", sizes).set("in", sizes);
  settle_dtype(d, "in");
  if (d.code_is("frexp")) {
    d.set("out2", sizes);
  }
  if (d.code_is("sinc")) {
    d.cancels(1);  // sin(pi x), where x is an integer and does not move
  }
  if (Names{"gelu", "gelu_tanh", "silu", "mish"}.contains(d.code())) {
    d.cancels(3);  // 1 + erf and its like, times the input
  }
  for (const Domain& each : kDomains) {
    if (d.code_is(each.code) && !is_complex(d.main())) {
      const bool whole = is_integer(d.main());
      const double low = whole ? std::max(std::ceil(each.low), 0.0) : each.low;
      d.range("in", low, std::max(low, each.high));
    }
  }
}

void unary_with(Draw& d) {
  struct Scalars {
    const char* code;
    std::vector<double> values;
  };
  static const std::vector<Scalars> kScalars = {
      {"clamp", {-1, 2}},
      {"threshold", {1, -2}},
      {"leaky_relu", {0.125}},
      {"elu", {1.5, 1, 1}},
      {"celu", {1.5}},
      {"hardtanh", {-1, 2}},
      {"hardshrink", {0.5}},
      {"softshrink", {0.5}},
      {"softplus", {1, 2}},
      {"pow", {3}},
      {"rpow", {2}},
      {"round_decimals", {1}},
      {"nan_to_num", {0, 5, -5}},
      {"logit", {0.125}},
      {"polygamma", {2}},
      {"affine", {2, -1}},
      {"cast_clamp", {}},
      {"fake_quantize", {0.125, 3, -20, 20}},
  };
  unary(d);
  static constexpr const char* kNames[] = {"a", "b", "c", "d"};
  for (const char* name : kNames) {
    d.no_scalar(name);
  }
  for (const Scalars& each : kScalars) {
    for (std::size_t i = 0; d.code_is(each.code) && i < each.values.size();
         ++i) {
      d.attr(kNames[i], each.values[i]);
    }
  }
}

void binary(Draw& d) {
  const Shape sizes = d.shape(0, 4);
  d.set("out", sizes).set("in", sizes).set("other", sizes);
  settle_dtype(d, "in");
  const std::string code = d.code();
  if (code == "complex" || code == "polar") {
    d.dtype("out", d.main() == NPU_F64 ? NPU_C128 : NPU_C64);
    if (d.main() != NPU_F32 && d.main() != NPU_F64) {
      d.impossible();
    }
  } else if (code == "masked_scale") {
    d.dtype("other", NPU_BOOL);
  } else if (code.starts_with("shift_")) {
    d.range("other", 0, 4);
  } else if (Names{"div", "div_trunc", "div_floor", "fmod", "remainder"}
                 .contains(code)) {
    d.range("other", 1, 5);
  } else if (code == "pow" || code == "igamma" || code == "igammac") {
    d.range("in", is_integer(d.main()) ? 1 : 0.2, 3).range("other", 0, 3);
  } else if (code == "zeta") {
    d.range("in", 2, 5).range("other", 1, 5);
  } else if (code == "xlogy" || code == "xlog1py") {
    d.range("other", is_integer(d.main()) ? 1 : 0.2, 5);
  } else if (code == "ldexp") {
    d.range("other", 0, 5);
  } else if (code.find("polynomial") != std::string::npos) {
    d.range("in", -1, 1).range("other", 0, 5).cancels(10);
  } else if (code.starts_with("gelu") || code.starts_with("silu")) {
    d.cancels(4);  // 1 + erf, 1 - tanh squared
  } else if (code == "sigmoid_grad" || code == "tanh_grad") {
    d.range("other", 0, 1);
  }
}

void compare(Draw& d) {
  const Shape sizes = d.shape(0, 4);
  d.set("in", sizes).set("other", sizes).dtype("out", NPU_BOOL);
  d.set("out", sizes);
}

void ternary(Draw& d) {
  const Shape sizes = d.shape(0, 4);
  const std::string code = d.code();
  d.set("out", sizes);
  if (code == "where") {
    d.dtype("x", NPU_BOOL).set("x", sizes).set("y", sizes).set("z", sizes);
    d.compute(d.main());
    return;
  }
  d.set("x", sizes);
  if (code == "isclose") {
    d.set("y", sizes).dtype("out", NPU_BOOL).attr("c", 1);
    return;
  }
  if (code == "clamp") {
    d.maybe("z", sizes).set("y", sizes);
    return;
  }
  d.set("y", sizes).set("z", sizes);
  if (code == "addcdiv") {
    d.range("z", 1, 4);
  }
  if (code == "prelu_grad" || code == "glu_grad") {
    d.set("out2", sizes);
  }
}

void multi_map(Draw& d) {
  std::vector<Shape> sizes;
  for (std::int64_t i = d.between(1, 4); i > 0; --i) {
    sizes.push_back(d.shape(1, 3));
  }
  d.list("out", sizes).list("x", sizes);
  for (const char* name : {"a", "b", "c", "d"}) {
    d.no_scalar(name);
  }
  if (d.code_is("unary")) {
    d.attr("op", NPU_UNARY_NEG);
  } else if (d.code_is("unary_with")) {
    d.attr("op", NPU_UNARY_WITH_AFFINE).attr("a", 2).attr("b", 1);
  } else if (d.code_is("binary")) {
    d.attr("op", d.coin() ? NPU_BINARY_ADD : NPU_BINARY_MUL);
    const std::vector<Shape> numbers(sizes.size());
    switch (d.between(0, 3)) {
      case 0:
        d.attr("a", 3);
        break;
      case 1:
        d.list("scalars", numbers);
        break;
      case 2:
        d.list("scalars", numbers).host_list("scalars");
        break;
      default:
        d.list("y", sizes);
    }
  } else if (d.code_is("ternary")) {
    d.attr("op", NPU_TERNARY_ADDCMUL).attr("a", 2);
    d.list("y", sizes).list("z", sizes);
  } else if (!d.code_is("copy")) {
    d.impossible();
  }
  if (d.main() == NPU_BOOL) {
    d.impossible();
  }
}

void multi_reduce(Draw& d) {
  std::vector<Shape> sizes;
  for (std::int64_t i = d.between(1, 4); i > 0; --i) {
    sizes.push_back(d.shape(1, 3));
  }
  const double orders[] = {1, 2, std::numeric_limits<double>::infinity()};
  d.attr("p", orders[d.between(0, 2)]).list("x", sizes);
  d.list("out", std::vector<Shape>(sizes.size()));
  if (d.code_is("norm")) {
    d.maybe("total", {});
  }
  d.terms(400);
}

constexpr Rule kRules[] = {
    {"unary", unary},
    {"unary_with", unary_with},
    {"binary", binary},
    {"compare", compare},
    {"ternary", ternary},
    {"multi_map", multi_map},
    {"multi_reduce", multi_reduce},
};

}  // namespace

const std::span<const Rule> kMapRules = kRules;

}  // namespace npu::kit
