// SPDX-License-Identifier: Apache-2.0
// What a profile says of its device besides the overloads it runs.
#pragma once

#include <string>
#include <string_view>

namespace npu::ladder {

// What the device calls itself; empty where the driver's own name stands: with
// a profile that gives none, and with another driver than host unless the user
// chose the profile.
std::string profile_device_name();

// Whether the device refuses what works here, like "channels_last".
bool profile_refuses(std::string_view feature);

// The innermost Python frame of the calling thread; empty when there is none.
std::string current_call_site();

}  // namespace npu::ladder
