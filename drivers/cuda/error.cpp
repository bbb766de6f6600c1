// SPDX-License-Identifier: Apache-2.0
// CUDA errors as statuses, and the device that is lost.
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>

#include "cuda.h"

namespace npu::cuda {
namespace {

char lost_text[512];
std::mutex lost_mutex;

void remember_loss(const char* text) noexcept {
  const std::lock_guard lock(lost_mutex);
  if (!device_lost.load()) {
    std::snprintf(lost_text, sizeof(lost_text), "%s", text);
    device_lost.store(true);
  }
}

}  // namespace

npu_status fail(npu_status status, const char* format, ...) noexcept {
  char text[640];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  services->set_error(text);
  return status;
}

void warn(const std::string& text) noexcept {
  if (services != nullptr && services->log != nullptr) {
    services->log(NPU_LOG_WARNING, ("npu: cuda driver: " + text).c_str());
  }
}

npu_status shutdown_status() noexcept {
  return fail(
      NPU_E_SHUTDOWN,
      "npu: cuda driver: used after shutdown or in a forked child. CUDA cannot "
      "be used after a fork: start worker processes with the 'spawn' method.");
}

npu_status null_argument() noexcept {
  return fail(
      NPU_E_INVALID, "npu: cuda driver: an argument is null that must not be.");
}

npu_status exception_status() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return fail(
        NPU_E_OUT_OF_MEMORY,
        "npu: cuda driver: the process has no memory left.");
  } catch (const std::exception& error) {
    return fail(NPU_E_INTERNAL, "npu: cuda driver: %s.", error.what());
  } catch (...) {
    return fail(NPU_E_INTERNAL, "npu: cuda driver: unexpected exception.");
  }
}

bool loses_the_context(cudaError_t error) noexcept {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

npu_status lost_status() noexcept {
  const std::lock_guard lock(lost_mutex);
  services->set_error(lost_text);
  return NPU_E_DEVICE_LOST;
}

npu_status cuda_status(cudaError_t error, const char* what) noexcept {
  if (error == cudaSuccess) {
    return NPU_OK;
  }
  static_cast<void>(cudaGetLastError());
  if (loses_the_context(error)) {
    char text[512];
    std::snprintf(
        text,
        sizeof(text),
        "npu: cuda driver: %s: work queued earlier failed (%s), which destroys "
        "the GPU's context: every later call of this process fails. Start it "
        "again with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer, to see "
        "which kernel it was.",
        what,
        cudaGetErrorString(error));
    remember_loss(text);
    return lost_status();
  }
  switch (error) {
    case cudaErrorMemoryAllocation:
      return fail(
          NPU_E_OUT_OF_MEMORY,
          "npu: cuda driver: %s: the GPU has not enough memory left.",
          what);
    case cudaErrorNotReady:
      return NPU_NOT_READY;
    case cudaErrorInsufficientDriver:
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: cuda driver: %s: the NVIDIA driver of this machine is older "
          "than CUDA %d.%d needs: install a newer one.",
          what,
          CUDART_VERSION / 1000,
          CUDART_VERSION % 1000 / 10);
    case cudaErrorNoDevice:
      return fail(
          NPU_E_UNSUPPORTED, "npu: cuda driver: %s: CUDA finds no GPU.", what);
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidDevice:
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: %s: %s.",
          what,
          cudaGetErrorString(error));
    case cudaErrorNoKernelImageForDevice:
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: cuda driver: %s: the driver was not compiled for this "
          "generation of GPU.",
          what);
    default:
      return fail(
          NPU_E_INTERNAL,
          "npu: cuda driver: %s: %s (CUDA error %d).",
          what,
          cudaGetErrorString(error),
          static_cast<int>(error));
  }
}

}  // namespace npu::cuda
