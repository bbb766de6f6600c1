// SPDX-License-Identifier: Apache-2.0
// A call of any kind as plain data, and machines it is run on.
//
// A Case knows values, not memory: run_case lays it out in a machine's memory,
// plans, runs, and reads every byte back. The driver under test is one machine;
// the other is the host driver, whose kernels in float64 are the reference
// where the kit has none written out (plain.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kit.h"
#include "reference.h"

namespace npu::kit {

using Shape = std::vector<std::int64_t>;

std::int64_t product(const Shape& sizes);
Shape contiguous_strides(const Shape& sizes);

struct Operand {
  const npu_operand_info* info = nullptr;
  npu_dtype dtype = NPU_ABSENT;
  Shape sizes;
  Shape strides;
  std::int64_t offset = 0;
  bool host_scalar = false;
  int alias_of = -1;          // an input that lies in this output
  std::vector<Value> values;  // in index order; inputs and inout

  bool present() const {
    return dtype != NPU_ABSENT;
  }
  bool is_output() const {
    return info->mode != NPU_MODE_IN;
  }
  std::int64_t numel() const {
    return product(sizes);
  }
};

struct Case {
  const npu_kind_info* kind = nullptr;
  std::uint32_t code = 0;
  std::uint64_t seed = 0;
  std::vector<Operand> operands;  // outputs, then inputs
  std::vector<std::vector<Operand>> lists;
  Bytes attrs;
  npu_dtype compute_dtype = NPU_ABSENT;
  bool deterministic = false;
  // npu_call.workspace_limit.
  std::uint64_t workspace_limit = 0;
  // NPU_CALL_BENCHMARK: tune is asked between plan and run.
  bool benchmark = false;
  npu_rng rng{};
  // Linear in every input: the majorant of a sum is the sum of absolute values.
  bool linear = false;
  // How many terms a result is made of.
  std::int64_t terms = 1;
  // Added to the majorant: what cancels inside and no input shows.
  double cancels = 0;
  // Two-step kinds: gives the outputs of the fill call their sizes.
  std::function<void(Case&, std::int64_t total)> sized;

  Operand& operand(const std::string& name);
  const Operand& operand(const std::string& name) const {
    return const_cast<Case*>(this)->operand(name);
  }
  // "gemm.gemm f32 (2, 3, 4) ..., seed 7"
  std::string text() const;
};

// What came of it.
struct Outcome {
  npu_status queued = NPU_OK;
  npu_status done = NPU_OK;
  bool declined = false;  // plan did not say yes
  npu_verdict verdict{};  // what it said then
  std::string reason;
  std::string broken;  // a promise that was not kept, in words
  std::uint64_t workspace_bytes = 0;
  std::int64_t total = 0;
  std::vector<std::vector<Value>> values;  // of every output, and of the lists
  std::vector<npu_dtype> dtypes;

  bool ok() const {
    return queued == NPU_OK && done == NPU_OK && !declined && broken.empty();
  }
};

// A driver, one of its devices.
struct Machine {
  const npu_driver* driver;
  npu_device device = 0;
};
Machine subject(npu_device device = 0);
// The host driver with all of its kernels; the subject itself when that is it.
const Machine& oracle();

Outcome run_case(const Machine& machine, const Case& value);
// As the host side calls a driver: operands that `plan` wants contiguous, cast
// or aligned are made so, in `value` too, and the call is tried again.
Outcome run_mended(const Machine& machine, Case& value);

// The same call in float64 (complex128), contiguous, nothing in place.
Case widened(const Case& value);

}  // namespace npu::kit
