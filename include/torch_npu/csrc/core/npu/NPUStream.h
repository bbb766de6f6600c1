// SPDX-License-Identifier: Apache-2.0
// The stream that work is queued on. It has no handle of Ascend's runtime.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace c10_npu {

class NPUStream {
 public:
  explicit NPUStream(c10::Stream stream) : stream_(stream) {}
  c10::Device device() const {
    return stream_.device();
  }
  c10::DeviceIndex device_index() const {
    return stream_.device_index();
  }
  c10::StreamId id() const {
    return stream_.id();
  }
  // All work so far is done.
  bool query() const {
    return stream_.query();
  }
  void synchronize() const {
    stream_.synchronize();
  }
  c10::Stream unwrap() const {
    return stream_;
  }

 private:
  c10::Stream stream_;
};

// -1: of the current device.
inline NPUStream getCurrentNPUStream(c10::DeviceIndex index = -1) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  return NPUStream(guard.getStream(
      index < 0 ? guard.getDevice()
                : c10::Device(c10::DeviceType::PrivateUse1, index)));
}

}  // namespace c10_npu
