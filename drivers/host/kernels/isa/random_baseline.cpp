// SPDX-License-Identifier: Apache-2.0
// Random loops for the baseline instruction set.
#define NPU_ISA isa_baseline
#define NPU_RANDOM_LANES 2
#include "kernels/isa/random.inc"
