// SPDX-License-Identifier: Apache-2.0
// Random number state: a Philox seed and an offset, the same on every driver.
#include "runtime/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/TensorBase.h>

#include <array>
#include <cstring>
#include <mutex>

#include "runtime/device.h"
#include "runtime/error.h"

namespace npu {
namespace {

constexpr std::size_t kSeedBytes = sizeof(std::uint64_t);
constexpr std::size_t kStateBytes = 2 * kSeedBytes;
constexpr std::uint64_t kWordsPerBlock = 4;

void check_offset(std::uint64_t offset) {
  TORCH_CHECK(
      offset % kWordsPerBlock == 0,
      "npu: generator: offset must be a multiple of 4, got ",
      offset,
      pta_error(Code::kValue));
}

}  // namespace

Generator::Generator(c10::DeviceIndex device)
    : GeneratorImpl(
          c10::Device(kDeviceType, device),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

c10::DeviceType Generator::device_type() {
  return kDeviceType;
}

// Callers of the overrides below hold mutex_, as PyTorch's own do.
void Generator::set_current_seed(std::uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

void Generator::set_offset(std::uint64_t offset) {
  check_offset(offset);
  offset_ = offset;
}

std::uint64_t Generator::get_offset() const {
  return offset_;
}

std::uint64_t Generator::current_seed() const {
  return seed_;
}

std::uint64_t Generator::seed() {
  const std::uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

void Generator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  const auto bytes = static_cast<std::size_t>(state.numel());
  TORCH_CHECK(
      bytes == kStateBytes || bytes == kSeedBytes,
      "npu: generator: RNG state is wrong size: expected ",
      kStateBytes,
      " or ",
      kSeedBytes,
      " bytes, got ",
      bytes,
      pta_error(Code::kValue));
  const auto* const data = static_cast<const char*>(state.data());
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  std::memcpy(&seed, data, kSeedBytes);
  if (bytes == kStateBytes) {
    std::memcpy(&offset, data + kSeedBytes, kSeedBytes);
  }
  check_offset(offset);
  seed_ = seed;
  offset_ = offset;
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  at::TensorBase state = at::detail::empty_cpu(
      {static_cast<std::int64_t>(kStateBytes)}, at::kByte);
  auto* const data = static_cast<char*>(state.mutable_data_ptr());
  std::memcpy(data, &seed_, kSeedBytes);
  std::memcpy(data + kSeedBytes, &offset_, kSeedBytes);
  return state.getIntrusivePtr();
}

void Generator::graphsafe_set_state(
    const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  auto* const other = dynamic_cast<Generator*>(state.get());
  TORCH_CHECK(
      other != nullptr,
      "npu: generator: the state is not one of an npu generator",
      pta_error(Code::kType));
  if (other != this) {
    seed_ = other->seed_;
    offset_ = other->offset_;
  }
}

c10::intrusive_ptr<c10::GeneratorImpl> Generator::graphsafe_get_state() const {
  return clone();
}

npu_rng Generator::reserve(std::uint64_t words) {
  const std::lock_guard<std::mutex> lock(mutex_);
  npu_rng rng{};
  rng.seed = seed_;
  rng.offset = offset_;
  offset_ += (words + kWordsPerBlock - 1) / kWordsPerBlock * kWordsPerBlock;
  return rng;
}

Generator* Generator::clone_impl() const {
  auto* const copy = new Generator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  struct Entry {
    std::once_flag once;
    at::Generator generator;
  };
  static auto* const entries = new std::array<Entry, kMaxDevices>;
  device = device_or_current(device);
  check_device_index(device);
  Entry& entry = (*entries)[static_cast<std::size_t>(device)];
  std::call_once(entry.once, [&] {
    entry.generator = at::make_generator<Generator>(device);
  });
  return entry.generator;
}

Generator& generator_for(
    const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  // CPU tensors with an npu generator get here, too: they have no index.
  TORCH_CHECK(
      device >= 0,
      "Expected a tensor of the generator's npu device but found one of "
      "another device type",
      pta_error(Code::kParam));
  const bool own = given.has_value() && given->defined();
  const at::Generator& chosen = own ? *given : default_generator(device);
  TORCH_CHECK(
      chosen.device() == c10::Device(kDeviceType, device),
      "Expected a 'npu:",
      static_cast<int>(device),
      "' generator device but found '",
      chosen.device(),
      "'",
      pta_error(Code::kParam));
  return *static_cast<Generator*>(chosen.unsafeGetGeneratorImpl());
}

}  // namespace npu
