// SPDX-License-Identifier: Apache-2.0
// Rows of the fused kinds for baseline.
#define NPU_ISA isa_baseline
#include "kernels/isa/fused_loops.h"
