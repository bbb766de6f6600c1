// SPDX-License-Identifier: Apache-2.0
// From a site to the CPU rungs.
#include "aten/ladder/native.h"

#include <typeinfo>

#include "aten/ladder/run.h"
#include "runtime/error.h"

namespace npu {

void NativeSite::run_boxed(npu_reason why, torch::jit::Stack* stack) {
  ladder::run_boxed(entry(), c10::DispatchKey::PrivateUse1, stack, why);
}

void NativeSite::raise_with_parameter_line(const c10::Error& error) {
  if (typeid(error) != typeid(c10::Error)) {
    throw;
  }
  throw c10::Error(
      {__func__, __FILE__, __LINE__}, error.msg() + ops_error(Code::kParam));
}

twin::Entry& NativeSite::entry() {
  twin::Entry* found = entry_.load(std::memory_order_acquire);
  if (C10_UNLIKELY(found == nullptr)) {
    found = &twin::entry_for(find_operator(overload()));
    entry_.store(found, std::memory_order_release);
  }
  return *found;
}

}  // namespace npu
