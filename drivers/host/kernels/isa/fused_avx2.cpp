// SPDX-License-Identifier: Apache-2.0
// Rows of the fused kinds for avx2.
#define NPU_ISA isa_avx2
#include "kernels/isa/fused_loops.h"
