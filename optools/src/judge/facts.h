// SPDX-License-Identifier: Apache-2.0
// What has to be right about a result besides its values, and the answer of
// the CPU's own kernel, which decides it.
#pragma once

#include <string>
#include <vector>

#include "judge/host_call.h"

namespace optools {

// A call's results as the CPU's own kernel of that dtype gives them; nothing
// where it cannot.
class OwnAnswer {
 public:
  explicit OwnAnswer(const HostCall& call) : call_(call) {}
  at::Tensor result(const HostResult& result);
  // Does the CPU, too, write to that argument?
  bool changes(size_t position, uint16_t item);
  // Does the CPU's result, too, share the memory of that argument?
  bool shares(const HostResult& mine);

 private:
  void run();
  // False: the kernel refuses them, or there are none.
  template <class Inputs>
  bool run_with(Inputs make);

  const HostCall& call_;
  bool tried_ = false;
  bool there_ = false;
  std::vector<c10::IValue> inputs_;
  std::vector<c10::IValue> outputs_;
};

// What is wrong with shape, dtype, strides or memory of a result; an empty
// string when they are right.
std::string wrong_facts(
    const HostCall& call,
    const HostResult& result,
    const at::Tensor& reference,
    OwnAnswer& own);

}  // namespace optools
