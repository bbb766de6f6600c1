// SPDX-License-Identifier: Apache-2.0
// Where in the user's Python program an operator was called.
#pragma once

#include <string>

namespace npu::profile {

// Describes the innermost Python frame of the calling thread; called at the
// first call of an overload, without the GIL, from any thread.
using CallSiteFn = std::string (*)();
void set_call_site_provider(CallSiteFn provider) noexcept;

// "train.py:31 in step"; empty when the call does not come from Python.
std::string current_call_site();

}  // namespace npu::profile
