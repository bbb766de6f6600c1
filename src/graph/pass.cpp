// SPDX-License-Identifier: Apache-2.0
// Running passes over a recording's nodes.
#include "graph/pass.h"

#include <exception>
#include <mutex>
#include <set>

#include "driver/services.h"
#include "graph/dump.h"
#include "npu/validate.h"

namespace npu::graph {
namespace {

// Once per pass and process.
void report_failure(const Pass& pass, const std::string& why) {
  static std::mutex mutex;
  static std::set<std::string> reported;
  const std::lock_guard<std::mutex> lock(mutex);
  if (reported.insert(pass.name).second) {
    log(3,
        std::string("npu: graph: pass ") + pass.name + " failed: " + why +
            ". The recording goes on without it; NPU_GRAPH_OFF=" + pass.name +
            " switches it off.");
  }
}

// Empty, or why the passes have to run again without `failed`.
std::string run_one(
    Graph& graph, const PassContext& context, const Pass& pass, PassRun& made) {
  try {
    made = {&pass, pass.run(graph, context)};
    return check_places(graph);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

bool PassContext::may_write_over(
    const npu_call& frame, std::uint32_t list) const {
  const npu_op_caps* const found =
      caps == nullptr ? nullptr : caps(frame.slot, frame.code);
  const npu_kind_info* const kind = npu_kind_of(frame.slot);
  if (found == nullptr || kind == nullptr ||
      (found->flags & NPU_CAP_ALIAS) == 0) {
    return false;
  }
  // alias_mask counts inputs.
  std::uint32_t input = 0;
  for (std::uint32_t i = 0; i < list && i < kind->n_lists; ++i) {
    const auto& info = kind->operands[kind->n_out + kind->n_in + i];
    input += info.mode == NPU_MODE_OUT ? 0 : 1;
  }
  return input < 64 && (found->alias_mask >> input & 1) != 0;
}

std::vector<PassRun> run_passes(
    Graph& graph,
    const PassContext& context,
    const Switches& on,
    std::span<const Pass> rows) {
  const Graph recorded = graph;
  std::set<const Pass*> failed;
  for (;;) {
    std::vector<PassRun> made;
    Dump dump(graph);
    bool complete = true;
    for (const Pass& pass : rows) {
      if (!on.is_on(pass.name) || failed.contains(&pass)) {
        continue;
      }
      PassRun run{};
      const std::string why = run_one(graph, context, pass, run);
      if (!why.empty()) {
        report_failure(pass, why);
        failed.insert(&pass);
        graph = Graph(recorded);
        complete = false;
        break;
      }
      dump.write(graph, pass.name);
      made.push_back(std::move(run));
    }
    if (complete) {
      return made;
    }
  }
}

}  // namespace npu::graph
