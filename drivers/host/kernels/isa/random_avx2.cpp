// SPDX-License-Identifier: Apache-2.0
// Random loops for the avx2 instruction set.
#define NPU_ISA isa_avx2
#define NPU_RANDOM_LANES 4
#include "kernels/isa/random.inc"
