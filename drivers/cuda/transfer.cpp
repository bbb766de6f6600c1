// SPDX-License-Identifier: Apache-2.0
// Copies of bytes. cudaMemcpyAsync keeps the contract's promises for ordinary
// host memory by itself: it has read the source, or written the target, when it
// returns.
#include "cuda.h"

namespace npu::cuda {
namespace {

// NPU_OK when the range lies in one block of device memory (of `device`, or
// -1: of any).
npu_status check_range(
    const char* what, npu_device device, const void* ptr, std::uint64_t bytes) {
  Block block;
  if (!find_block(ptr, block) || block.device < 0 ||
      (device >= 0 && block.device != device)) {
    return fail(
        NPU_E_INVALID,
        "npu: cuda driver: %s: %p is no memory of %s.",
        what,
        ptr,
        device < 0 ? "a GPU" : "this GPU");
  }
  const auto at =
      static_cast<std::uint64_t>(static_cast<const char*>(ptr) - block.base);
  if (bytes > block.bytes || at > block.bytes - bytes) {
    return fail(
        NPU_E_INVALID,
        "npu: cuda driver: %s: %llu bytes at %p go beyond the block of %llu "
        "bytes that begins at %p.",
        what,
        static_cast<unsigned long long>(bytes),
        ptr,
        static_cast<unsigned long long>(block.bytes),
        static_cast<void*>(block.base));
  }
  return NPU_OK;
}

}  // namespace

npu_status copy_to_device(
    npu_stream stream, void* dst, const void* src, std::uint64_t bytes) {
  return queue(
      stream, bytes == 0 || given(dst, src), [&](Stream& to) -> npu_status {
        if (bytes == 0) {
          return NPU_OK;
        }
        if (npu_status status =
                check_range("copy_to_device", to.device, dst, bytes)) {
          return status;
        }
        return cuda_status(
            cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, to.handle),
            "copying to the GPU");
      });
}

npu_status copy_to_host(
    npu_stream stream, void* dst, const void* src, std::uint64_t bytes) {
  return queue(
      stream, bytes == 0 || given(dst, src), [&](Stream& from) -> npu_status {
        if (bytes == 0) {
          return NPU_OK;
        }
        if (npu_status status =
                check_range("copy_to_host", from.device, src, bytes)) {
          return status;
        }
        NPU_CUDA(
            cudaMemcpyAsync(
                dst, src, bytes, cudaMemcpyDeviceToHost, from.handle),
            "copying from the GPU");
        if (is_pinned(dst)) {
          return NPU_OK;
        }
        // Ordinary memory: the call returns after the copy, and everything
        // before it is done.
        NPU_CUDA(cudaStreamSynchronize(from.handle), "copying from the GPU");
        return take_error(from);
      });
}

npu_status copy_on_device(
    npu_stream stream, void* dst, const void* src, std::uint64_t bytes) {
  return queue(
      stream, bytes == 0 || given(dst, src), [&](Stream& on) -> npu_status {
        if (bytes == 0) {
          return NPU_OK;
        }
        npu_status status = check_range("copy_on_device", -1, dst, bytes);
        status =
            status ? status : check_range("copy_on_device", -1, src, bytes);
        if (status) {
          return status;
        }
        return cuda_status(
            cudaMemcpyAsync(
                dst, src, bytes, cudaMemcpyDeviceToDevice, on.handle),
            "copying on the GPU");
      });
}

npu_status copy_peer(
    npu_stream stream,
    npu_device dst_device,
    void* dst,
    npu_device src_device,
    const void* src,
    std::uint64_t bytes) {
  return queue(
      stream, bytes == 0 || given(dst, src), [&](Stream& on) -> npu_status {
        npu_status status = check_open(dst_device);
        status = status ? status : check_open(src_device);
        if (status || bytes == 0) {
          return status;
        }
        status = check_range("copy_peer", dst_device, dst, bytes);
        status =
            status ? status : check_range("copy_peer", src_device, src, bytes);
        if (status) {
          return status;
        }
        return cuda_status(
            cudaMemcpyPeerAsync(
                dst, dst_device, src, src_device, bytes, on.handle),
            "copying between GPUs");
      });
}

npu_status set_bytes(
    npu_stream stream, void* dst, std::int32_t value, std::uint64_t bytes) {
  return queue(stream, bytes == 0 || given(dst), [&](Stream& on) -> npu_status {
    if (bytes == 0) {
      return NPU_OK;
    }
    if (npu_status status = check_range("set_bytes", on.device, dst, bytes)) {
      return status;
    }
    return cuda_status(
        cudaMemsetAsync(dst, value & 0xff, bytes, on.handle), "setting bytes");
  });
}

}  // namespace npu::cuda
