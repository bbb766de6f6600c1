// SPDX-License-Identifier: Apache-2.0
// Rung 4 without boxing: PyTorch's exported CPU function, called directly, or
// the kernel that the dispatcher has for another twin's key.
//
// Note [Per signature]: these templates depend on a function's signature, not
// on the operator, so that a thousand operators make a few hundred instances.
// What is the same for all of them is in unboxed.cpp and call.cpp.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "aten/ladder/run.h"
#include "aten/ladder/unboxed_rows.h"
#include "aten/twin/call.h"
#include "aten/twin/wrapper_pool.h"

namespace npu::ladder {

using twin::Arg;
using twin::Entry;
using twin::TensorImplPtr;
using twin::TwinCall;

// One call on a twin, the parts that no signature matters for.
class TwinRun {
 public:
  // Applies the user's policy, waits for the current stream where the twin's
  // kernels know no streams. `reach`: one of reaches_of(device).
  TwinRun(
      Entry& operator_entry,
      c10::Device device,
      npu_reason reason,
      const twin::Reach& reach);

  // Once every argument is converted.
  void ready() {
    if (C10_UNLIKELY(!entry.dtypes.takes(call.judged_dtypes()))) {
      judge_dtypes();
    }
    if (C10_UNLIKELY(slow_ || call.wide() != nullptr)) {
      ready_slowly();
    }
  }
  // Gives everything back and counts the call.
  void finish();

 private:
  void judge_dtypes();
  void ready_slowly();
  void show_kernel() const;

  const npu_reason reason_;
  const bool copies_;
  const bool slow_;
  const std::uint64_t start_;
  bool counts_dtypes_ = false;
  std::uint64_t kernel_begin_;  // set and used by slow calls only

 public:
  Entry& entry;
  TwinCall call;
};

// Below autograd as every backend kernel, and nothing casts temporaries.
class BelowAutograd {
 private:
  static constexpr c10::DispatchKeySet kExcluded =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView |
      c10::autocast_dispatch_keyset;
  const c10::impl::ExcludeDispatchKeyGuard guard_{kExcluded};
};

// While a kernel of any twin runs.
class TwinScope {
 public:
  explicit TwinScope(const TwinCall& call)
      : twin_(call.twin()), outer_(twin_.enter(call.device(), call.shim())) {}
  ~TwinScope() {
    twin_.leave(outer_);
  }
  TwinScope(const TwinScope&) = delete;
  TwinScope& operator=(const TwinScope&) = delete;

 private:
  const BelowAutograd below_;
  const twin::Twin& twin_;
  const twin::Twin::Outer outer_;
};

// The same for a CPU function, without a virtual call.
class CpuScope {
 public:
  explicit CpuScope(const TwinCall& call) : shim_(call.shim()) {}

 private:
  const BelowAutograd below_;
  const twin::ShimScope shim_;
};

// The device of the first npu tensor; the current one when there is none.
class DeviceFinder {
 public:
  void see(const at::Tensor& tensor) {
    if (index_ < 0 && tensor.defined() && is_npu(tensor)) {
      index_ = tensor.unsafeGetTensorImpl()->device().index();
    }
  }
  void see(const std::optional<at::Tensor>& tensor) {
    if (tensor) {
      see(*tensor);
    }
  }
  template <class List>
  void see_list(const List& list) {
    for (const auto& item : list) {
      if (index_ >= 0) {
        return;
      }
      see(static_cast<const at::Tensor&>(item));
    }
  }
  void see(at::TensorList list) {
    see_list(list);
  }
  void see(const at::ITensorListRef& list) {
    see_list(list);
  }
  void see(const c10::List<std::optional<at::Tensor>>& list) {
    for (std::size_t i = 0; i < list.size() && index_ < 0; ++i) {
      see(list.get(i));
    }
  }
  template <class Other>
  void see(const Other&) {}

  c10::Device device() const {
    return C10_LIKELY(index_ >= 0) ? c10::Device(kType, index_) : current();
  }

