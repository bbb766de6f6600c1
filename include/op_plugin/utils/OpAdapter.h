// SPDX-License-Identifier: Apache-2.0
// All helpers of adapters, under op-plugin's names.
#pragma once

#include "torch_npu/csrc/framework/utils/OpAdapter.h"
