// SPDX-License-Identifier: Apache-2.0
// Conversion loops for baseline.
#define NPU_ISA isa_baseline
#include "kernels/isa/convert_loops.h"
