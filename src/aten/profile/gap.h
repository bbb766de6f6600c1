// SPDX-License-Identifier: Apache-2.0
// What works here and fails on the device that the profile describes: counted,
// and refused as there with NPU_PROFILE_STRICT=1.
#pragma once

#include <c10/core/MemoryFormat.h>

#include <cstdint>
#include <string>
#include <vector>

namespace npu {

// A tensor is about to get this memory format.
void note_memory_format_slow(c10::MemoryFormat format);
inline void note_memory_format(c10::MemoryFormat format) {
  if (format != c10::MemoryFormat::Contiguous &&
      format != c10::MemoryFormat::Preserve) [[unlikely]] {
    note_memory_format_slow(format);
  }
}

// A sparse operator, like "aten::mm", is about to run on the CPU.
void note_sparse(const std::string& overload);

// Counts one use of "sparse aten::mm", where it was.
void count_gap(const std::string& feature);

struct Gap {
  std::string feature;  // "memory_format=channels_last", "float64 aten::mm"
  std::uint64_t calls = 0;
  std::string call_site;
};
std::vector<Gap> gap_rows();
void gap_reset();

}  // namespace npu
