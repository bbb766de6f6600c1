// SPDX-License-Identifier: Apache-2.0
// A driver that ends the process, or never answers: the kit says which test was
// running.
#pragma once

#include <string>

namespace npu::kit {

// From now on a fatal signal prints what runs and ends the kit with status 3; a
// test or case that takes longer than `seconds` does the same with status 4.
void install_crash_report(unsigned seconds);
// The test, and the case in it ("" when there is none).
void note_test(const std::string& test);
void note_case(const std::string& text);

}  // namespace npu::kit
