// SPDX-License-Identifier: Apache-2.0
// NPU_GRAPH_OFF: parts of graph mode the user switched off.
#pragma once

namespace npu::graph {

struct Switches {
  bool host_calls = true;  // CPU kernels are called without the dispatcher
  bool numbers = true;     // lists of host numbers are computed without it
  bool copies = true;      // values are computed where they would be copied
  bool dead = true;        // frames nobody needs are left out
  bool reuse = true;       // chains of list frames work in place
  bool chains = true;      // neighbouring elementwise frames are one program
  bool tiles = true;       // list frames are computed a few entries at a time

  // As the variable says now. Throws for a word that is none of them.
  static Switches read();
};

}  // namespace npu::graph
