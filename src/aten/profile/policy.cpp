// SPDX-License-Identifier: Apache-2.0
// The fallback policy, and the provider of call sites.
#include "aten/profile/policy.h"

#include <c10/util/Exception.h>

#include <atomic>

#include "aten/profile/call_site.h"
#include "driver/env.h"
#include "runtime/error.h"

namespace npu::profile {
namespace {

std::atomic<CallSiteFn> call_site{nullptr};

struct Switches {
  std::atomic<Policy> policy;
  std::atomic<const char*> forbidden_by;

  Switches() {
    try {
      forbidden_by = "NPU_FALLBACK=error";
      policy = static_cast<Policy>(
          env::choice("NPU_FALLBACK", {"warn", "silent", "error"}, 0));
      if (env::flag("TORCH_NPU_FALLBACK_CPU_DISABLE", false)) {
        forbidden_by = "TORCH_NPU_FALLBACK_CPU_DISABLE=1";
        policy = Policy::kError;
      }
    } catch (const Error& error) {
      TORCH_CHECK(false, error.what(), pta_error(Code::kValue));
    }
  }
};

Switches& switches() {
  static auto* const instance = new Switches;
  return *instance;
}

}  // namespace

Policy policy() {
  return switches().policy.load(std::memory_order_relaxed);
}

void store_policy(Policy policy) {
  switches().policy.store(policy);
  switches().forbidden_by = "torch.npu's fallback policy 'error'";
}

const char* forbidden_by() {
  return switches().forbidden_by.load();
}

bool strict() {
  static const bool value = [] {
    try {
      return env::flag("NPU_PROFILE_STRICT", false);
    } catch (const Error& error) {
      TORCH_CHECK(false, error.what(), pta_error(Code::kValue));
    }
  }();
  return value;
}

std::string current_call_site() {
  const CallSiteFn provider = call_site.load();
  return provider == nullptr ? std::string() : provider();
}

void set_call_site_provider(CallSiteFn provider) noexcept {
  call_site.store(provider);
}

}  // namespace npu::profile
