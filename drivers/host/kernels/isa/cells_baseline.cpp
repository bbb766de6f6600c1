// SPDX-License-Identifier: Apache-2.0
// Cell loops for baseline.
#define NPU_ISA isa_baseline
#include "kernels/isa/cells_loops.h"
