// SPDX-License-Identifier: Apache-2.0
// List loops for baseline.
#define NPU_ISA isa_baseline
#include "kernels/isa/lists_loops.h"