 private:
  static constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
  static bool is_npu(const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->device_type() == kType;
  }
  static c10::Device current();
  c10::DeviceIndex index_ = -1;
};

// Held<T>: an argument of type T while the kernel runs. Tensor types take the
// next row of Entry::args, in order.
template <class T>
class Held {
 public:
  Held(TwinCall&, const Arg*&, std::remove_reference_t<T>& value)
      : value_(value) {}
  T get() {
    return static_cast<T>(value_);
  }

 private:
  std::remove_reference_t<T>& value_;
};

template <>
class Held<std::optional<at::ScalarType>> {
 public:
  Held(TwinCall& call, const Arg*&, std::optional<at::ScalarType> value)
      : value_(
            C10_LIKELY(call.wide() == nullptr) ? value
                                               : call.wide()->stand_in(value)) {
  }
  std::optional<at::ScalarType> get() {
    return value_;
  }

 private:
  std::optional<at::ScalarType> value_;
};

template <>
class Held<const at::Tensor&> {
 public:
  Held(TwinCall& call, const Arg*& arg, const at::Tensor& value)
      : cpu_(TensorImplPtr::reclaim(call.convert(value, *arg++))) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  // The call owns it.
  ~Held() {
    cpu_.unsafeReleaseTensorImpl();
  }
  const at::Tensor& get() {
    return cpu_;
  }

 private:
  at::Tensor cpu_;
};

template <>
class Held<at::Tensor&> {
 public:
  Held(TwinCall& call, const Arg*& arg, at::Tensor& value)
      : cpu_(TensorImplPtr::reclaim_copy(call.convert(value, *arg++))) {}
  at::Tensor& get() {
    return cpu_;
  }

 private:
  at::Tensor cpu_;
};

template <>
class Held<const std::optional<at::Tensor>&> {
 public:
  Held(
      TwinCall& call, const Arg*& arg, const std::optional<at::Tensor>& value) {
    if (value) {
      cpu_.emplace(TensorImplPtr::reclaim_copy(call.convert(*value, *arg)));
    }
    ++arg;
  }
  const std::optional<at::Tensor>& get() {
    return cpu_;
  }

 private:
  std::optional<at::Tensor> cpu_;
};

class HeldList {
 public:
  template <class List>
  HeldList(TwinCall& call, const Arg& arg, const List& list) {
    cpu_.reserve(list.size());
    for (const at::Tensor& item : list) {
      cpu_.emplace_back(TensorImplPtr::reclaim_copy(call.convert(item, arg)));
    }
  }

 protected:
  std::vector<at::Tensor> cpu_;
};

template <>
class Held<at::TensorList> : HeldList {
 public:
  Held(TwinCall& call, const Arg*& arg, at::TensorList value)
      : HeldList(call, *arg++, value) {}
  at::TensorList get() {
    return cpu_;
  }
};

template <>
class Held<const at::ITensorListRef&> : HeldList {
 public:
  Held(TwinCall& call, const Arg*& arg, const at::ITensorListRef& value)
      : HeldList(call, *arg++, value), list_(cpu_) {}
  const at::ITensorListRef& get() {
    return list_;
  }

 private:
  at::ITensorListRef list_;
};

template <>
class Held<const c10::List<std::optional<at::Tensor>>&> {
 public:
  using List = c10::List<std::optional<at::Tensor>>;
  Held(TwinCall& call, const Arg*& arg, const List& value) {
    cpu_.reserve(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::optional<at::Tensor> item = value.get(i);
      cpu_.push_back(
          item ? std::optional(call.to_twin(*item, *arg)) : std::nullopt);
    }
    ++arg;
  }
  const List& get() {
    return cpu_;
  }

 private:
  List cpu_;
};

// Results by value: tensors become npu tensors, numbers stay.
template <class T>
void adopt(TwinCall& call, T& value) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    value = call.to_npu(std::move(value));
  } else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) {
    for (at::Tensor& item : value) {
      item = call.to_npu(std::move(item));
    }
  }
}
template <class... T>
void adopt(TwinCall& call, std::tuple<T...>& values) {
  std::apply([&](T&... value) { (adopt(call, value), ...); }, values);
}

// The tensors a caller passed to be written, in order: what an in-place or
// out= function returns.
template <class T>
auto written([[maybe_unused]] std::remove_reference_t<T>& value) {
  if constexpr (std::is_same_v<T, at::Tensor&>) {
    return std::tuple<at::Tensor&>(value);
  } else {
    return std::tuple<>();
  }
}

