// SPDX-License-Identifier: Apache-2.0
// A driver that ends the process: the kit says which test was running.
#pragma once

#include <string>

namespace npu::kit {

// From now on a fatal signal prints what runs and ends the kit with status 3.
void install_crash_report();
// The test, and the case in it ("" when there is none).
void note_test(const std::string& test);
void note_case(const std::string& text);

}  // namespace npu::kit
