// SPDX-License-Identifier: Apache-2.0
// Pass chains: neighbouring elementwise frames become one program.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "graph/chain.h"
#include "graph/graph.h"

namespace npu::graph {

struct Fused {
  std::uint32_t frames = 0;    // that went
  std::uint32_t programs = 0;  // that came
};

// Frames that follow each other with nothing in between become a frame of kind
// program or multi_program, where the last of them was; fills of memory that
// only they read become numbers of the program. `movable` as in passes.h;
// `devices` by buffer; `take` asks the driver.
using TakeOnDevice =
    std::function<std::optional<PlanHandle>(Call& call, std::int32_t device)>;
Fused fuse_chains(
    Graph& graph,
    const std::vector<bool>& movable,
    const std::vector<std::int32_t>& devices,
    const TakeOnDevice& take);

}  // namespace npu::graph
