// SPDX-License-Identifier: Apache-2.0
// The user's policy, torch_npu's words.
#include "aten/ladder/policy.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <unordered_set>

#include "aten/ladder/profile.h"
#include "aten/ladder/profile_facts.h"
#include "aten/ladder/report.h"
#include "driver/env.h"
#include "runtime/error.h"

namespace npu::ladder {
namespace {

std::atomic<CallSiteFn> call_site{nullptr};

struct Switches {
  std::atomic<Policy> policy;
  std::atomic<const char*> forbidden_by;  // what the error names

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

// The warning of the fault page, byte for byte.
std::string caution(const std::string& name) {
  return "CAUTION: The operator '" + name +
         "' is not currently supported on the NPU backend and will fall back "
         "to "
         "run on the CPU. This may have performance implications.";
}

// True for the first asker: fmax and fmax.out are one overload to the user.
bool claim_warning(const std::string& reported) {
  static auto* const mutex = new std::mutex;
  static auto* const seen = new std::unordered_set<std::string>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return seen->insert(reported).second;
}

Judgement judge_label(const Entry& entry) {
  if (entry.label == full_name(entry.op.operator_name())) {
    return judge(entry.op);
  }
  const auto dot = entry.label.find('.', entry.label.find("::"));
  const bool overloaded = dot != std::string::npos;
  const auto named = c10::Dispatcher::singleton().findSchema(
      {entry.label.substr(0, dot),
       overloaded ? entry.label.substr(dot + 1) : std::string()});
  return named ? judge(*named) : Judgement{entry.label, false};
}

}  // namespace

void settle_first(Entry& entry) {
  const Policy what = policy();
  std::string site = current_call_site();
  bool warns = false;
  {
    const std::lock_guard<std::mutex> lock(entry.mutex);
    if (!entry.judged) {
      const Judgement judgement = judge_label(entry);
      entry.reported = judgement.reported;
      entry.falls_back = judgement.falls_back;
      entry.judged = true;
    }
    if (entry.call_site.empty()) {
      entry.call_site = std::move(site);
    }
    TORCH_CHECK(
        what != Policy::kError || !entry.falls_back,
        "The operator '",
        entry.reported,
        "' would execute its main computation on CPU through dispatcher "
        "backend fallback because no kernel is registered for the NPU "
        "PrivateUse1 backend, but CPU fallback is disabled by ",
        switches().forbidden_by.load(),
        ".",
        ops_error(Code::kNotSupported));
    warns = what == Policy::kWarn && entry.falls_back && !entry.warned;
    entry.warned |= warns;
    entry.settled.store(true, std::memory_order_release);
  }
  if (warns && warnings_enabled() && claim_warning(entry.reported)) {
    warn(caution(entry.reported), "npu_cpu_fallback", __FILE__, __LINE__);
  }
}

Policy policy() {
  return switches().policy.load(std::memory_order_relaxed);
}

void set_policy(Policy policy) {
  switches().policy.store(policy);
  switches().forbidden_by = "torch.npu's fallback policy 'error'";
  for_each_entry([](Entry& entry) { entry.settled.store(false); });
}

std::string current_call_site() {
  const CallSiteFn provider = call_site.load();
  return provider == nullptr ? std::string() : provider();
}

void set_call_site_provider(CallSiteFn provider) noexcept {
  call_site.store(provider);
}

}  // namespace npu::ladder
