// SPDX-License-Identifier: Apache-2.0
// What attempts are written with: functions that check, set the outputs and run
// the driver, and give a reason where the CPU function is to run instead.
//
//   npu_reason roll(NativeSite& site, Outputs& out, const at::Tensor& self,
//                   at::IntArrayRef shifts, at::IntArrayRef dims);
//
// ops/aten/*.yaml names them; the kernels of the overloads (functional, out=,
// in-place) are generated around them. An attempt leaves arguments that PyTorch
// refuses to the CPU function, and with them the error message.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <type_traits>

#include "aten/ladder/native.h"
#include "aten/ops/operands.h"
#include "aten/ops/structured.h"

namespace npu {

// ---- outputs ----

// Contiguous unless a format says otherwise, in the dtype of `like` or another.
inline const at::Tensor& set_output(
    Outputs& out,
    int i,
    at::IntArrayRef sizes,
    const c10::TensorOptions& options) {
  out.set(i, sizes, {}, options, false);
  return out.at(i);
}
inline const at::Tensor& set_output(
    Outputs& out, int i, at::IntArrayRef sizes, const at::Tensor& like) {
  return set_output(out, i, sizes, like.options());
}
// The output begins as a copy of `self`: what in-out kinds work on.
void begin_with(const at::Tensor& out, const at::Tensor& self);

// Nothing given, or an output that needs no resizing and shares no memory with
// the inputs: the CPU rung sees to the others.
bool is_ready(
    const at::Tensor& given,
    at::IntArrayRef sizes,
    c10::ScalarType dtype,
    std::initializer_list<const at::Tensor*> inputs);

// PyTorch's meta function with outputs kept elsewhere.
template <class Meta>
class Shaper final : public Meta {
 public:
  explicit Shaper(Outputs& out) : out_(out) {}

 private:
  void set_output_strided(
      std::int64_t i,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options NPU_NAMES_PARAM) override {
    set_output_raw_strided(i, sizes, strides, options NPU_NAMES_ARG);
  }
  void set_output_raw_strided(
      std::int64_t i,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options NPU_NAMES_PARAM) override {
    out_.set(i, sizes, strides, options, false);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(i, sizes, strides, options NPU_NAMES_ARG);
    }
  }
  const at::Tensor& maybe_get_output(std::int64_t i) override {
    return out_.at(i);
  }

  Outputs& out_;
};

// shape<at::meta::structured_gather>(out, self, dim, ...): checks the arguments
// and sets the outputs; returns what the meta function found out on the way.
template <class Meta, class... Args>
auto shape(Outputs& out, const Args&... args) {
  Shaper<Meta> shaper(out);
  return shaper.meta(args...);
}

// ---- frames ----

// An attribute from an argument of the schema; an absent one is 0.
template <class To, class From>
void set_attribute(To& to, const From& from) {
  to = static_cast<To>(from);
}
template <class To, class From>
void set_attribute(To& to, const std::optional<From>& from) {
  to = static_cast<To>(from.value_or(From{}));
}

// Runs a call whose kernel checks indices. When it refuses one it has written
// nothing: the CPU function runs and raises the error users know, or, where it
// does not look (kOurs), the error is the driver's text.
enum class IndexError { kCpus, kOurs };
npu_reason run_checked(
    NativeSite& site,
    Call& call,
    const at::Tensor& on,
    IndexError error = IndexError::kCpus,
    Carry* carry = nullptr);

inline npu_reason run(NativeSite& site, Call& call, const at::Tensor& on) {
  return site.run(call, on.device().index());
}

}  // namespace npu
