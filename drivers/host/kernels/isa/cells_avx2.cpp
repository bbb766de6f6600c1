// SPDX-License-Identifier: Apache-2.0
// Cell loops for avx2.
#define NPU_ISA isa_avx2
#include "kernels/isa/cells_loops.h"
