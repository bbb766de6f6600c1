// SPDX-License-Identifier: Apache-2.0
// What the random tests of kinds are told, and what they found.
#pragma once

#include <cstdint>
#include <string>

namespace npu::kit {

struct KitOptions {
  int cases = 3;           // per code and dtype
  std::uint64_t seed = 0;  // not 0: this case alone
  std::string json;        // where the report is written, for programs
};
KitOptions& options();

struct KindResult {
  int codes = 0;  // declared
  int cases = 0;
  int failed = 0;
  int declined = 0;
  std::string why_declined;  // the last reason
  int without_oracle = 0;
  double worst = 0;
  std::string first_failure;
};
const KindResult& kind_result(const char* kind);

// One test per kind, and one for its bad indices.
void register_kind_tests();

}  // namespace npu::kit
