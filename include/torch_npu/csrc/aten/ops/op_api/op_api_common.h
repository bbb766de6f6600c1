// SPDX-License-Identifier: Apache-2.0
// Where EXEC_NPU_CMD once was.
#pragma once

#include "op_plugin/utils/op_api_common.h"
