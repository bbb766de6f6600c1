// SPDX-License-Identifier: Apache-2.0
// Operators with functional, out= and in-place forms, written once.
//
// An attempt is a function that checks, makes the outputs and runs the driver:
//
//   npu_reason gather(NativeSite& site, Outputs& out, const at::Tensor& self,
//                     int64_t dim, const at::Tensor& index, bool sparse_grad);
//
// and one line per overload makes the kernels from it:
//
//   add<Op<"gather", NPU_KIND_GATHER, 0, &at::cpu::gather, gather>>(m);
//   add<Op<"gather.out", NPU_KIND_GATHER, 0, &at::cpu::gather_outf,
//          gather>>(m);
//
// The form follows from the CPU function's signature, which is also the one
// that is registered. The CPU function runs when the attempt gives a reason:
// an attempt leaves odd arguments to it, and with them the error message.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/core/frame.h"
#include "aten/ladder/native.h"
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
// Output 0 begins as a copy of `self`: what in-out kinds work on.
const at::Tensor& begin_with(Outputs& out, const at::Tensor& self);

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

// ---- operands ----

// An input that is the output itself says so.
npu_tensor input_operand(const at::Tensor& input, const at::Tensor& out);
// An optional input.
npu_tensor optional_operand(const std::optional<at::Tensor>& input);

// A number as an operand, in the dtype of `like` and converted as CPU does.
class NumberOperand {
 public:
  NumberOperand(const c10::Scalar& value, const at::Tensor& like);
  const npu_tensor& operand() const {
    return operand_;
  }

 private:
  at::Tensor value_;
  npu_tensor operand_;
};

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

// For arguments the attempt leaves to the CPU function.
inline constexpr npu_reason kOdd = NPU_REASON_SIZE;

// ---- one kernel per overload ----

// A name as a template argument.
template <std::size_t N>
struct Name {
  char text[N];
  constexpr Name(const char (&from)[N]) {  // NOLINT: a literal is a name
    std::copy_n(from, N, text);
  }
};

template <
    Name kName,
    std::uint32_t kSlot,
    std::uint32_t kCode,
    auto kCpu,
    auto kAttempt,
    class Signature = std::remove_pointer_t<decltype(kCpu)>>
class Op;
template <
    Name kName,
    std::uint32_t kSlot,
    std::uint32_t kCode,
    auto kCpu,
    auto kAttempt,
    class R,
    class... Args>
class Op<kName, kSlot, kCode, kCpu, kAttempt, R(Args...)> {
 public:
  static constexpr const char* overload() {
    return kFullName.data() + kPrefix.size();
  }
  static R call(Args... args) {
    static NativeSite site(kFullName.data(), kSlot, kCode);
    Outputs out(kForm);
    const std::tuple<Args&...> all(args...);
    const npu_reason why = attempt(
        site,
        out,
        all,
        std::make_index_sequence<kIns>(),
        std::make_index_sequence<kOuts>());
    if (why != NPU_REASON_NONE) {
      return site.cpu(why, kCpu, std::forward<Args>(args)...);
    }
    if constexpr (kForm == Outputs::Form::kFunctional) {
      return made(out);
    } else {
      out.finish();
      return given(all, std::make_index_sequence<kOuts>());
    }
  }

 private:
  static constexpr std::string_view kPrefix = "aten::";
  static constexpr auto kFullName = [] {
    std::array<char, kPrefix.size() + sizeof(kName.text)> joined{};
    auto* const end = std::copy(kPrefix.begin(), kPrefix.end(), joined.data());
    std::copy(std::begin(kName.text), std::end(kName.text), end);
    return joined;
  }();

  static constexpr std::array<bool, sizeof...(Args)> kWritten{
      std::is_same_v<Args, at::Tensor&>...};
  static constexpr bool kInPlace = kWritten.front();
  // out= tensors are the last arguments.
  static constexpr std::size_t kOuts =
      kInPlace ? 1
               : static_cast<std::size_t>(
                     std::count(kWritten.begin(), kWritten.end(), true));
  static constexpr std::size_t kIns = sizeof...(Args) - (kInPlace ? 0 : kOuts);
  static constexpr std::size_t kFirstOut = kInPlace ? 0 : kIns;
  static constexpr Outputs::Form kForm = kInPlace ? Outputs::Form::kInplace
                                         : kOuts > 0
                                             ? Outputs::Form::kOut
                                             : Outputs::Form::kFunctional;

  template <std::size_t... kIn, std::size_t... kOut>
  static npu_reason attempt(
      NativeSite& site,
      Outputs& out,
      const std::tuple<Args&...>& all,
      std::index_sequence<kIn...>,
      std::index_sequence<kOut...>) {
    (out.give(static_cast<int>(kOut), std::get<kFirstOut + kOut>(all)), ...);
    return kAttempt(site, out, std::get<kIn>(all)...);
  }
  static R made(Outputs& out) {
    if constexpr (std::is_same_v<R, at::Tensor>) {
      return out.take(0);
    } else {
      return [&]<std::size_t... kOut>(std::index_sequence<kOut...>) {
        return R(out.take(static_cast<int>(kOut))...);
      }
      (std::make_index_sequence<std::tuple_size_v<R>>());
    }
  }
  template <std::size_t... kOut>
  static R given(
      const std::tuple<Args&...>& all, std::index_sequence<kOut...>) {
    if constexpr (std::is_reference_v<R>) {
      return std::get<kFirstOut>(all);
    } else {
      return R(std::get<kFirstOut + kOut>(all)...);
    }
  }
};

// By pointer: what PyTorch makes around a kernel is then compiled once per
// signature, not once per operator.
template <class Op>
void add(torch::Library& m) {
  m.impl(Op::overload(), &Op::call);
}

}  // namespace npu
