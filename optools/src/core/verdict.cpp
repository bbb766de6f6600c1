// SPDX-License-Identifier: Apache-2.0
// Is a result right?
#include "core/verdict.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <limits>

namespace optools {
namespace {

using c10::ScalarType;

struct Precision {
  double roundoff;
  double smallest;  // subnormal
  double largest;
};

// Of the parts of a complex number, its own.
Precision precision_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Double:
    case ScalarType::ComplexDouble:
      return {0x1p-53, 0x1p-1074, std::numeric_limits<double>::max()};
    case ScalarType::Float:
    case ScalarType::ComplexFloat:
      return {0x1p-24, 0x1p-149, std::numeric_limits<float>::max()};
    case ScalarType::BFloat16:
      return {0x1p-8, 0x1p-133, 0x1.FEp127};
    case ScalarType::Half:
    case ScalarType::ComplexHalf:
      return {0x1p-11, 0x1p-24, 65504};
    case ScalarType::Float8_e4m3fn:
      return {0x1p-4, 0x1p-9, 448};
    case ScalarType::Float8_e4m3fnuz:
      return {0x1p-4, 0x1p-10, 240};
    case ScalarType::Float8_e5m2:
      return {0x1p-3, 0x1p-16, 57344};
    case ScalarType::Float8_e5m2fnuz:
      return {0x1p-3, 0x1p-17, 57344};
    default:
      return {0, 0, std::numeric_limits<double>::max()};
  }
}

bool is_wide(ScalarType dtype) {
  return dtype == ScalarType::Double || dtype == ScalarType::ComplexDouble;
}

Allowance allowance_of(
    ScalarType dtype, int64_t terms, const Tolerance& tolerance) {
  const auto precision = precision_of(dtype);
  const double u_acc = accumulator_roundoff(dtype);
  Allowance a;
  a.out =
      2 * precision.roundoff +
      1.5 * std::sqrt(static_cast<double>(std::max<int64_t>(terms, 1))) * u_acc;
  a.acc = 8 * u_acc;
  a.floor = precision.smallest;
  // What rounds down to the largest number is still within the range.
  a.largest = precision.largest * (1 + precision.roundoff / 2);
  a.scale = is_wide(dtype) ? 0.5 : 1;
  a.atol = tolerance.atol;
  a.rtol = tolerance.rtol;
  return a;
}

bool is_infinite(const c10::complex<double>& z) {
  return std::isinf(z.real()) || std::isinf(z.imag());
}

// An infinity on either axis is one, whatever the other part is (C99); two of
// them differ where an axis has both signs.
double infinite_modulus(
    const c10::complex<double>& got, const c10::complex<double>& reference) {
  const auto opposed = [](double a, double b) {
    return std::isinf(a) && std::isinf(b) && a != b;
  };
  return is_infinite(reference) && (opposed(got.real(), reference.real()) ||
                                    opposed(got.imag(), reference.imag()))
             ? -kInfinity
             : kInfinity;
}

// E is of the modulus: a complex number becomes the reference's modulus, and
// that plus the modulus of the difference.
Tally tally_complex(
    const at::Tensor& got,
    const at::Tensor& reference,
    const Majorant& majorant,
    const Allowance& a) {
  const auto* g = got.const_data_ptr<c10::complex<double>>();
  const auto* r = reference.const_data_ptr<c10::complex<double>>();
  const int64_t count = got.numel();
  std::vector<double> there(count);
  std::vector<double> here(count);
  double dot = 0, got2 = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double size = std::hypot(r[i].real(), r[i].imag());
    const double apart =
        std::hypot(g[i].real() - r[i].real(), g[i].imag() - r[i].imag());
    there[i] = size;  // an infinity even beside a NaN, as hypot has it
    here[i] = is_infinite(g[i])   ? infinite_modulus(g[i], r[i])
              : is_infinite(r[i]) ? std::hypot(g[i].real(), g[i].imag())
              : g[i] == r[i]      ? size
                                  : size + apart;
    dot += g[i].real() * r[i].real() + g[i].imag() * r[i].imag();
    got2 += std::norm(std::complex<double>(g[i].real(), g[i].imag()));
  }
  Tally t = tally(here.data(), there.data(), majorant, count, a);
  t.dot = dot;
  t.got2 = got2;
  return t;
}

