// SPDX-License-Identifier: Apache-2.0
// Is a result right? Exact for integers; for floating point the error in units
// of what rounding allows.
#pragma once

#include "case.h"

namespace npu::kit {

// E = |got - ref| / (2 u_out |ref| + u_acc (8 M + 1.5 sqrt(K) |ref|)), at most
// 1. ref is the oracle's answer in float64, u the unit roundoffs of the output
// and of the accumulator (float32, or the output's where that is finer; the
// output's too where the kind says `intermediate: operand`), K the number of
// terms, M the majorant: the call on absolute values where it is
// linear, else what the answer moves when every input moves by one roundoff.
struct Judgement {
  double worst = 0;
  std::string wrong;  // empty: right
};

// Runs the oracle as often as it needs. `skipped` is set when it has no answer.
Judgement judge(const Case& value, const Outcome& got, std::string& skipped);

// For tests of the kit: the E of one number.
double error_units(
    npu_dtype dtype,
    std::complex<double> got,
    std::complex<double> reference,
    double majorant,
    std::int64_t terms,
    double between = 0);  // the least unit roundoff of the accumulator

}  // namespace npu::kit
