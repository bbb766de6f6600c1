// SPDX-License-Identifier: Apache-2.0
// NPU_GRAPH_OFF: parts of graph mode the user switched off.
#pragma once

#include <set>
#include <string>

namespace npu::graph {

class Switches {
 public:
  // As the variable says now. Throws for a word that is neither a pass nor one
  // of the parts below.
  static Switches read();

  // Parts that are no passes:
  //   host_calls  kernels of the processor are called without the dispatcher
  //   numbers     lists of numbers on the host are computed without it
  //   capture     frames go into graphs of the device (capture/1)
  bool is_on(const std::string& name) const {
    return !off_.contains(name);
  }

 private:
  std::set<std::string> off_;
};

}  // namespace npu::graph
