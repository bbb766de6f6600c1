// SPDX-License-Identifier: Apache-2.0
// Activations: kinds unary and unary_with forward, kind binary backward.
#include "shared/map_activation.h"

#include "kernels/map.h"

namespace npu::host {
namespace {

using namespace formula;
using namespace formula::activation;

constexpr MapRow kUnary[] = {NPU_UNARY_ACTIVATIONS(NPU_MAP_ROW)};
constexpr MapRow kGradients[] = {NPU_BINARY_GRADIENTS(NPU_MAP_ROW)};

}  // namespace

const std::span<const MapRow> kUnaryActivations = kUnary;
const std::span<const MapRow> kBinaryGradients = kGradients;

}  // namespace npu::host
