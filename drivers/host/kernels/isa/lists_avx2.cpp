// SPDX-License-Identifier: Apache-2.0
// List loops for avx2.
#define NPU_ISA isa_avx2
#include "kernels/isa/lists_loops.h"