at::Tensor plain(const at::Tensor& t, ScalarType dtype) {
  return t.to(dtype).resolve_conj().resolve_neg().contiguous();
}

// Calls `body` with the elements of a real tensor in C order, in the dtype
// they are in where the loops know it.
template <class F>
auto with_elements(const at::Tensor& t, F&& body) {
  const at::Tensor dense = t.resolve_neg().contiguous();
  switch (t.scalar_type()) {
    case ScalarType::Float:
      return body(dense.const_data_ptr<float>());
    case ScalarType::BFloat16:
      return body(dense.const_data_ptr<c10::BFloat16>());
    case ScalarType::Half:
      return body(dense.const_data_ptr<c10::Half>());
    default:
      return body(dense.to(ScalarType::Double).const_data_ptr<double>());
  }
}

Tally tally_numbers(
    const at::Tensor& got,
    const at::Tensor& reference,
    const at::Tensor& majorant,
    const Allowance& a) {
  at::Tensor bound;
  Majorant m;
  if (majorant.defined() && majorant.scalar_type() == ScalarType::Float) {
    bound = plain(majorant, ScalarType::Float);
    m.narrow = bound.const_data_ptr<float>();
  } else if (majorant.defined()) {
    bound = plain(majorant, ScalarType::Double);
    m.wide = bound.const_data_ptr<double>();
  }
  if (c10::isComplexType(got.scalar_type())) {
    return tally_complex(
        plain(got, ScalarType::ComplexDouble),
        plain(reference, ScalarType::ComplexDouble),
        m,
        a);
  }
  const at::Tensor truth = plain(reference, ScalarType::Double);
  const auto* r = truth.const_data_ptr<double>();
  return with_elements(got, [&](const auto* values) {
    return tally(values, r, m, got.numel(), a);
  });
}

c10::complex<double> element(const at::Tensor& t, c10::IntArrayRef index) {
  at::Tensor one = t;
  for (const auto i : index) {
    one = one.select(0, i);
  }
  return one.to(ScalarType::ComplexDouble).item().toComplexDouble();
}

void note_worst(
    Judgement& j, const at::Tensor& got, const at::Tensor& reference) {
  int64_t rest =
      j.verdict == Verdict::kOverflow ? j.tally.overflow_at : j.tally.worst;
  if (rest < 0) {
    return;
  }
  j.worst.resize(got.dim());
  for (int64_t d = got.dim() - 1; d >= 0; --d) {
    j.worst[d] = rest % got.size(d);
    rest /= got.size(d);
  }
  j.got = element(got, j.worst);
  j.expected = element(reference, j.worst);
}

std::string must_be_equal(const Judgement& j) {
  return std::to_string(j.tally.over) + " of " + std::to_string(j.elements) +
         " differ, and have to be equal" +
         (j.tally.nan_differs != 0 ? "; NaN is lost or new" : "");
}

// Integers, booleans: the same bits. Raw bytes, so that no width is lost.
void judge_exact(
    Judgement& j, const at::Tensor& got, const at::Tensor& reference) {
  const at::Tensor a = got.contiguous();
  const at::Tensor b = reference.to(got.scalar_type()).contiguous();
  const auto size = static_cast<size_t>(a.element_size());
  const auto* x = static_cast<const char*>(a.const_data_ptr());
  const auto* y = static_cast<const char*>(b.const_data_ptr());
  j.tally.finite = j.elements;
  if (j.elements == 0 || std::equal(x, x + size * j.elements, y)) {
    return;
  }
  for (int64_t i = 0; i < j.elements; ++i) {
    if (!std::equal(x + i * size, x + (i + 1) * size, y + i * size)) {
      ++j.tally.over;
      ++j.tally.not_close;
      j.tally.worst = j.tally.worst < 0 ? i : j.tally.worst;
    }
  }
  j.tally.e = std::numeric_limits<double>::infinity();
  j.tally.max_abs = a.to(ScalarType::Double)
                        .sub(b.to(ScalarType::Double))
                        .abs()
                        .max()
                        .item()
                        .toDouble();
  j.verdict = Verdict::kError;
  j.reason = must_be_equal(j);
}

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

}  // namespace

