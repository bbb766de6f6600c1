// SPDX-License-Identifier: Apache-2.0
// Sizes of results, under op-plugin's names.
#pragma once

#include "torch_npu/csrc/framework/utils/KernelNpuOutputSize.h"
