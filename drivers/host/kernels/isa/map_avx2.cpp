// SPDX-License-Identifier: Apache-2.0
// Elementwise loops for avx2.
#define NPU_ISA isa_avx2
#include "kernels/isa/map_loops.h"
