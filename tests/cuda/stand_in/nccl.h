// SPDX-License-Identifier: Apache-2.0
// What the stand-in of NCCL tells tests, beside the functions of NCCL's
// documentation.
//
//   STAND_IN_NCCL_VERSION=22809   the version it says it is
//   STAND_IN_NCCL_FAILS=1         CUDA fails while a communicator is made
//
// Wrong use ends the process with a sentence: a call about a communicator that
// still works on an earlier one, one about a communicator that is gone, memory
// that is not the device's.
#pragma once

extern "C" {

// The calls since the last time, one line each: "AllReduce 4 float32 sum".
// The text is valid until the next call.
const char* stand_in_nccl_calls();

}  // extern "C"
