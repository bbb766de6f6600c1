// SPDX-License-Identifier: Apache-2.0
// How the results of an operator are judged: which it may not round, which
// need a majorant of their own, which have none that could be compared.
#pragma once

#include <string>

#include "core/operators.h"

namespace optools {

enum class Rule : uint8_t {
  kRounded,   // E; M is |ref|, or what the result moves with its inputs
  kExact,     // moves or compares values: no rounding at all
  kProducts,  // sums of products: M is the operator on absolute values
  kByInput,   // activations: M is a formula, or the first argument
  kLayerNorm,
  kNormBackward,
  kRange,
  kLogSoftmax,
  kSoftmaxBackward,
  kLogSoftmaxBackward,
  kSelected,  // values with the indices they were found at; ties are free
  kAttention,
  kRecurrent,  // states go through the dtype of the result at every step
  kResampled,  // weights are made of places between pixels
  kGrid,       // places are given, and rounded to a pixel's size
  kWhole,      // an element's error is measured by the largest of its matrix
  kNotJudged
};

// "aten::_foreach_add_.List" -> "add": what the operator is called without
// namespace, overload, and in-place or foreach form.
std::string base_name(const Operator& op);

inline constexpr char kNoHostKernel[] = "PyTorch's CPU has no kernel for it";
inline constexpr char kNoTensor[] = "returns no tensor";
bool has_host_kernel(const Operator& op);
// In definitions.cpp.
bool has_definition(const Operator& op);

struct OperatorRule {
  Rule rule = Rule::kRounded;
  bool pointwise = false;
  const char* why_not = nullptr;  // for kNotJudged
};
OperatorRule rule_of(const Operator& op);

// Why there can be no reference, neither a kernel of the CPU's nor the
// definition; null where there can.
const char* no_reference(const Operator& op, const OperatorRule& rule);

// Does the call draw random numbers? A random operator told to leave
// everything as it is draws none.
bool draws(const Operator& op, c10::ArrayRef<c10::IValue> inputs);

// How many terms go into one element of a result of `results` elements.
int64_t terms_of(
    const OperatorRule& rule,
    c10::ArrayRef<c10::IValue> inputs,
    int64_t results);

}  // namespace optools
