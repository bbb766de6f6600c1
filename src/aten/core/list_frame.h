// SPDX-License-Identifier: Apache-2.0
// Lists of tensors in a call frame: pointers and sizes in memory that a thread
// keeps from call to call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <initializer_list>
#include <memory>

#include "driver/call.h"

namespace npu {

// The npu_lists of one call. All roles have one length; entries whose leading
// tensor has no elements are left out of every role.
class ListFrame {
 public:
  static constexpr std::size_t kMaxRoles = 8;

  explicit ListFrame(at::TensorList leading);
  ~ListFrame();
  ListFrame(const ListFrame&) = delete;
  ListFrame& operator=(const ListFrame&) = delete;

  // Entries with elements; a call without any is not worth making.
  std::uint32_t n() const noexcept {
    return n_;
  }
  // Dense tensors, as many as the leading ones.
  npu_list of(at::TensorList tensors);
  // Tensors of one element each, one per entry.
  npu_list single_of(at::TensorList tensors);
  // Numbers kept on the host, one per entry, as `compute` (float or double).
  npu_list scalars(at::ArrayRef<at::Scalar> values, c10::ScalarType compute);
  // The same 0-dim device tensor for every entry.
  npu_list repeated(const at::Tensor& scalar);

 private:
  std::uint64_t* take();
  npu_list single_elements(void* const* data, npu_dtype dtype);

  at::TensorList leading_;
  std::uint32_t n_ = 0;
  std::uint64_t* words_ = nullptr;
  std::size_t used_ = 0;
  std::unique_ptr<std::uint64_t[]> own_;  // when the thread's is in use
  const std::int64_t* numel_ = nullptr;
  std::int64_t* ones_ = nullptr;
};

// Tensors a list kind can take as they are: one npu device, plain strided
// memory without gaps, no pending negation. `leading` fixes device and dtype;
// each of the others is either empty (absent) or goes with it entry by entry,
// in sizes and strides, and in dtype unless `any_float`.
bool goes_as_lists(
    at::TensorList leading,
    std::initializer_list<at::TensorList> others,
    bool any_float = false);

// No written tensor shares memory with another, except that entry i of another
// list may be entry i of `written` itself.
bool writes_apart(
    at::TensorList written, std::initializer_list<at::TensorList> read);

}  // namespace npu
