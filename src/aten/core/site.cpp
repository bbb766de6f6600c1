// SPDX-License-Identifier: Apache-2.0
// Asking the driver: cheaply first, then with a frame.
#include "aten/core/site.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>
#include <vector>

#include "aten/core/determinism.h"
#include "aten/core/frame.h"
#include "aten/core/mend.h"
#include "aten/profile/profile.h"
#include "compose/compose.h"
#include "driver/env.h"
#include "driver/registry.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu {
namespace {

struct Sites {
  std::mutex mutex;
  std::vector<Site*> all;
};

Sites& sites() {
  static auto* const instance = new Sites;
  return *instance;
}

// A driver may ask for one mending after another; more rounds than there are
// sorts of them would be a driver that never has enough.
constexpr int kMostMendings = 4;

npu_reason reason_of(const npu_verdict& verdict) {
  return verdict.reason == NPU_REASON_NONE ? npu_reason{NPU_REASON_NO_KERNEL}
                                           : verdict.reason;
}

// The operands of a frame before they were mended.
class Originals {
 public:
  explicit Originals(npu_call& frame)
      : frame_(frame), compute_dtype_(frame.compute_dtype) {
    std::copy_n(frame.tensors, frame.n_out + frame.n_in, tensors_.begin());
  }
  void restore() const {
    // The frame's array is the call's own.
    std::copy_n(
        tensors_.begin(),
        frame_.n_out + frame_.n_in,
        const_cast<npu_tensor*>(frame_.tensors));
    frame_.compute_dtype = compute_dtype_;
  }

 private:
  npu_call& frame_;
  const npu_dtype compute_dtype_;
  std::array<npu_tensor, NPU_MAX_OPERANDS> tensors_;
};

// Mends until the driver is content. NPU_REASON_NONE when it is; `mended` says
// what had to be done for it.
npu_reason plan_frame(
    Call& call,
    Mender& mender,
    npu_device device,
    std::uint64_t casts,
    npu_verdict& verdict,
    npu_reason& mended) {
  verdict = npu_verdict{};
  if (casts == 0) {
    verdict = plan_call(call, active_driver(), device);
    if (C10_LIKELY(verdict.answer == NPU_VERDICT_YES)) {
      return NPU_REASON_NONE;
    }
  } else {
    verdict.answer = NPU_VERDICT_IF_CAST;
    verdict.reason = NPU_REASON_DTYPE;
    verdict.cast_dtype = call.frame().compute_dtype;
    verdict.mask = casts;
  }
  const Originals originals(call.frame());
  mended = reason_of(verdict);
  for (int round = 0; verdict.answer != NPU_VERDICT_YES; ++round) {
    if (verdict.answer == NPU_VERDICT_NO || round > kMostMendings ||
        !mender.mend(call, verdict)) {
      originals.restore();
      return reason_of(verdict);
    }
    verdict = plan_call(call, active_driver(), device);
  }
  return NPU_REASON_NONE;
}

// Rungs 1 and 2. NPU_REASON_NONE when it was queued, `mended` then says what
// had to be mended; else the frame is as it was.
npu_reason run_frame(
    Call& call,
    c10::DeviceIndex device,
    std::uint64_t casts,
    npu_reason& mended) {
  npu_call& frame = call.frame();
  Mender mender(active_driver(), device);
  npu_verdict verdict;
  const npu_reason why =
      plan_frame(call, mender, driver_device(device), casts, verdict, mended);
  if (why != NPU_REASON_NONE) {
    return why;
  }
  c10::DataPtr workspace;
  if (verdict.workspace_bytes != 0) {
    workspace = allocate(verdict.workspace_bytes, device);
    frame.workspace = workspace.get();
    frame.workspace_bytes = verdict.workspace_bytes;
  }
  std::vector<std::max_align_t> host_workspace(
      (verdict.host_workspace_bytes + sizeof(std::max_align_t) - 1) /
      sizeof(std::max_align_t));
  if (!host_workspace.empty()) {
    frame.host_workspace = host_workspace.data();
    frame.host_workspace_bytes = verdict.host_workspace_bytes;
  }
  check_driver(
      call.run(active_driver(), current_stream_handle(device)), frame.label);
  mender.finish();
  return NPU_REASON_NONE;
}

// The parts of a decomposition.
class PartRunner final : public compose::Runner {
 public:
  explicit PartRunner(c10::DeviceIndex device) : device_(device) {}
  void* allocate(std::uint64_t bytes) override {
    return memory_.emplace_back(npu::allocate(bytes, device_)).get();
  }
  bool run(Call& call) override {
    npu_reason mended = NPU_REASON_NONE;
    return run_frame(call, device_, 0, mended) == NPU_REASON_NONE;
  }

