// SPDX-License-Identifier: Apache-2.0
// Kind unary_with: one element and up to four scalars.
#include "shared/map_scalar.h"

#include "kernels/map.h"
#include "kernels/special.h"

namespace npu::host {
namespace {

using namespace formula;
using namespace formula::scalar;

NPU_MAP1(Polygamma, s.a == 1 ? trigamma(x) : polygamma(s.a, x))

constexpr MapRow kRows[] = {
    NPU_UNARY_WITH_ROWS(NPU_MAP_ROW) map_row<
        NPU_UNARY_WITH_POLYGAMMA,
        Polygamma,
        formula::scalar::kPromoted>(),
};

}  // namespace

const std::span<const MapRow> kUnaryWithRows = kRows;

}  // namespace npu::host
