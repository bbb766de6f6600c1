// SPDX-License-Identifier: Apache-2.0
// Everything that differs between torch 2.11 and 2.15, in one place. What came
// with 2.13 still holds: 2.15 changed nothing that is used here.
#pragma once

#include <torch/version.h>

#include <cstdint>
#include <string>
#include <type_traits>

#define NPU_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||      \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

static_assert(
    NPU_TORCH_AT_LEAST(2, 11),
    "npu: this torch is too old: 2.11 to 2.15 are supported");

// Virtual functions that a later torch added to an interface we implement.
#if NPU_TORCH_AT_LEAST(2, 12)
#define NPU_OVERRIDE_SINCE_2_12 override
#else
#define NPU_OVERRIDE_SINCE_2_12
#endif

// Named tensors left with 2.13: structured kernels lost the last parameter of
// set_output_*, and TensorIterator's overrides with it.
#if NPU_TORCH_AT_LEAST(2, 13)
#define NPU_NAMES_PARAM
#define NPU_NAMES_ARG
#define NPU_HAS_NAMES(tensor) false
#else
#define NPU_NAMES_PARAM , at::DimnameList names
#define NPU_NAMES_ARG , names
#define NPU_HAS_NAMES(tensor) (tensor).has_names()
#endif

// Where a plugin registers its profiler with torch; before 2.12 with Kineto.
#define NPU_HAS_PRIVATEUSE1_PROFILER \
  __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)

namespace npu {

// Names a row of a trace. In torch 2.11 Kineto's ResourceInfo has a
// constructor whose order is not that of its fields.
template <class Info>
Info trace_row(std::int64_t device, std::int64_t id, const std::string& name) {
  if constexpr (std::is_aggregate_v<Info>) {
    return Info{id, /*sortIndex=*/id, device, name};
  } else {
    return Info(device, id, /*sortIndex=*/id, name);
  }
}

}  // namespace npu

// Operators that a later torch added, known by their header.
#define NPU_HAS_FOREACH_CLONE __has_include(<ATen/ops/_foreach_clone.h>)
