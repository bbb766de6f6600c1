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

// How many elements are measured by their own majorant.
constexpr size_t kMeasured = 32;

// Both factors with their terms side by side, and where an element's are.
template <class T>
struct Factors {
  Factors(const Product& p, ScalarType dtype)
      : left(p.left.to(dtype).contiguous()),
        right(p.right.to(dtype).contiguous()),
        rows(left.size(-2)),
        columns(right.size(-2)),
        terms(left.size(-1)) {}
  const T* row(int64_t at) const {
    return left.const_data_ptr<T>() + at / columns * terms;
  }
  const T* column(int64_t at) const {
    return right.const_data_ptr<T>() + column_number(at) * terms;
  }
  int64_t column_number(int64_t at) const {  // of all matrices in a stack
    return at % columns + at / columns / rows * columns;
  }
  static std::vector<double> sizes(const at::Tensor& matrix) {
    const int64_t terms = matrix.size(-1);
    const T* values = matrix.const_data_ptr<T>();
    std::vector<double> found(matrix.numel() / terms);
    for (double& size : found) {
      size = std::sqrt(sum_of_terms(values, values, terms));
      values += terms;
    }
    return found;
  }
  at::Tensor left, right;
  int64_t rows, columns, terms;
};

// Of `elements` those furthest off by the sizes of their row and column.
template <class T, class V>
std::vector<int64_t> furthest_off(
    const Factors<T>& factors,
    const std::vector<int64_t>& elements,
    const V* got,
    const double* truth) {
  const auto left = Factors<T>::sizes(factors.left);
  const auto right = Factors<T>::sizes(factors.right);
  // A heap of the furthest so far, the nearest of them on top.
  std::vector<std::pair<double, int64_t>> found;
  int64_t row = 0;  // elements come in order: counting is cheaper than dividing
  for (const int64_t at : elements) {
    while (at >= (row + 1) * factors.columns) {
      ++row;
    }
    const int64_t column =
        at - row * factors.columns + row / factors.rows * factors.columns;
    const double size = left[row] * right[column];
    const double off = std::fabs(static_cast<double>(got[at]) - truth[at]);
    if (!std::isfinite(off) || size <= 0 ||
        (found.size() == kMeasured && off <= -found.front().first * size)) {
      continue;
    }
    if (found.size() == kMeasured) {
      std::pop_heap(found.begin(), found.end());
      found.pop_back();
    }
    found.emplace_back(-off / size, at);
    std::push_heap(found.begin(), found.end());
  }
  std::vector<int64_t> chosen;
  for (const auto& [off, at] : found) {
    chosen.push_back(at);
  }
  return chosen;
}

template <class T>
std::optional<ProductError> measure_worst(
    const Product& p,
    ScalarType dtype,
    const at::Tensor& got,
    const at::Tensor& reference,
    int64_t terms,
    double limit) {
  const Factors<T> factors(p, dtype);
  const auto elements = elements_over(got, reference, terms, limit);
  const at::Tensor values = got.to(dtype).contiguous();
  const at::Tensor truth = reference.contiguous();
  const T* v = values.const_data_ptr<T>();
  const double* r = truth.const_data_ptr<double>();
  const at::Tensor added =
      p.added.defined() ? p.added.expand(reference.sizes()) : at::Tensor();
  ProductError worst{-1, -1};
  for (const int64_t at : furthest_off(factors, elements, v, r)) {
    double m = std::fabs(p.alpha) *
               sum_of_terms(factors.row(at), factors.column(at), factors.terms);
    if (added.defined()) {
      // A few of them: the tensor has any strides and any dtype.
      at::Tensor one = added;
      int64_t rest = at;
      for (int64_t d = added.dim() - 1; d >= 0; --d) {
        one = one.select(d, rest % added.size(d));
        rest /= added.size(d);
      }
      m += std::fabs(p.beta * one.item().toDouble());
    }
    const double e = element_error(
        got.scalar_type(), terms, static_cast<double>(v[at]), r[at], m);
    if (e > worst.e) {
      worst = {at, e};
    }
  }
  return worst.at < 0 ? std::nullopt : std::optional(worst);
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
  const auto is_wide = [](const at::Tensor& t) {
    return t.scalar_type() == ScalarType::Double;
  };
  if (is_wide(p->left) || is_wide(p->right) || is_wide(got)) {
    return measure_worst<double>(
        *p, ScalarType::Double, got, reference, terms, limit);
  }
  return measure_worst<float>(
      *p, ScalarType::Float, got, reference, terms, limit);
}

}  // namespace optools
