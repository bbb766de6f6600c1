// SPDX-License-Identifier: Apache-2.0
// PyTorch's structured meta with outputs of ours: shapes, dtypes, overlap and
// error texts are PyTorch's own, memory comes straight from our allocator.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "runtime/torch_compat.h"

namespace npu {

// The outputs of one call: made here, or given by the caller.
class Outputs {
 public:
  static constexpr int kMost = 5;
  enum class Form { kFunctional, kInplace, kOut };

  explicit Outputs(Form form) : form_(form) {}
  void give(int i, at::Tensor& tensor) {
    given_[i] = &tensor;
  }

  // `exact`: the kernel needs these strides; a given tensor with others gets a
  // temporary, which finish() copies back to it.
  void set(
      std::int64_t i,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      const at::TensorOptions& options,
      bool exact);
  // The sizes of `like`, and where the output is made here its strides.
  void set_like(std::int64_t i, const at::Tensor& like, c10::ScalarType dtype);
  // What an iterator made.
  void keep(std::int64_t i, const at::Tensor& made) {
    if (form_ == Form::kFunctional) {
      made_[i] = made;
    }
  }
  // What the kernel writes to; undefined before set() for a functional form.
  const at::Tensor& at(std::int64_t i) const;
  at::Tensor take(int i) {
    return std::move(made_[i]);
  }
  void finish();

 private:
  const Form form_;
  std::array<at::Tensor*, kMost> given_{};
  std::array<at::Tensor, kMost> made_;  // results, or stand-ins
};

// As meta functions take an optional tensor.
inline at::OptionalTensorRef as_ref(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? at::OptionalTensorRef(*tensor)
                                     : at::OptionalTensorRef();
}

// `Kept` is Outputs, or a reference to those of an attempt.
template <class Meta, class Kept = Outputs>
class StructuredOp final : public Meta {
 public:
  template <class From>
  explicit StructuredOp(From&& from) : outputs(from) {}

  Kept outputs;

 private:
  void set_output_strided(
      std::int64_t i,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options NPU_NAMES_PARAM) override {
    outputs.set(i, sizes, strides, options, true);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(i, sizes, strides, options NPU_NAMES_ARG);
    }
  }
  void set_output_raw_strided(
      std::int64_t i,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options NPU_NAMES_PARAM) override {
    outputs.set(i, sizes, strides, options, false);
    // After the output is there: the iterator asks for it.
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(i, sizes, strides, options NPU_NAMES_ARG);
    }
  }
  const at::Tensor& maybe_get_output(std::int64_t i) override {
    return outputs.at(i);
  }
};

}  // namespace npu
