// SPDX-License-Identifier: Apache-2.0
// Elementwise loops for baseline.
#define NPU_ISA isa_baseline
#include "kernels/isa/map_loops.h"
