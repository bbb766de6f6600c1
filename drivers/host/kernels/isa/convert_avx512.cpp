// SPDX-License-Identifier: Apache-2.0
// Conversion loops for avx512.
#define NPU_ISA isa_avx512
#include "kernels/isa/convert_loops.h"
