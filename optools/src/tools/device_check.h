// SPDX-License-Identifier: Apache-2.0
// Asks a device for a tensor's lowest and highest value without waiting: the
// answers gather in device memory and are read many at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace optools {

// Is there a way to ask? Strided, not empty, floating or complex of a dtype
// aminmax knows.
bool device_checkable(const at::Tensor& t);

class DeviceCheck {
 public:
  struct Answer {
    uint64_t tag;
    double low;
    double high;
  };

  // False when there is no room: take() first.
  bool ask(const at::Tensor& t, uint64_t tag);
  bool half_full() const {
    return half_full_;
  }

  // Waits for the device; the answers in the order asked. Call inside Quiet.
  std::vector<Answer> take();

 private:
  static constexpr int64_t kSlots = 1024;
  struct Ring {
    c10::ScalarType dtype;
    c10::Device device;
    at::Tensor values;  // kSlots x 2
    std::vector<std::pair<at::Tensor, at::Tensor>> views;
    int64_t used = 0;
  };
  struct Question {
    uint64_t tag;
    const Ring* ring;
    int64_t slot;
  };
  std::vector<std::unique_ptr<Ring>> rings_;  // few: one per dtype and device
  std::vector<Question> questions_;
  bool half_full_ = false;

  Ring& ring(const at::Tensor& t);
};

}  // namespace optools
