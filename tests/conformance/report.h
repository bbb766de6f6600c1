// SPDX-License-Identifier: Apache-2.0
// The table at the end of a run: what passes, what is missing, what to do next.
#pragma once

namespace npu::kit {

void install_report();

}  // namespace npu::kit
