// SPDX-License-Identifier: Apache-2.0
// What left the driver: one row per overload, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  std::uint64_t bytes = 0;  // of all operands and results; rung 4 and 5
  double seconds = 0;  // on the calling thread, arguments and results included
  std::string call_site;  // "train.py:31 in step"; empty when not from Python
};

// Most time first.
std::vector<Row> report_rows();
// Counters and call sites; what was warned about stays so.
void report_reset();

enum class Policy { kWarn, kSilent, kError };
// NPU_FALLBACK (or TORCH_NPU_FALLBACK_CPU_DISABLE=1) until set.
Policy policy();
void set_policy(Policy policy);

// Describes the innermost Python frame of the calling thread; called at the
// first call of an overload, without the GIL, from any thread.
using CallSiteFn = std::string (*)();
void set_call_site_provider(CallSiteFn provider) noexcept;

// The folder with profiles/<name>.txt; set once, before the first operator.
void set_data_dir(const std::string& dir);
// "ascend910b", "none" or the path of a profile file.
std::string profile_name();
// One line: "ascend910b: 1100 overloads native, policy warn".
std::string profile_info();

// What the profile says about an overload, or about all overloads of a name;
// empty when there is no such operator.
struct Explanation {
  std::string overload;
  std::string resolved;
  bool falls_back;
  std::string profile;
};
std::vector<Explanation> explain_operator(const std::string& name);

}  // namespace npu::ladder
