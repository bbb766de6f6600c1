// SPDX-License-Identifier: Apache-2.0
// Operator packs that were installed, beside those that NPU_OP_PACKS names.
#pragma once

#include <string>

namespace npu {

// load_packs() adds this file too. Before the driver is first used.
void add_pack_file(const std::string& path);

}  // namespace npu
