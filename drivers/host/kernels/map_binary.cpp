// SPDX-License-Identifier: Apache-2.0
// Kinds binary and compare: arithmetic, bits, logic and comparisons.
#include "shared/map_binary.h"

#include "kernels/map.h"

namespace npu::host {
namespace {

using namespace formula;
using namespace formula::binary;

constexpr MapRow kBinary[] = {NPU_BINARY_ARITHMETIC(NPU_MAP_ROW)};
constexpr MapRow kCompare[] = {NPU_COMPARE_ROWS(NPU_MAP_ROW)};

}  // namespace

const std::span<const MapRow> kBinaryArithmetic = kBinary;
const std::span<const MapRow> kCompareRows = kCompare;

}  // namespace npu::host
