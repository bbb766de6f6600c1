// SPDX-License-Identifier: Apache-2.0
// All that depends on PyTorch's internals, and all that may differ between its
// versions (2.11 to 2.15 agree on what is here): a change there is met here,
// at compile time.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <functional>

namespace optools {
struct DispatchTablePeek {};
}  // namespace optools

// OperatorHandle befriends std::hash, the one way to its table that leaves
// nothing behind: getComputedKernelForDispatchKey() adds 64 bytes to the kernel
// with every question, for ever.
template <>
struct std::hash<optools::DispatchTablePeek> {
  static const c10::KernelFunction& kernel(
      const c10::OperatorHandle& handle, c10::DispatchKey key) {
    return handle.operatorDef_->op.lookup(c10::DispatchKeySet(key));
  }
};

namespace optools {

// The kernel a call with this runtime key comes to; there must be one.
inline const c10::KernelFunction& table_kernel(
    const c10::OperatorHandle& handle, c10::DispatchKey key) {
  return std::hash<DispatchTablePeek>::kernel(handle, key);
}

// The same code with the same state? Both must be alive, so that addresses
// mean something. A kernel is four addresses (state, boxed, unboxed, symbolic)
// and its tokens, which do not matter.
inline bool same_kernel(
    const c10::KernelFunction& a, const c10::KernelFunction& b) {
  static_assert(sizeof(c10::KernelFunction) == 5 * sizeof(void*));
  return std::memcmp(
             static_cast<const void*>(&a),
             static_cast<const void*>(&b),
             4 * sizeof(void*)) == 0;
}

// Gives a kernel made from a boxed function, which has no state, the state of
// another: see Note [Torn reads]. A kernel begins with its state.
inline void lend_state(
    c10::KernelFunction& to, const c10::KernelFunction& from) {
  using State = c10::intrusive_ptr<c10::OperatorKernel>;
  static_assert(sizeof(State) == sizeof(void*));
  const auto& state = *reinterpret_cast<const State*>(&from);
  auto& empty = *reinterpret_cast<State*>(&to);
  TORCH_INTERNAL_ASSERT(!empty.defined());
  empty = state;
}

// Gives a kernel made from a boxed function an entrance for callers that know
// its types: `Return(OperatorKernel*, DispatchKeySet, Args...)`, where the
// operator's sizes are symbolic the second one.
inline void set_typed_entrance(
    c10::KernelFunction& kernel, void* code, bool symbolic) {
  static_assert(sizeof(c10::KernelFunction) == 5 * sizeof(void*));
  TORCH_INTERNAL_ASSERT(
      !kernel.isValidUnboxed() && !kernel.isValidSymUnboxed());
  reinterpret_cast<void**>(&kernel)[symbolic ? 3 : 2] = code;
  TORCH_INTERNAL_ASSERT(
      symbolic ? kernel.isValidSymUnboxed() : kernel.isValidUnboxed());
}

inline c10::Device current_device(c10::DeviceType type) {
  return c10::impl::VirtualGuardImpl(type).getDevice();
}

inline c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Is the device's current stream recording a graph? Then nothing may wait for
// it, and what runs is recorded too. PyTorch 2.11 cannot be asked.
template <class Guard = c10::impl::VirtualGuardImpl>
bool records_graph(c10::Device device) {
  const Guard guard(device.type());
  if constexpr (requires {
                  guard.isStreamCapturing(guard.getStream(device));
                }) {
    return guard.isStreamCapturing(guard.getStream(device));
  }
  return false;
}

}  // namespace optools
