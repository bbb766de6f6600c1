// SPDX-License-Identifier: Apache-2.0
// Looks at a driver's file before the dynamic linker does.
#pragma once

#include <string>

namespace npu {

// Throws Error when `path` is missing, unreadable, no shared library of this
// machine, or cut short. The linker maps a cut file and dies of a bus error, so
// this comes first.
void check_library_file(const std::string& path);

}  // namespace npu
