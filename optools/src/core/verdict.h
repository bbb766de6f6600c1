// SPDX-License-Identifier: Apache-2.0
// Is a result right? Judged against a float64 reference of the same inputs:
//
//   E = |got - ref| / (2 u_out |ref| + u_acc (8 M + 1.5 sqrt(K) |ref|))
//
// u_out and u_acc are unit roundoffs of the output and of the accumulator, K
// the terms summed into one element, M the majorant: how large the terms were
// before they cancelled. The same constants for every operator and dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/tally.h"

namespace optools {

// In the order of how bad they are; what is skipped says nothing.
enum class Verdict : uint8_t { kSkip, kPass, kWarn, kOverflow, kError };
const char* verdict_name(Verdict verdict);

struct Tolerance {
  double atol = 0;
  double rtol = 0;
};
// ditorch's, for its columns.
Tolerance default_tolerance(c10::ScalarType dtype);

struct Judgement {
  Verdict verdict = Verdict::kPass;
  // Why it was skipped; or what is wrong, in words.
  std::string reason;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  int64_t elements = 0;
  int64_t terms = 1;  // K
  Tally tally;
  Tolerance tolerance;
  // Of the worst element; empty where none differs.
  std::vector<int64_t> worst;
  c10::complex<double> got;
  c10::complex<double> expected;

  double cosine() const;
  double relative_l2() const;
  double mean_abs() const;
  bool allclose() const {
    return tally.not_close == 0 && verdict != Verdict::kSkip;
  }
};

// What else is said of a result that did not pass.
struct Details {
  double max_ulp = 0;
  double p999_ulp = 0;
  double over_ulp = 0;  // share of elements more than one unit off
  double mean_rel = 0;
  double bias = 0;  // |too large - too small| / elements
};

// E above kPassE is a warning, above kWarnE an error; so are more than
// kOverShare of the elements above kPassE.
inline constexpr double kPassE = 1;
inline constexpr double kWarnE = 3;
inline constexpr double kOverShare = 0.001;

double unit_roundoff(c10::ScalarType dtype);
double smallest_number(c10::ScalarType dtype);
// Of what a kernel of that dtype may sum in.
double accumulator_roundoff(c10::ScalarType dtype);

// Both in host memory, of the same sizes, any strides. A floating or complex
// `got` has a float64 or complex128 reference and, where it is defined, a
// float64 majorant; anything else is compared exactly with a reference of its
// own dtype. Calls operators: be Quiet.
Judgement judge_values(
    const at::Tensor& got,
    const at::Tensor& reference,
    const at::Tensor& majorant,
    int64_t terms,
    const Tolerance& tolerance);
// Numbers (flat, in C order) of the elements of a real result with E > `limit`
// where M is |ref|.
std::vector<int64_t> elements_over(
    const at::Tensor& got,
    const at::Tensor& reference,
    int64_t terms,
    double limit = 1);
// E of one element with that majorant.
double element_error(
    c10::ScalarType dtype,
    int64_t terms,
    double got,
    double reference,
    double majorant);
// Makes an element (flat, in C order) the worst one.
void set_worst(
    Judgement& judgement,
    const at::Tensor& got,
    const at::Tensor& reference,
    int64_t at,
    double e);
// The same, for what may not round: any difference is an error.
Judgement judge_equal(
    const at::Tensor& got,
    const at::Tensor& reference,
    const Tolerance& tolerance);
Details measure_details(const at::Tensor& got, const at::Tensor& reference);

// Sets verdict and reason by what the tally says.
void decide(Judgement& judgement);

Judgement skipped(std::string reason);
Judgement wrong(std::string reason);

}  // namespace optools
