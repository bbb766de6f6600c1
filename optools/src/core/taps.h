// SPDX-License-Identifier: Apache-2.0
// Our kernels in PyTorch's dispatch tables, in front of the real ones.
#pragma once

#include <string>
#include <vector>

#include "core/thread.h"

namespace optools {

// Makes the taps be exactly those on operators with a non-zero mask, on the
// keys of the devices given (a bit per c10::DeviceType). With no devices the
// dispatcher is as it was before. Call under the engine's lock.
void set_taps(const std::vector<ToolMask>& wanted, uint64_t devices);

size_t installed_taps();

// Every operator's registrations and computed table, as text: equal texts are
// equal dispatchers.
std::vector<std::string> dump_dispatcher();

}  // namespace optools
