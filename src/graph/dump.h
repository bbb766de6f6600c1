// SPDX-License-Identifier: Apache-2.0
// NPU_GRAPH_DUMP=folder: the nodes of a recording as text and as Graphviz.
#pragma once

#include <cstdint>
#include <string>

#include "graph/graph.h"

namespace npu::graph {

// One line per node: "3 frame binary.add (aten::add.Tensor) ... reads b0 writes
// b2+64", then one per buffer.
std::string text_of(const Graph& graph);
// The same as a graph in Graphviz's language: an arrow from the node that wrote
// a buffer to each that reads it.
std::string dot_of(const Graph& graph);

// The files of one recording: <folder>/<process>-<recording>.<step>.<name>.txt
// and .dot. Writes nothing unless NPU_GRAPH_DUMP names a folder; a folder that
// cannot be written is logged, and recordings go on.
class Dump {
 public:
  // Writes step 0, "recorded".
  explicit Dump(const Graph& graph);
  void write(const Graph& graph, const char* pass);

 private:
  std::string prefix_;  // empty: off
  std::uint32_t step_ = 0;
};

}  // namespace npu::graph
