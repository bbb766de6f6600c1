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
// For an output that keeps an image's memory format.
inline c10::TensorOptions image_options(const at::Tensor& image) {
  return image.options().memory_format(image.suggest_memory_format());
}
// What is wanted, with the sizes of `like`; nothing for an undefined one.
inline void set_if(
    Outputs& out,
    int i,
    bool wanted,
    const at::Tensor& like,
    const c10::TensorOptions& options) {
  if (wanted && like.defined()) {
    set_output(out, i, like.sizes(), options);
  }
}
inline void set_if(Outputs& out, int i, bool wanted, const at::Tensor& like) {
  if (like.defined()) {
    set_if(out, i, wanted, like, like.options());
  }
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

// shape<at::meta::structured_gather>(out, self, dim, ...): checks the arguments
// and sets the outputs; returns what the meta function found out on the way.
template <class Meta, class... Args>
auto shape(Outputs& out, const Args&... args) {
  return StructuredOp<Meta, Outputs&>(out).meta(args...);
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

template <class Argument>
constexpr bool kIsTensor =
    std::is_same_v<std::remove_cvref_t<Argument>, at::Tensor>;

// What a builder (driver/build_call.h) takes for an argument: of a tensor its
// operand, absent where the tensor is undefined and may be; all else as it is.
template <class Parameter, class Argument>
decltype(auto) as_parameter(Argument& argument) {
  if constexpr (!kIsTensor<Argument>) {
    return (argument);
  } else if constexpr (std::is_pointer_v<Parameter>) {
    return MaybeOperand(argument);
  } else {
    return to_operand(argument);
  }
}

template <class>
struct Builder;
template <class... Parameters>
struct Builder<void (*)(Call&, Parameters...)> {
  template <auto kBuild, class... Arguments>
  static void fill(Call& call, Arguments&... arguments) {
    kBuild(call, as_parameter<Parameters>(arguments)...);
  }
};

// fill<build::flip>(call, out, self, attrs): the frame of a call, from tensors.
template <auto kBuild, class... Arguments>
void fill(Call& call, Arguments&&... arguments) {
  Builder<decltype(kBuild)>::template fill<kBuild>(call, arguments...);
}

// The device of the first tensor among the arguments that is on one.
template <class... Arguments>
c10::DeviceIndex device_among(const Arguments&... arguments) {
  static_assert((kIsTensor<Arguments> || ...), "no argument names the device");
  c10::DeviceIndex found = -1;
  const auto look = [&found](const auto& argument) {
    if constexpr (kIsTensor<decltype(argument)>) {
      if (found < 0 && argument.defined()) {
        found = argument.device().index();
      }
    }
  };
  (look(arguments), ...);
  return found;
}

// run<build::flip>(site, out, self, attrs): fills a frame and runs it.
template <auto kBuild, class... Arguments>
npu_reason run(Site& site, Arguments&&... arguments) {
  Call call = site.call();
  fill<kBuild>(call, arguments...);
  return site.run(call, device_among(arguments...));
}

// The same for a kernel that checks indices. When it refuses one it has written
// nothing: the CPU function runs and raises the error users know, or, where it
// does not look (kOurs), the error is the driver's text.
enum class IndexError { kCpus, kOurs };
npu_reason run_checked(
    Site& site,
    Call& call,
    c10::DeviceIndex device,
    IndexError error = IndexError::kCpus,
    Carry* carry = nullptr);
template <
    auto kBuild,
    IndexError kError = IndexError::kCpus,
    class... Arguments>
npu_reason run_checked(Site& site, Arguments&&... arguments) {
  Call call = site.call();
  fill<kBuild>(call, arguments...);
  return run_checked(site, call, device_among(arguments...), kError);
}

}  // namespace npu
