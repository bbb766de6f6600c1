// SPDX-License-Identifier: Apache-2.0
// Where OpCommand and the pipes once were.
#pragma once

#include "torch_npu/csrc/framework/OpCommand.h"
#include "torch_npu/csrc/framework/utils/OpPipe.h"