template <class R>
struct ReturnsArguments : std::false_type {};
template <>
struct ReturnsArguments<at::Tensor&> : std::true_type {};
template <>
struct ReturnsArguments<const at::Tensor&> : std::true_type {};
template <class... T>
struct ReturnsArguments<std::tuple<at::Tensor&, T...>> : std::true_type {};

// All of a call's arguments. Bases are initialised in order, so they are
// converted from left to right, which a std::tuple would not promise.
template <std::size_t kPosition, class T>
struct HeldAt {
  Held<T> held;
};
template <class Positions, class... Args>
struct HeldAll;
template <std::size_t... kPosition, class... Args>
struct HeldAll<std::index_sequence<kPosition...>, Args...>
    : HeldAt<kPosition, Args>... {
  HeldAll(TwinCall& call, const Arg* arg, Args&... args)
      : HeldAt<kPosition, Args>{Held<Args>(call, arg, args)}... {}
  template <class R>
  R call(R (*fn)(Args...)) {
    return fn(HeldAt<kPosition, Args>::held.get()...);
  }
  template <class R>
  R call(const c10::OperatorHandle& op, c10::DispatchKey key) {
    return op.typed<R(Args...)>().redispatch(
        c10::DispatchKeySet(key), HeldAt<kPosition, Args>::held.get()...);
  }
};

template <class T>
inline constexpr bool can_box =
    std::is_constructible_v<c10::IValue, std::remove_reference_t<T>&>;

// Without `fn`: the kernel of the twin's key, which has the same signature.
template <class R, class... Args>
R call_held(TwinRun& run, const Arg* arg, R (*fn)(Args...), Args&... args) {
  HeldAll<std::index_sequence_for<Args...>, Args...> held(
      run.call, arg, args...);
  run.ready();
  try {
    if constexpr ((can_box<Args> && ...)) {
      if (C10_UNLIKELY(fn == nullptr)) {
        const TwinScope scope(run.call);
        return held.template call<R>(
            run.entry.op,
            run.call.twin().key_of(c10::DispatchKey::PrivateUse1));
      }
    }
    const CpuScope scope(run.call);
    return held.call(fn);
  } catch (...) {
    // As on the CPU, an out= tensor stays as the kernel left it.
    run.call.write_back();
    throw;
  }
}

// Runs `fn`, the CPU function of `entry`'s operator, with npu tensors. A class,
// for one instance per signature that is compiled in one place: see the end of
// this file.
template <class Signature>
struct Unboxed;
template <class R, class... Args>
struct Unboxed<R(Args...)> {
  // Calls `fn`, which may be any host function of this signature.
  static R run(Entry& entry, npu_reason reason, R (*fn)(Args...), Args... args);
  // The operator's own kernel: `fn`, or that of another twin.
  static R run_operator(
      Entry& entry, npu_reason reason, R (*fn)(Args...), Args... args);

 private:
  static R run_on(
      Entry& entry,
      npu_reason reason,
      c10::Device device,
      const twin::Reach& reach,
      R (*fn)(Args...),
      Args&... args);
};

template <class R, class... Args>
R Unboxed<R(Args...)>::run(
    Entry& entry, npu_reason reason, R (*fn)(Args...), Args... args) {
  DeviceFinder finder;
  (finder.see(args), ...);
  const c10::Device device = finder.device();
  return run_on(
      entry, reason, device, twin::reaches_of(device).host, fn, args...);
}

template <class R, class... Args>
R Unboxed<R(Args...)>::run_operator(
    Entry& entry, npu_reason reason, R (*fn)(Args...), Args... args) {
  DeviceFinder finder;
  (finder.see(args), ...);
  const c10::Device device = finder.device();
  if constexpr ((can_box<Args> && ...)) {
    if (C10_UNLIKELY(!twin::uses_cpu_functions())) {
      const twin::Reach& reach =
          choose_reach(entry, c10::DispatchKey::PrivateUse1, device);
      return run_on(entry, reason, device, reach, nullptr, args...);
    }
  }
  return run_on(
      entry, reason, device, twin::reaches_of(device).host, fn, args...);
}

