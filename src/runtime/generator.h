// SPDX-License-Identifier: Apache-2.0
// Random number state: a Philox seed and an offset, the same on every driver.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>

#include "npu/op.h"

namespace npu {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device);

  static c10::DeviceType device_type();
  void set_current_seed(std::uint64_t seed) override;
  void set_offset(std::uint64_t offset) override;
  std::uint64_t get_offset() const override;
  std::uint64_t current_seed() const override;
  std::uint64_t seed() override;
  // 16 bytes: seed, then offset. 8 bytes (seed alone) are accepted.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(
      const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  // The state for a call that uses `words` 32-bit words, and moves past them
  // (rounded up to a multiple of 4). Takes mutex_.
  npu_rng reserve(std::uint64_t words);

 private:
  Generator* clone_impl() const override;

  std::uint64_t seed_ = c10::default_rng_seed_val;
  std::uint64_t offset_ = 0;
};

// One per device, made on demand, never destroyed.
const at::Generator& default_generator(c10::DeviceIndex device = -1);
// `given`, checked to be an npu generator of `device`, or the default one.
Generator& generator_for(
    const std::optional<at::Generator>& given, c10::DeviceIndex device);

}  // namespace npu
