// SPDX-License-Identifier: Apache-2.0
// Conversion loops for avx2.
#define NPU_ISA isa_avx2
#include "kernels/isa/convert_loops.h"
