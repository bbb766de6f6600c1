/* SPDX-License-Identifier: Apache-2.0 */
/* The contract compiles as strict C11: building this file is the test. */
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

int npu_header_c11(void);
int npu_header_c11(void) {
  npu_call call;
  char text[128];
  memset(&call, 0, sizeof(call));
  return npu_call_validate(&call, text, sizeof(text)) == NPU_E_INVALID &&
         strstr(text, "frame size is 0") != NULL;
}
