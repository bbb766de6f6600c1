// SPDX-License-Identifier: Apache-2.0
// List loops for avx512.
#define NPU_ISA isa_avx512
#include "kernels/isa/lists_loops.h"
