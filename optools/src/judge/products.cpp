// SPDX-License-Identifier: Apache-2.0
// Products of two matrices. Almost every element passes with |ref| for a
// majorant; those that cancelled are few, and a dot product each.
#include "judge/products.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "core/verdict.h"

namespace optools {
namespace {

using c10::ScalarType;

// Up to this share of the elements, one by one is cheaper.
constexpr size_t kShare = 8;

struct Product {
  at::Tensor left;   // ..., rows, terms
  at::Tensor right;  // ..., columns, terms
  at::Tensor added;  // may be undefined
  double alpha = 1;
  double beta = 1;
};

at::Tensor tensor_of(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

double number_of(const c10::IValue& value) {
  return value.isScalar() && !value.isComplexDouble()
             ? value.toScalar().toDouble()
             : 1;
}

bool is_real_matrix(const at::Tensor& t, int64_t dims) {
  return t.defined() && t.dim() == dims && !t.is_complex() &&
         unit_roundoff(t.scalar_type()) != 0;
}

std::optional<Product> product_of(const HostCall& call) {
  const std::string name = base_name(*call.op);
  const bool adds = name == "addmm" || name == "baddbmm";
  if (call.results.size() != 1 || call.changed.size() != 0 ||
      (!adds && name != "mm" && name != "bmm")) {
    return std::nullopt;
  }
  const auto& in = call.inputs;
  const size_t first = adds ? 1 : 0;
  if (in.size() < first + 2) {
    return std::nullopt;
  }
  Product p;
  p.left = tensor_of(in[first]);
  p.right = tensor_of(in[first + 1]);
  const int64_t dims = name == "mm" || name == "addmm" ? 2 : 3;
  if (!is_real_matrix(p.left, dims) || !is_real_matrix(p.right, dims)) {
    return std::nullopt;
  }
  p.right = p.right.transpose(-2, -1);
  if (adds) {
    p.added = tensor_of(in[0]);
    for (size_t i = 3; i < in.size(); ++i) {
      const auto& argument = call.op->handle.schema().arguments()[i].name();
      if (argument == "alpha") {
        p.alpha = number_of(in[i]);
      } else if (argument == "beta") {
        p.beta = number_of(in[i]);
      }
    }
  }
  return p;
}

// In the dtype itself: digits do not matter. An infinity is no majorant.
template <class T>
inline __attribute__((always_inline)) double sum_in_lanes(
    const T* a, const T* b, int64_t count) {
  constexpr int kLanes = 32;
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      lanes[j] += std::fabs(a[i + j] * b[i + j]);
    }
  }
  double sum = 0;
  for (; i < count; ++i) {
    sum += std::fabs(a[i] * b[i]);
  }
  for (const T lane : lanes) {
    sum += lane;
  }
  return sum;
}

double sum_of_terms(const double* a, const double* b, int64_t count) {
  return sum_in_lanes(a, b, count);
}

double sum_plain(const float* a, const float* b, int64_t count) {
  return sum_in_lanes(a, b, count);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) double sum_avx2(
    const float* a, const float* b, int64_t count) {
  return sum_in_lanes(a, b, count);
}
double sum_of_terms(const float* a, const float* b, int64_t count) {
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  return wide ? sum_avx2(a, b, count) : sum_plain(a, b, count);
}
#else
double sum_of_terms(const float* a, const float* b, int64_t count) {
  return sum_plain(a, b, count);
}
#endif

template <class T>
void fill(
    const Product& p,
    ScalarType dtype,
    const std::vector<int64_t>& elements,
    double* out) {
  const at::Tensor left = p.left.to(dtype).contiguous();
  const at::Tensor right = p.right.to(dtype).contiguous();
  const T* a = left.const_data_ptr<T>();
  const T* b = right.const_data_ptr<T>();
  const int64_t rows = left.size(-2);
  const int64_t columns = right.size(-2);
  const int64_t terms = left.size(-1);
  for (const int64_t at : elements) {
    const int64_t row = at / columns;  // of all matrices in a stack
    const int64_t column = at % columns + row / rows * columns;
    out[at] = std::fabs(p.alpha) *
              sum_of_terms(a + row * terms, b + column * terms, terms);
  }
}

// Sizes of all rows of a stack of matrices.
std::vector<double> row_sizes(const at::Tensor& matrix) {
  const at::Tensor wide = matrix.to(ScalarType::Float).contiguous();
  const auto* values = wide.const_data_ptr<float>();
  const int64_t terms = wide.size(-1);
  std::vector<double> sizes(wide.numel() / terms);
  for (size_t row = 0; row < sizes.size(); ++row) {
    const float* begin = values + static_cast<int64_t>(row) * terms;
    double sum = 0;
    for (int64_t k = 0; k < terms; ++k) {
      sum += static_cast<double>(begin[k]) * begin[k];
    }
    sizes[row] = std::sqrt(sum);
  }
  return sizes;
}

// How many elements are measured by their own majorant.
constexpr size_t kMeasured = 32;

// Of `elements` those furthest off by the sizes of their row and column.
std::vector<int64_t> furthest_off(
    const Product& p,
    const std::vector<int64_t>& elements,
    const double* got,
    const double* reference) {
  const auto left = row_sizes(p.left);
  const auto right = row_sizes(p.right);
  const int64_t rows = p.left.size(-2);
  const int64_t columns = p.right.size(-2);
  std::vector<std::pair<double, int64_t>> found;
  for (const int64_t at : elements) {
    const int64_t row = at / columns;
    const int64_t column = at % columns + row / rows * columns;
    const double size = left[row] * right[column];
    const double off = std::fabs(got[at] - reference[at]);
    if (std::isfinite(off) && size > 0) {
      found.emplace_back(-off / size, at);
    }
  }
  const auto count = std::min(found.size(), kMeasured);
  std::partial_sort(found.begin(), found.begin() + count, found.end());
  std::vector<int64_t> chosen;
  for (size_t i = 0; i < count; ++i) {
    chosen.push_back(found[i].second);
  }
  return chosen;
}

}  // namespace

