// SPDX-License-Identifier: Apache-2.0
// The user's policy, torch_npu's words.
#include "aten/ladder/check_policy.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <unordered_set>

#include "aten/ladder/forward_line.h"
#include "aten/ladder/report.h"
#include "aten/profile/call_site.h"
#include "aten/profile/profile.h"
#include "runtime/error.h"

namespace npu::ladder {
namespace {

// The warning of the fault page, byte for byte.
// torch_npu says it in other words for the two CSR reductions it runs on the
// CPU itself.
std::string caution(const std::string& name) {
  const bool csr = name == "aten::_sparse_csr_sum.dim_dtype" ||
                   name == "aten::_sparse_csr_prod.dim_dtype";
  return "CAUTION: The operator '" + name +
         "' is not currently supported on the NPU backend and will fall back "
         "to " +
         (csr ? "CPU" : "run on the CPU") +
         ". This may have performance implications.";
}

// True for the first asker: fmax and fmax.out are one overload to the user.
bool claim_warning(const std::string& reported) {
  static auto* const mutex = new std::mutex;
  static auto* const seen = new std::unordered_set<std::string>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return seen->insert(reported).second;
}

profile::Support support_of_label(const Entry& entry) {
  if (entry.label == full_name(entry.op.operator_name())) {
    return profile::support_of(entry.op);
  }
  const auto dot = entry.label.find('.', entry.label.find("::"));
  const bool overloaded = dot != std::string::npos;
  const auto named = c10::Dispatcher::singleton().findSchema(
      {entry.label.substr(0, dot),
       overloaded ? entry.label.substr(dot + 1) : std::string()});
  return named ? profile::support_of(*named)
               : profile::Support{entry.label, false};
}

}  // namespace

void check_policy_first(Entry& entry) {
  const profile::Policy what = profile::policy();
  std::string site = forward_call_site();
  if (site.empty()) {
    site = profile::current_call_site();
  }
  bool warns = false;
  {
    const std::lock_guard<std::mutex> lock(entry.mutex);
    if (!entry.profile_known) {
      const profile::Support support = support_of_label(entry);
      entry.reported = support.reported;
      entry.falls_back = support.falls_back;
      entry.profile_known = true;
    }
    if (entry.call_site.empty()) {
      entry.call_site = std::move(site);
    }
    const bool refused = what == profile::Policy::kError && entry.falls_back;
    if (refused) {
      note_refused(entry);
    }
    TORCH_CHECK(
        !refused,
        "The operator '",
        entry.reported,
        "' would execute its main computation on CPU through dispatcher "
        "backend fallback because no kernel is registered for the NPU "
        "PrivateUse1 backend, but CPU fallback is disabled by ",
        profile::forbidden_by(),
        ".",
        ops_error(Code::kNotSupported));
    warns = what == profile::Policy::kWarn && entry.falls_back && !entry.warned;
    entry.warned |= warns;
    entry.policy_checked.store(true, std::memory_order_release);
  }
  if (warns && warnings_enabled() && claim_warning(entry.reported)) {
    warn(caution(entry.reported), "npu_cpu_fallback", __FILE__, __LINE__);
  }
}

void set_policy(profile::Policy policy) {
  profile::store_policy(policy);
  twin::for_each_entry([](Entry& entry) { entry.policy_checked.store(false); });
}

}  // namespace npu::ladder
