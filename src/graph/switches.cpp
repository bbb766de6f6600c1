// SPDX-License-Identifier: Apache-2.0
// NPU_GRAPH_OFF, read.
#include "graph/switches.h"

#include <algorithm>
#include <vector>

#include "driver/env.h"
#include "driver/status.h"
#include "driver/words.h"
#include "graph/pass.h"

namespace npu::graph {

Switches Switches::read() {
  Switches made;
  const auto value = env::text("NPU_GRAPH_OFF");
  if (!value) {
    return made;
  }
  std::vector<std::string> known{"host_calls", "numbers", "capture"};
  for (const Pass& pass : pass_registry()) {
    known.emplace_back(pass.name);
  }
  for (const std::string& word : split(*value, ',')) {
    if (std::ranges::find(known, word) == known.end()) {
      std::string allowed;
      for (const std::string& name : known) {
        allowed += (allowed.empty() ? "" : ", ") + name;
      }
      std::string text = "npu: environment: NPU_GRAPH_OFF names '" + word;
      text +=
          "', which is not a part of graph mode. Allowed, comma separated: ";
      text += allowed + ".";
      throw Error(NPU_E_INVALID, text);
    }
    made.off_.insert(word);
  }
  return made;
}

}  // namespace npu::graph
