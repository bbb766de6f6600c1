// SPDX-License-Identifier: Apache-2.0
// Cell loops for avx512.
#define NPU_ISA isa_avx512
#include "kernels/isa/cells_loops.h"
