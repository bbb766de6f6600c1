// SPDX-License-Identifier: Apache-2.0
// Elementwise loops for avx512.
#define NPU_ISA isa_avx512
#include "kernels/isa/map_loops.h"