void decide(Judgement& j) {
  const auto& t = j.tally;
  const auto many =
      std::max<int64_t>(1, static_cast<int64_t>(kOverShare * j.elements));
  if (t.nan_differs != 0 || t.inf_differs != 0) {
    j.verdict = Verdict::kError;
    j.reason = std::to_string(t.nan_differs) + " NaN and " +
               std::to_string(t.inf_differs) +
               " infinities where the reference has none, or the reverse";
  } else if (t.e > kWarnE || t.over > many) {
    j.verdict = Verdict::kError;
    j.reason = "the error is " + short_number(t.e) +
               " times what rounding allows, in " + std::to_string(t.over) +
               " of " + std::to_string(j.elements) + " elements";
  } else if (t.overflowed != 0) {
    j.verdict = Verdict::kOverflow;
    j.reason = std::to_string(t.overflowed) + " of " +
               std::to_string(j.elements) +
               " results are beyond the range of the dtype";
  } else if (t.e > kPassE) {
    j.verdict = Verdict::kWarn;
    j.reason =
        "the error is " + short_number(t.e) + " times what rounding allows";
  }
}

const char* verdict_name(Verdict verdict) {
  constexpr const char* kNames[] = {
      "skip", "pass", "warn", "overflow", "error"};
  return kNames[static_cast<int>(verdict)];
}

Tolerance default_tolerance(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Half:
      return {1e-4, 1e-4};
    case ScalarType::BFloat16:
      return {1e-3, 1e-3};
    case ScalarType::Float:
      return {1e-5, 1e-5};
    case ScalarType::Double:
      return {1e-8, 1e-8};
    default:
      return {1e-3, 1e-3};
  }
}

double unit_roundoff(ScalarType dtype) {
  return precision_of(dtype).roundoff;
}

double smallest_number(ScalarType dtype) {
  return precision_of(dtype).smallest;
}

double accumulator_roundoff(ScalarType dtype) {
  return is_wide(dtype) ? 0x1p-53 : 0x1p-24;
}

double Judgement::cosine() const {
  const double sizes = std::sqrt(tally.got2) * std::sqrt(tally.ref2);
  if (sizes > 0) {
    return tally.dot / sizes;
  }
  return tally.got2 == tally.ref2 ? 1 : 0;  // all zero on both sides: the same
}

double Judgement::relative_l2() const {
  return tally.ref2 > 0 ? std::sqrt(tally.diff2 / tally.ref2)
                        : std::sqrt(tally.diff2);
}

double Judgement::mean_abs() const {
  return tally.finite > 0 ? tally.sum_abs / static_cast<double>(tally.finite)
                          : 0;
}

Judgement judge_values(
    const at::Tensor& got,
    const at::Tensor& reference,
    const at::Tensor& majorant,
    int64_t terms,
    const Tolerance& tolerance) {
  Judgement j;
  j.dtype = got.scalar_type();
  j.elements = got.numel();
  j.terms = terms;
  j.tolerance = tolerance;
  if (unit_roundoff(j.dtype) == 0) {
    judge_exact(j, got, reference);
  } else {
    const auto a = allowance_of(j.dtype, terms, tolerance);
    j.tally = tally_numbers(got, reference, majorant, a);
    decide(j);
  }
  note_worst(j, got, reference);
  return j;
}

