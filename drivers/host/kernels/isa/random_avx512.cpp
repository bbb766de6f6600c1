// SPDX-License-Identifier: Apache-2.0
// Random loops for the avx512 instruction set.
#define NPU_ISA isa_avx512
#define NPU_RANDOM_LANES 8
#include "kernels/isa/random.inc"
