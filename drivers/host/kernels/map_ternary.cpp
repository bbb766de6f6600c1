// SPDX-License-Identifier: Apache-2.0
// Kind ternary: three elements in, one or two out.
#include "shared/map_ternary.h"

#include "kernels/map.h"

namespace npu::host {
namespace {

using namespace formula;
using namespace formula::ternary;

constexpr MapRow kRows[] = {NPU_TERNARY_ROWS(NPU_MAP_ROW)};

}  // namespace

const std::span<const MapRow> kTernaryRows = kRows;

}  // namespace npu::host