double element_error(
    ScalarType dtype,
    int64_t terms,
    double got,
    double reference,
    double majorant) {
  const auto a = allowance_of(dtype, terms, {});
  return a.scale * std::fabs(got - reference) / a.allowed(reference, majorant);
}

void set_worst(
    Judgement& j,
    const at::Tensor& got,
    const at::Tensor& reference,
    int64_t at,
    double e) {
  j.tally.e = e;
  j.tally.worst = at;
  note_worst(j, got, reference);
}

std::vector<int64_t> elements_over(
    const at::Tensor& got,
    const at::Tensor& reference,
    int64_t terms,
    double limit) {
  auto a = allowance_of(got.scalar_type(), terms, {});
  a.out *= limit;
  a.acc *= limit;
  a.floor *= limit;
  const at::Tensor truth = plain(reference, ScalarType::Double);
  const auto* r = truth.const_data_ptr<double>();
  return with_elements(got, [&](const auto* values) {
    return elements_beyond(values, r, got.numel(), a);
  });
}

Judgement judge_equal(
    const at::Tensor& got,
    const at::Tensor& reference,
    const Tolerance& tolerance) {
  if (unit_roundoff(got.scalar_type()) == 0) {
    return judge_values(got, reference, {}, 1, tolerance);
  }
  Judgement j;
  j.dtype = got.scalar_type();
  j.elements = got.numel();
  j.tolerance = tolerance;
  Allowance a = allowance_of(j.dtype, 1, tolerance);
  a.out = a.acc = 0;
  a.floor = std::numeric_limits<double>::denorm_min();
  j.tally = tally_numbers(got, reference, {}, a);
  if (j.tally.over != 0) {
    j.verdict = Verdict::kError;
    j.reason = must_be_equal(j);
  }
  note_worst(j, got, reference);
  return j;
}

Details measure_details(const at::Tensor& got, const at::Tensor& reference) {
  Details d;
  const auto precision = precision_of(got.scalar_type());
  if (precision.roundoff == 0 || got.numel() == 0 || got.is_complex()) {
    return d;
  }
  const at::Tensor wide = plain(got, ScalarType::Double);
  const at::Tensor truth = plain(reference, ScalarType::Double);
  const auto* g = wide.const_data_ptr<double>();
  const auto* r = truth.const_data_ptr<double>();
  std::vector<double> ulps;
  double balance = 0;
  for (int64_t i = 0; i < wide.numel(); ++i) {
    if (!std::isfinite(g[i]) || !std::isfinite(r[i])) {
      continue;
    }
    const double unit =
        r[i] == 0 ? precision.smallest
                  : std::max(
                        std::ldexp(2 * precision.roundoff, std::ilogb(r[i])),
                        precision.smallest);
    const double apart = g[i] - r[i];
    ulps.push_back(std::fabs(apart) / unit);
    d.over_ulp += ulps.back() > 1;
    d.mean_rel += r[i] == 0 ? 0 : std::fabs(apart / r[i]);
    balance += apart > 0 ? 1 : apart < 0 ? -1 : 0;
  }
  if (ulps.empty()) {
    return d;
  }
  const auto count = static_cast<double>(ulps.size());
  const auto at = ulps.begin() + static_cast<int64_t>(0.999 * (count - 1));
  std::nth_element(ulps.begin(), at, ulps.end());
  d.p999_ulp = *at;
  d.max_ulp = *std::max_element(at, ulps.end());
  d.over_ulp /= count;
  d.mean_rel /= count;
  d.bias = std::fabs(balance) / count;
  return d;
}

Judgement skipped(std::string reason) {
  Judgement j;
  j.verdict = Verdict::kSkip;
  j.reason = std::move(reason);
  return j;
}

Judgement wrong(std::string reason) {
  Judgement j;
  j.verdict = Verdict::kError;
  j.reason = std::move(reason);
  j.tally.not_close = 1;
  j.tally.e = std::numeric_limits<double>::infinity();
  return j;
}

}  // namespace optools
