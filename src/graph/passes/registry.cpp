// SPDX-License-Identifier: Apache-2.0
// The passes: one row each, in the order they run.
#include "graph/pass.h"

// Name (switch, dump, document row), its counters, its sentence.
#define NPU_GRAPH_PASSES(ROW)                                                  \
  ROW(copies,                                                                  \
      "copies_removed",                                                        \
      nullptr,                                                                 \
      "A value that is computed and then copied as a whole over an input is "  \
      "computed there, unless the old content is still needed.")               \
  ROW(dead,                                                                    \
      "dead_removed",                                                          \
      nullptr,                                                                 \
      "Frames whose results are never read are removed.")                      \
  ROW(reuse,                                                                   \
      "reused",                                                                \
      nullptr,                                                                 \
      "List frames whose operand has no later reader compute in the memory "   \
      "of their result: a traced chain of an optimizer works in place again.") \
  ROW(rows,                                                                    \
      "row_fused",                                                             \
      "row_programs",                                                          \
      "Elementwise frames and the sums, means, extremes and sums of squares "  \
      "over the last dimensions that read what they make become one frame of " \
      "kind `program`, code `rows`, where the driver takes it.")               \
  ROW(chains,                                                                  \
      "fused",                                                                 \
      "programs",                                                              \
      "Elementwise frames that follow each other become one frame of kind "    \
      "`program` (lists: `multi_program`): values between them stay in "       \
      "registers, results that are read later are outputs, fills of memory "   \
      "that only they read become numbers.")                                   \
  ROW(tiles,                                                                   \
      "tiled",                                                                 \
      nullptr,                                                                 \
      "A run of list frames is split: all of them for a few entries, then "    \
      "for the next. Operands stay in the cache, and values in between take "  \
      "the memory of a few entries.")

namespace npu::graph {

#define NPU_DECLARE(name, ...)                          \
  namespace passes::name {                              \
  PassStats run(Graph& graph, const PassContext& with); \
  }
NPU_GRAPH_PASSES(NPU_DECLARE)
#undef NPU_DECLARE

std::span<const Pass> pass_registry() {
#define NPU_ROW(name, counter, second, doc) \
  {#name, &passes::name::run, {counter, second}, doc},
  static constexpr Pass kPasses[] = {NPU_GRAPH_PASSES(NPU_ROW)};
#undef NPU_ROW
  return kPasses;
}

}  // namespace npu::graph