template <class R, class... Args>
R Unboxed<R(Args...)>::run_on(
    Entry& entry,
    npu_reason reason,
    c10::Device device,
    const twin::Reach& reach,
    R (*fn)(Args...),
    Args&... args) {
  TwinRun run(entry, device, reason, reach);
  const Arg* const rows = entry.args.data();
  if (C10_UNLIKELY(entry.wide != nullptr) && reach.twin->widens()) {
    twin::WideInputs inputs(*entry.wide);
    (inputs.next(args), ...);
    run.call.widen(inputs);
  }
  if constexpr (std::is_void_v<R>) {
    call_held<R, Args...>(run, rows, fn, args...);
    run.call.write_back();
    run.finish();
  } else if constexpr (ReturnsArguments<R>::value) {
    call_held<R, Args...>(run, rows, fn, args...);
    run.call.write_back();
    run.finish();
    auto out = std::tuple_cat(written<Args>(args)...);
    if constexpr (std::is_reference_v<R>) {
      return std::get<0>(out);
    } else {
      return out;
    }
  } else {
    R result = call_held<R, Args...>(run, rows, fn, args...);
    run.call.write_back();
    adopt(run.call, result);
    run.finish();
    return result;
  }
}

template <class R, class... Args>
R run_unboxed(Entry& entry, npu_reason reason, R (*fn)(Args...), Args... args) {
  return Unboxed<R(Args...)>::run(
      entry, reason, fn, std::forward<Args>(args)...);
}

// One operator's kernel on the PrivateUse1 key.
class UnboxedKernelBase : public c10::OperatorKernel {
 public:
  explicit UnboxedKernelBase(const c10::OperatorHandle& op) : op_(op) {}
  // A boxed call stays boxed: nothing is unpacked and packed again.
  static void call_boxed(
      c10::OperatorKernel* self,
      const c10::OperatorHandle& op,
      c10::DispatchKeySet,
      torch::jit::Stack* stack);

 protected:
  Entry& entry() {
    Entry* const found = entry_.load(std::memory_order_acquire);
    return C10_LIKELY(found != nullptr) ? *found : find_entry();
  }

 private:
  Entry& find_entry();
  const c10::OperatorHandle op_;
  std::atomic<Entry*> entry_{nullptr};
};

template <class Signature>
class UnboxedKernel;
template <class R, class... Args>
class UnboxedKernel<R(Args...)> final : public UnboxedKernelBase {
 public:
  UnboxedKernel(const c10::OperatorHandle& op, R (*fn)(Args...))
      : UnboxedKernelBase(op), fn_(fn) {}
  R operator()(Args... args) {
    return Unboxed<R(Args...)>::run_operator(
        entry(), NPU_REASON_NO_KERNEL, fn_, std::forward<Args>(args)...);
  }

 private:
  R (*const fn_)(Args...);
};

template <class Signature>
c10::KernelFunction make_unboxed(
    const c10::OperatorHandle& op, UnboxedRow::Function function) {
  using Kernel = UnboxedKernel<Signature>;
  return c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(
      std::make_unique<Kernel>(op, reinterpret_cast<Signature*>(function)));
}
template <class Signature>
UnboxedRow row(const char* name, const char* overload, Signature* function) {
  return {
      name,
      overload,
      reinterpret_cast<UnboxedRow::Function>(function),
      &make_unboxed<Signature>};
}

}  // namespace npu::ladder

// Our functors bring their boxed form; PyTorch's would be made, and compiled,
// once per signature.
namespace c10::impl {
template <class Signature, bool kLegacy>
struct make_boxed_from_unboxed_functor<
    npu::ladder::UnboxedKernel<Signature>,
    kLegacy>
    final {
  static void call(
      OperatorKernel* functor,
      const OperatorHandle& op,
      DispatchKeySet keys,
      torch::jit::Stack* stack) {
    npu::ladder::UnboxedKernelBase::call_boxed(functor, op, keys, stack);
  }
};
}  // namespace c10::impl

// Generated: `extern template struct Unboxed<...>` for every signature of an
// exported CPU function. The files of the tables (unboxed_<i>.cpp) hold the
// instances; adapters only call them.
#include "unboxed_signatures.h"
