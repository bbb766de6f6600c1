// SPDX-License-Identifier: Apache-2.0
// The contract compiles as strict C++17: building this file is the test.
#include "npu/capture.h"
#include "npu/comm.h"
#include "npu/driver.h"
#include "npu/ipc.h"
#include "npu/kinds.h"
#include "npu/mailbox.h"
#include "npu/op.h"
#include "npu/pack.h"
#include "npu/profiler.h"
#include "npu/program.h"
#include "npu/validate.h"
#include "npu/vmm.h"

static_assert(__cplusplus == 201703L, "this file is built as C++17");

int npu_header_cxx17() {
  return npu_kind_find("copy") == NPU_KIND_COPY && npu_kind_find("x") == 0;
}