bool is_matrix_product(const HostCall& call) {
  return product_of(call).has_value();
}

at::Tensor product_majorant(
    const HostCall& call,
    const at::Tensor& reference,
    const std::vector<int64_t>& elements) {
  const auto p = product_of(call);
  const auto count = static_cast<size_t>(reference.numel());
  if (!p || elements.size() * kShare > count || p->left.numel() == 0 ||
      p->left.numel() / p->left.size(-1) * p->right.size(-2) !=
          reference.numel()) {
    return {};
  }
  at::Tensor found = at::zeros(reference.sizes(), ScalarType::Double);
  auto* out = found.mutable_data_ptr<double>();
  const bool wide = p->left.scalar_type() == ScalarType::Double ||
                    p->right.scalar_type() == ScalarType::Double;
  if (wide) {
    fill<double>(*p, ScalarType::Double, elements, out);
  } else {
    fill<float>(*p, ScalarType::Float, elements, out);
  }
  if (p->added.defined()) {
    found.add_(p->added.to(ScalarType::Double).abs(), std::fabs(p->beta));
  }
  return found;
}

std::optional<ProductError> worst_by_majorant(
    const HostCall& call,
    const at::Tensor& got,
    const at::Tensor& reference,
    int64_t terms,
    double limit) {
  const auto p = product_of(call);
  if (!p || p->left.numel() == 0 || got.numel() != reference.numel() ||
      p->left.numel() / p->left.size(-1) * p->right.size(-2) !=
          reference.numel()) {
    return std::nullopt;
  }
  const auto elements = elements_over(got, reference, terms, limit);
  const at::Tensor wide = got.to(ScalarType::Double).contiguous();
  const at::Tensor truth = reference.contiguous();
  const auto* values = wide.const_data_ptr<double>();
  const auto* truths = truth.const_data_ptr<double>();
  const auto chosen = furthest_off(*p, elements, values, truths);
  ProductError worst{-1, -1};
  const at::Tensor left = p->left.to(ScalarType::Double).contiguous();
  const at::Tensor right = p->right.to(ScalarType::Double).contiguous();
  const at::Tensor added = p->added.defined() ? p->added.to(ScalarType::Double)
                                                    .expand(reference.sizes())
                                                    .contiguous()
                                              : at::Tensor();
  const int64_t rows = left.size(-2);
  const int64_t columns = right.size(-2);
  const int64_t width = left.size(-1);
  for (const int64_t at : chosen) {
    const int64_t row = at / columns;
    const int64_t column = at % columns + row / rows * columns;
    double m = std::fabs(p->alpha) *
               sum_of_terms(
                   left.const_data_ptr<double>() + row * width,
                   right.const_data_ptr<double>() + column * width,
                   width);
    if (added.defined()) {
      m += std::fabs(p->beta * added.const_data_ptr<double>()[at]);
    }
    const double e =
        element_error(got.scalar_type(), terms, values[at], truths[at], m);
    if (e > worst.e) {
      worst = {at, e};
    }
  }
  return worst.at < 0 ? std::nullopt : std::optional(worst);
}

}  // namespace optools
