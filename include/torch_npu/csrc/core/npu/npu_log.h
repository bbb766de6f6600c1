// SPDX-License-Identifier: Apache-2.0
// Lines of an adapter in the log that SLOG_PRINT_TO_STDOUT and
// ASCEND_GLOBAL_LOG_LEVEL direct; format as printf's.
#pragma once

#include "torch_npu/named_call.h"

#define ASCEND_LOGD(...) ::npu::named::log(0, __FILE__, __LINE__, __VA_ARGS__)
#define ASCEND_LOGI(...) ::npu::named::log(1, __FILE__, __LINE__, __VA_ARGS__)
#define ASCEND_LOGW(...) ::npu::named::log(2, __FILE__, __LINE__, __VA_ARGS__)
#define ASCEND_LOGE(...) ::npu::named::log(3, __FILE__, __LINE__, __VA_ARGS__)
