// SPDX-License-Identifier: Apache-2.0
// Our kernels in PyTorch's dispatch tables, in front of the real ones.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "core/thread.h"

namespace optools {

struct TapPlan {
  std::vector<ToolMask> wanted;  // by Operator::index: who may want it
  std::vector<bool> named;       // by Operator::index: a tool's list has it
  uint64_t devices = 0;          // a bit per c10::DeviceType
};

// Puts taps on the operators a tool may want, on the keys of the devices,
// and takes others away. With an empty plan the dispatcher is as it was before
// the first tap. Call under the engine's lock.
void set_taps(const TapPlan& plan);

size_t installed_taps();

// Does it only call other operators, which have taps of their own?
bool is_composition(const c10::OperatorHandle& handle);

// The tap of a key as it was made, without state or types.
const c10::KernelFunction& boxed_tap(int slot);

// Every operator's registrations and computed table, as text: equal texts are
// equal dispatchers.
std::vector<std::string> dump_dispatcher();

}  // namespace optools
