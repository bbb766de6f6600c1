// SPDX-License-Identifier: Apache-2.0
// Facts of a profile besides its overloads.
#pragma once

#include <string>
#include <string_view>

namespace npu::profile {

// The folder with profiles/<name>.txt; set once, before the first operator.
void set_data_dir(const std::string& dir);

// "ascend910b", "none" or the path of a profile file.
std::string name();
// One line: "ascend910b: 1100 overloads native, policy warn".
std::string info();

// What the device calls itself; empty where the driver's own name stands: with
// a profile that gives none, and with another driver than host unless the user
// chose the profile.
std::string device_name();

// Whether the device refuses what works here, like "channels_last".
bool refuses(std::string_view feature);

}  // namespace npu::profile
