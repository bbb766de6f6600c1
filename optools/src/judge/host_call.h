// SPDX-License-Identifier: Apache-2.0
// A call that was made, in host memory: what went in, what came out.
#pragma once

#include <string>
#include <vector>

#include "core/operators.h"
#include "core/verdict.h"
#include "judge/rules.h"

namespace optools {

// A tensor that came out: a result, or an argument that was written.
struct HostResult {
  bool output = true;  // else an argument
  uint8_t position = 0;
  uint16_t item = 0;
  at::Tensor got;  // values, in any layout
  // As the device has it.
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<int64_t> strides;
  int shares = -1;  // the argument whose memory it is, though it should not be
};

struct HostCall {
  const Operator* op = nullptr;
  OperatorRule rule;
  c10::DeviceType device = c10::DeviceType::CPU;
  std::vector<c10::IValue> inputs;  // as they were before the call
  bool true_strides = true;         // inputs kept theirs
  bool writes = false;              // some of them
  // Arguments (and items of lists) that changed although the schema does not
  // say so.
  std::vector<std::pair<size_t, uint16_t>> changed;
  std::vector<HostResult> results;
  std::vector<std::string> complaints;  // what was seen to be wrong already
};

// The argument of that name in the operator's schema; nullptr where it has
// none.
const c10::IValue* argument_named(const HostCall& call, const char* name);

// Is it a dtype? On the stack it is an int.
bool is_dtype(const c10::Argument& argument);

// Where they matter: not along dimensions of one element.
bool same_strides(const at::Tensor& t, c10::IntArrayRef strides);

// What a result is called in reports: "output", "output[1]", "self[3]".
std::string result_name(const HostCall& call, const HostResult& result);

// The operator on the CPU's key. Takes its inputs: those it writes change.
// Be Quiet and below autograd.
std::vector<c10::IValue> run_on_host(
    const Operator& op, const std::vector<c10::IValue>& inputs);

// Arguments with floating numbers in `real` (or its complex twin), dtype and
// device arguments to match. A tensor given twice stays one tensor.
std::vector<c10::IValue> widened(
    const HostCall& call, c10::ScalarType real = c10::ScalarType::Double);

// A number as a tensor without dimensions; undefined for anything else.
at::Tensor number_tensor(const c10::IValue& value);

// The tensor a result corresponds to in a run of the same call; undefined
// where there is none.
at::Tensor corresponding(
    const HostResult& result,
    const std::vector<c10::IValue>& inputs,
    const std::vector<c10::IValue>& outputs);

struct CallJudgement {
  Verdict verdict = Verdict::kPass;
  std::string reason;  // of the worst
  size_t worst = 0;    // in `each`, when that has any
  std::vector<std::pair<std::string, Judgement>> each;
};

using ToleranceOf = Tolerance (*)(c10::ScalarType dtype, const void* context);

// Of an operator that draws random numbers: their distribution.
CallJudgement judge_random(const HostCall& call);

CallJudgement skip_call(std::string reason);
// Finds the worst of `each`.
void conclude(CallJudgement& all);

// How many operators' result dtypes are remembered.
size_t known_dtypes();

CallJudgement judge_call(
    const HostCall& call, ToleranceOf tolerance, const void* context);

}  // namespace optools
