// SPDX-License-Identifier: Apache-2.0
// Rows of the fused kinds for avx512.
#define NPU_ISA isa_avx512
#include "kernels/isa/fused_loops.h"
