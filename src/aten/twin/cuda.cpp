// SPDX-License-Identifier: Apache-2.0
// CUDA's twin: PyTorch's CUDA kernels on the memory of a driver whose platform
// is "cuda". Everything goes through PyTorch's dispatcher and c10's interfaces,
// so nothing of CUDA is linked and a CPU build of torch loads this too.
//
// Device i of the driver is cuda:i, the addresses are CUDA's and a stream's
// native handle is a cudaStream_t: npu_driver.platform promises that. Kernels
// are queued on the npu device's own stream, so nothing waits. Memory of
// results stays CUDA's: its allocator frees it in order with the stream it was
// allocated on, which is the npu stream too.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "aten/twin/entry.h"
#include "aten/twin/twin.h"
#include "runtime/stream.h"

namespace npu::twin {
namespace {

constexpr c10::DeviceType kCuda = c10::DeviceType::CUDA;

class CudaTwin final : public Twin {
 public:
  CudaTwin()
      : Twin(
            {"CUDA",
             kCuda,
             c10::BackendComponent::CUDABit,
             /*numbered=*/true,
             /*waits=*/false,
             /*widens=*/false}),
        guard_(kCuda) {}

  c10::Allocator* allocator() const override {
    return c10::GetAllocator(kCuda);
  }
  bool owns(const c10::DataPtr& data) const noexcept override {
    return data.device().type() == kCuda;
  }
  void adopt(c10::DataPtr& data, c10::Device npu) const override {
    data.unsafe_set_device(npu);
  }

  // Random operators are refused for every twin.
  const char* refusal(const Entry& entry) const override {
    const std::string& name = entry.op.schema().name();
    if (name == "aten::_fused_sdp_choice") {
      return "answers for CUDA's own attention kernels";
    }
    if (name == "aten::record_stream" || name == "aten::_pin_memory" ||
        name == "aten::is_pinned") {
      return "is about the allocator of the device it is called for";
    }
    return nullptr;
  }

  Outer enter(c10::Device npu, const ShimState&) const override {
    Outer outer;
    outer.device = guard_.exchangeDevice(device_of(npu));
    // The default stream is 0 on both sides; the id of any other stream that
    // CUDA did not make is its handle.
    void* const handle = stream_native_handle(current_stream(npu.index()));
    try {
      outer.stream = guard_.exchangeStream(c10::Stream(
          c10::Stream::UNSAFE,
          device_of(npu),
          static_cast<c10::StreamId>(reinterpret_cast<std::intptr_t>(handle))));
    } catch (...) {
      guard_.uncheckedSetDevice(*outer.device);
      throw;
    }
    return outer;
  }
  void leave(const Outer& outer) const noexcept override {
    // Sets the stream of its own device, then that device.
    guard_.exchangeStream(*outer.stream);
    guard_.uncheckedSetDevice(*outer.device);
  }

 private:
  const c10::impl::VirtualGuardImpl guard_;
};

}  // namespace

const Twin* cuda_twin() {
  static const Twin* const found = []() -> const Twin* {
    if (!at::detail::getCUDAHooks().hasCUDA()) {
      return nullptr;
    }
    at::globalContext().lazyInitDevice(kCuda);
    return new CudaTwin;
  }();
  return found;
}

}  // namespace npu::twin
