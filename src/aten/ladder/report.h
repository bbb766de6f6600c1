// SPDX-License-Identifier: Apache-2.0
// What left the driver: one row per overload, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace npu::twin {
struct Entry;
}  // namespace npu::twin

namespace npu::ladder {

struct Row {
  std::string overload;  // as it was called: "aten::fmax"
  std::string reported;  // as Ascend's dispatcher reaches it: "aten::fmax.out"
  int rung = 4;
  // The device counts it as its own: on the host driver rung 4 is the native
  // way for what the profile lists.
  bool native = false;
  std::string reason;
  std::uint64_t calls = 0;
  std::uint64_t wide = 0;     // of them, computed in a wider dtype
  std::uint64_t refused = 0;  // more calls, which raised by the user's policy
  // Rung 2: copied. Rung 4 and 5: of all operands and results.
  std::uint64_t bytes = 0;
  double seconds = 0;  // on the calling thread, arguments and results included
  // "/home/me/train.py:31 in step"; empty when not from Python.
  std::string call_site;
};

// A call that the user's policy refused: it is none of the calls of a row.
void note_refused(const twin::Entry& entry);

// Most time first.
std::vector<Row> report_rows();
// Counters and call sites; what was warned about stays so.
void report_reset();

}  // namespace npu::ladder