 private:
  const c10::DeviceIndex device_;
  // Goes back in the order of the stream.
  std::vector<c10::DataPtr> memory_;
};

// Rung 3: a kind the driver lacks or declines, made of others. Not on the host
// driver, whose parts are CPU kernels themselves, unless the user switched the
// kind off.
bool composes(std::uint32_t slot, npu_reason why) {
  return compose::has_decomposition(slot) &&
         (why == NPU_REASON_DISABLED || &active_driver() != &host_driver());
}

npu_reason run_composed(
    Site& site, Call& call, c10::DeviceIndex device, npu_reason why) {
  PartRunner runner(device);
  if (!compose::run(runner, call.frame())) {
    return why;
  }
  site.count(3);
  return NPU_REASON_NONE;
}

}  // namespace

namespace {

// What a site remembers when the driver is not to be asked.
constexpr npu_op_caps kNoCaps{};

// The host device imitates another one, which has no kernel for this operator:
// then it goes to the CPU here too, and the user is told. NPU_HOST_KERNELS=all
// asks for every kernel all the same.
bool imitates_lack_of(const char* overload) {
  static const bool all =
      env::choice("NPU_HOST_KERNELS", {"fast", "all"}, 0) == 1;
  return !all && std::string_view(active_driver().name()) == "host" &&
         profile::judge(find_operator(overload)).falls_back;
}

}  // namespace

c10::OperatorHandle find_operator(const char* overload) {
  const std::string_view name(overload);
  const auto dot = name.find('.', name.find("::"));
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      std::string(name.substr(0, dot)).c_str(),
      dot != std::string_view::npos ? overload + dot + 1 : "");
}

Site::Site(StaticName overload, std::uint32_t slot, std::uint32_t code)
    : overload_(overload), slot_(slot), code_(code) {
  const std::lock_guard<std::mutex> lock(sites().mutex);
  sites().all.push_back(this);
}

const npu_op_caps* Site::find_caps() const {
  const npu_op_caps* found = active_driver().caps(slot_, code_);
  if (found == nullptr || imitates_lack_of(overload_)) {
    found = &kNoCaps;
  }
  caps_.store(found, std::memory_order_release);
  return found;
}

const npu_op_caps* Site::caps() const {
  if (C10_UNLIKELY(active_driver().is_disabled(slot_))) {
    return nullptr;
  }
  const npu_op_caps* const known = caps_.load(std::memory_order_acquire);
  const npu_op_caps* const can =
      C10_LIKELY(known != nullptr) ? known : find_caps();
  return can != &kNoCaps ? can : nullptr;
}

npu_reason Site::wants_all(
    std::initializer_list<const at::Tensor*> tensors) const {
  const npu_op_caps* const can = caps();
  if (can == nullptr) {
    const npu_reason why = active_driver().is_disabled(slot_)
                               ? NPU_REASON_DISABLED
                               : NPU_REASON_NO_KERNEL;
    if (!composes(slot_, why)) {
      return why;
    }
  }
  std::int64_t numel = 0;
  npu_dtype dtype = NPU_ABSENT;
  c10::DeviceIndex device = -1;
  for (const at::Tensor* const tensor : tensors) {
    if (tensor == nullptr || !tensor->defined()) {
      continue;
    }
    const c10::TensorImpl& impl = *tensor->unsafeGetTensorImpl();
    if (impl.device_type() != kDeviceType) {
      // The CPU rung checks what may come from the host, and how.
      if (impl.device_type() != c10::DeviceType::CPU || impl.dim() != 0) {
        return NPU_REASON_NO_KERNEL;
      }
    } else if (device >= 0 && impl.device().index() != device) {
      return NPU_REASON_NO_KERNEL;
    } else {
      device = impl.device().index();
    }
    if (has_components(impl) || !impl.has_storage()) {
      return NPU_REASON_FORMAT;
    }
    numel = std::max(numel, impl.numel());
    if (dtype == NPU_ABSENT) {
      dtype = to_npu_dtype(tensor->scalar_type());
    }
  }
  if (device < 0 || numel == 0) {
    return NPU_REASON_SIZE;
  }
  return can == nullptr || wants_size(*can, dtype, numel) ? NPU_REASON_NONE
                                                          : NPU_REASON_SLOWER;
}

npu_reason Site::run(Call& call, c10::DeviceIndex device, std::uint64_t casts) {
  npu_reason mended = NPU_REASON_NONE;
  const npu_reason why = run_frame(call, device, casts, mended);
  if (why != NPU_REASON_NONE) {
    return composes(slot_, why) ? run_composed(*this, call, device, why) : why;
  }
  if (mended != NPU_REASON_NONE) {
    mended_for_.store(mended, std::memory_order_relaxed);
  }
  count(mended == NPU_REASON_NONE ? 1 : 2);
  return NPU_REASON_NONE;
}

void Site::reset() noexcept {
  for (auto& count : calls_) {
    count.store(0, std::memory_order_relaxed);
  }
}

void for_each_site(const std::function<void(Site&)>& visit) {
  std::vector<Site*> all;
  {
    const std::lock_guard<std::mutex> lock(sites().mutex);
    all = sites().all;
  }
  for (Site* const site : all) {
    visit(*site);
  }
}

}  // namespace npu
