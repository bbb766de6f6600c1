// SPDX-License-Identifier: Apache-2.0
// NPU_GRAPH_OFF, read.
#include "graph/switches.h"

#include <string>
#include <utility>

#include "driver/env.h"
#include "driver/status.h"
#include "driver/words.h"

namespace npu::graph {

Switches Switches::read() {
  Switches made;
  const auto value = env::text("NPU_GRAPH_OFF");
  if (!value) {
    return made;
  }
  const std::pair<const char*, bool*> all[] = {
      {"host_calls", &made.host_calls},
      {"numbers", &made.numbers},
      {"copies", &made.copies},
      {"dead", &made.dead},
      {"reuse", &made.reuse},
      {"chains", &made.chains},
      {"tiles", &made.tiles}};
  for (const std::string& word : split(*value, ',')) {
    bool known = false;
    for (const auto& [name, on] : all) {
      if (word == name) {
        *on = false;
        known = true;
      }
    }
    if (!known) {
      throw Error(
          NPU_E_INVALID,
          "npu: environment: NPU_GRAPH_OFF names '" + word +
              "', which is no part of graph mode. Allowed, comma separated: "
              "host_calls, numbers, copies, dead, reuse, chains, tiles.");
    }
  }
  return made;
}

}  // namespace npu::graph
