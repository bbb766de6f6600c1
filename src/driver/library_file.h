// SPDX-License-Identifier: Apache-2.0
// Opens drivers and packs; looks at the file before the dynamic linker does.
#pragma once

#include <cstdint>
#include <string>

namespace npu {

// Throws Error when `path` is missing, unreadable, no shared library of this
// machine, or cut short. The linker maps a cut file and dies of a bus error, so
// this comes first.
// `what` names it in the text: "driver", "operator pack".
void check_library_file(const std::string& path, const char* what);
// The symbol `entry` of the library at `path`, which is loaded for ever. Throws
// Error when it does not load or has no such symbol.
void* open_library(
    const std::string& path, const char* what, const char* entry);

// An abi number as "major.minor".
std::string version_text(std::uint32_t abi);

}  // namespace npu
