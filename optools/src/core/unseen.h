// SPDX-License-Identifier: Apache-2.0
// Where operators run while a tool sees none: on another device, or by names
// it was not given. What it prints then says why it found nothing.
#pragma once

#include <c10/core/DeviceType.h>

#include <array>
#include <cstdint>

namespace optools {

// By c10::DeviceType.
using CallsByDevice = std::array<uint64_t, c10::COMPILE_TIME_MAX_DEVICE_TYPES>;

// Calls counted before counting stops: a tool that waits for a later step must
// not slow down the steps before it.
inline constexpr uint64_t kMostUnseen = 10000;

// One more tool, or one less, has seen no call yet. While there is one, calls
// are counted by a callback of PyTorch's profiler interface.
void add_blind_tool();
void drop_blind_tool();

// In a forked child: no tool runs.
void forget_blind_tools();

// Counted so far, since the process began.
CallsByDevice calls_by_device();

}  // namespace optools
