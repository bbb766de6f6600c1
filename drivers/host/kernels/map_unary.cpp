// SPDX-License-Identifier: Apache-2.0
// Kind unary: arithmetic, rounding, elementary functions, predicates.
#include "shared/map_unary.h"

#include "kernels/map.h"

namespace npu::host {
namespace {

using namespace formula;
using namespace formula::unary;

constexpr MapRow kRows[] = {NPU_UNARY_ELEMENTARY(NPU_MAP_ROW)};

}  // namespace

const std::span<const MapRow> kUnaryElementary = kRows;

}  // namespace npu::host
