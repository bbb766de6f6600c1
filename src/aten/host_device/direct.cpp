// SPDX-License-Identifier: Apache-2.0
// When CPU kernels may have npu tensors, and the counting of such calls.
#include "aten/host_device/direct.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "aten/core/recorder.h"
#include "aten/core/site.h"
#include "aten/host_device/cpu_kernels.h"
#include "aten/ladder/check_policy.h"
#include "aten/ladder/count.h"
#include "aten/ladder/watched.h"
#include "driver/services.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/host_work.h"

namespace npu::host_device {
namespace {

// Everything else is the wrappers' business: memory that is opened or copied,
// streams to wait for, a forked child's error, those who hear of single calls
// (log, profiler), and a recorder, which must not see the work of a kernel that
// is on the CPU.
bool is_open(c10::DeviceIndex device) {
  enum State : std::uint8_t { kUnknown, kYes, kNo };
  static std::array<std::atomic<std::uint8_t>, kMaxDevices> known{};
  auto& slot = known[static_cast<std::size_t>(device)];
  std::uint8_t state = slot.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(state == kUnknown)) {
    state = host_code_is_native() && cpu::kernels_available() &&
                    host_shares_memory(device)
                ? kYes
                : kNo;
    slot.store(state, std::memory_order_relaxed);
  }
  return state == kYes && !calls_are_heard() && recorder() == nullptr;
}

// Bits that a kernel would have to look at, and layouts of their own.
bool is_special(const c10::TensorImpl& impl) {
  constexpr c10::DispatchKeySet kBits =
      c10::DispatchKeySet(c10::DispatchKey::Conjugate) |
      c10::DispatchKeySet(c10::DispatchKey::Negative) |
      c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return impl.key_set().has_any(kBits) || has_components(impl) ||
         !impl.has_storage();
}

std::uint64_t bytes_of(const c10::TensorImpl& impl) {
  return static_cast<std::uint64_t>(impl.numel()) * impl.itemsize();
}

}  // namespace

// In one function: the checks are short, and there are many of them.
[[gnu::flatten]] DirectRun::DirectRun(
    Entry& entry,
    npu_reason reason,
    std::initializer_list<const at::Tensor*> inputs)
    : entry_(entry), reason_(reason) {
  ladder::check_policy(entry);
  ladder::check_watched(entry);
  possible_ = look_at(inputs);
  if (possible_) {
    counts_dtypes_ = !entry.dtypes.takes(dtypes_.bits()) &&
                     entry.dtypes.may_run(entry.label.c_str(), dtypes_.bits());
    start_ = ladder::start_of_call(entry);
    note_host_work();
  }
}

bool DirectRun::look_at(std::initializer_list<const at::Tensor*> inputs) {
  const auto is_listed = [this](const at::Tensor* input) {
    return input->defined() && entry_.wide->names(input->scalar_type());
  };
  if (C10_UNLIKELY(
          entry_.wide != nullptr && std::ranges::any_of(inputs, is_listed))) {
    twin::WideInputs seen(*entry_.wide);
    for (const at::Tensor* const input : inputs) {
      seen.next(*input);
    }
    seen.assume_whens();
    if (twin::Wide::plan(seen) != nullptr) {
      return false;
    }
  }
  c10::DeviceIndex device = -1;
  for (const at::Tensor* const* at = inputs.begin(); at != inputs.end(); ++at) {
    const at::Tensor& input = **at;
    // One that was there before is counted once.
    const auto is_input = [&input](const at::Tensor* other) {
      return other->is_same(input);
    };
    if (!input.defined() || std::any_of(inputs.begin(), at, is_input)) {
      continue;
    }
    const c10::TensorImpl& impl = *input.unsafeGetTensorImpl();
    const c10::Device mine = impl.device();
    if (mine.type() != kDeviceType || is_special(impl) ||
        (device >= 0 && mine.index() != device)) {
      return false;
    }
    device = mine.index();
    bytes_ += bytes_of(impl);
    dtypes_.see(to_npu_dtype(input.scalar_type()));
  }
  return device >= 0 && is_open(device);
}

[[gnu::flatten]] void DirectRun::finish(
    std::initializer_list<const at::Tensor*> outputs) {
  for (const at::Tensor* const output : outputs) {
    if (output->defined()) {
      bytes_ += bytes_of(*output->unsafeGetTensorImpl());
    }
  }
  ladder::count_call(entry_, reason_, /*rung=*/4, bytes_, start_);
  if (C10_UNLIKELY(counts_dtypes_)) {
    entry_.dtypes.count(dtypes_.bits());
  }
}

bool is_direct(const at::TensorIteratorBase& iter) {
  const at::ScalarType type = iter.common_dtype();
  for (int i = 0; i < iter.ntensors(); ++i) {
    const at::TensorBase& operand = iter.tensor_base(i);
    if (operand.device().type() != kDeviceType ||
        operand.scalar_type() != type || iter.dtype(i) != type) {
      return false;
    }
  }
  return true;
}

}  // namespace npu::host_device
