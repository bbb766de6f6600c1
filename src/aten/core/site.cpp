// SPDX-License-Identifier: Apache-2.0
// A site's knowledge of its driver, and its counters.
#include "aten/core/site.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "aten/core/frame.h"
#include "aten/core/runner.h"
#include "aten/profile/profile.h"
#include "driver/registry.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"

namespace npu {

// The steps of one site below rung 1, by rung and reasons.
struct Site::Steps {
  std::mutex mutex;
  std::vector<Step> all;
};

namespace {

struct Sites {
  std::mutex mutex;
  std::vector<Site*> all;
};

Sites& sites() {
  static auto* const instance = new Sites;
  return *instance;
}

// What a site remembers when the driver is not to be asked.
constexpr npu_op_caps kNoCaps{};

// The host device imitates another one, which has no kernel for this operator:
// then it goes to the CPU here too, and the user is told, unless the driver was
// asked for every kernel (NPU_HOST_KERNELS=all).
bool imitates_lack_of(const char* overload) {
  return twin_is_native() && !active_driver().wants_every_kernel() &&
         profile::support_of(find_operator(overload)).falls_back;
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
    if (!may_compose(slot_, why)) {
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

void Site::count(const Step& step) {
  count(step.rung);
  Steps* known = steps_.load(std::memory_order_acquire);
  if (known == nullptr) {
    auto made = std::make_unique<Steps>();
    if (steps_.compare_exchange_strong(known, made.get())) {
      known = made.release();
    }
  }
  const std::lock_guard<std::mutex> lock(known->mutex);
  for (Step& mine : known->all) {
    if (mine.rung == step.rung && mine.reasons == step.reasons) {
      mine.calls += step.calls;
      mine.bytes += step.bytes;
      mine.seconds += step.seconds;
      return;
    }
  }
  known->all.push_back(step);
}

std::vector<Site::Step> Site::steps() const {
  Steps* const known = steps_.load(std::memory_order_acquire);
  if (known == nullptr) {
    return {};
  }
  const std::lock_guard<std::mutex> lock(known->mutex);
  return known->all;
}

void Site::reset() {
  for (auto& count : calls_) {
    count.store(0, std::memory_order_relaxed);
  }
  if (Steps* const known = steps_.load(std::memory_order_acquire)) {
    const std::lock_guard<std::mutex> lock(known->mutex);
    known->all.clear();
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
