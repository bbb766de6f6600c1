// SPDX-License-Identifier: Apache-2.0
// Activations: kind unary forward, kind binary backward.
#include "kernels/map.cuh"
#include "shared/map_activation.h"

namespace npu::cuda {
namespace {

using namespace formula;
using namespace formula::activation;

template <class Op>
constexpr bool kHasComplex = false;
template <>
constexpr bool kHasComplex<SigmoidGrad> = true;
template <>
constexpr bool kHasComplex<TanhGrad> = true;

template <class Op>
constexpr bool kFrequent = false;
#define NPU_FREQUENT(op) \
  template <>            \
  constexpr bool kFrequent<op> = true;
NPU_FREQUENT(Relu)
NPU_FREQUENT(Sigmoid)
NPU_FREQUENT(Gelu)
NPU_FREQUENT(GeluTanh)
NPU_FREQUENT(Silu)
NPU_FREQUENT(GeluGrad)
NPU_FREQUENT(GeluTanhGrad)
NPU_FREQUENT(SiluGrad)
NPU_FREQUENT(SigmoidGrad)
NPU_FREQUENT(TanhGrad)
NPU_FREQUENT(ThresholdGrad)
#undef NPU_FREQUENT

const MapRow kUnary[] = {NPU_UNARY_ACTIVATIONS(NPU_MAP_ROW)};
const MapRow kGradients[] = {NPU_BINARY_GRADIENTS(NPU_MAP_ROW)};

}  // namespace

const MapRows kUnaryActivations = kUnary;
const MapRows kBinaryGradients = kGradients;

}  // namespace npu::cuda
