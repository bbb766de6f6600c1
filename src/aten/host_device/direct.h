// SPDX-License-Identifier: Apache-2.0
// Rung 4 without wrappers: a CPU kernel that gets the npu tensors themselves.
//
// Note [Direct]: where the device is this computer, its memory is open to host
// code and a call's work is done when it returns, a CPU kernel may read npu
// tensors as they are, and write to tensors made for its results. Nothing is
// wrapped and nothing adopted. That holds for kernels that
// - never ask a tensor for its device (some do to choose oneDNN: then the bits
//   would not be the CPU's),
// - get operands of the dtype they compute in (an iterator converts them for
//   CPU tensors only),
// - call no operator of their own but views, empty tensors and fill_: others
//   would be counted as npu work.
// ops/aten/*.yaml names such functions (key 'direct'), of elementwise operators
// the kernel itself. Each says no to a call
// it does not know to be like that; then the wrappers' way is taken, and the
// result is the same to the bit. Only functional forms go this way: outputs
// that a caller gave need the checks and the bookkeeping of TwinCall.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

#include "aten/twin/entry.h"

namespace npu::host_device {

using twin::Entry;

class DirectRun {
 public:
  // Judges the operator by the user's policy, as every CPU rung; throws what
  // that throws. Undefined tensors are skipped.
  DirectRun(
      Entry& entry,
      npu_reason reason,
      std::initializer_list<const at::Tensor*> inputs);

  // False: take the wrappers' way.
  explicit operator bool() const noexcept {
    return possible_;
  }
  // After the kernel: counts the call.
  void finish(std::initializer_list<const at::Tensor*> outputs);

 private:
  bool look_at(std::initializer_list<const at::Tensor*> inputs);

  Entry& entry_;
  const npu_reason reason_;
  JudgedDtypes dtypes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t start_ = 0;
  bool possible_ = false;
  bool counts_dtypes_ = false;
};

// Whether an elementwise CPU kernel may have this iterator: every operand on
// the device, in the dtype that is computed in.
bool is_direct(const at::TensorIteratorBase& iter);

}  // namespace npu::host_device
