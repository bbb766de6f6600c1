// SPDX-License-Identifier: Apache-2.0
// Host tensors in memory that is used again.
#include "core/host_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <bit>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/fork_mutex.h"

namespace optools {
namespace {

constexpr size_t kSmallest = size_t{16} << 10;
constexpr size_t kMostKept = size_t{256} << 20;

// Blocks of eight sizes per power of two, so that little is wasted.
size_t block_size(size_t bytes) {
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  static Pool& get() {
    static auto* pool = new Pool;
    return *pool;
  }

  c10::DataPtr take(size_t bytes) {
    const size_t size = block_size(bytes);
    void* memory = nullptr;
    {
      std::lock_guard lock(mutex_);
      auto& spare = spare_[size];
      if (!spare.empty()) {
        memory = spare.back();
        spare.pop_back();
        kept_ -= size;
      }
    }
    if (memory == nullptr) {
      memory = c10::GetCPUAllocator()->raw_allocate(size + kHeader);
      *static_cast<size_t*>(memory) = size;
    }
    return {
        static_cast<char*>(memory) + kHeader,
        memory,
        [](void* block) { get().put(block); },
        c10::Device(c10::DeviceType::CPU)};
  }

  void release() {
    std::lock_guard lock(mutex_);
    for (auto& [size, spare] : spare_) {
      for (void* memory : spare) {
        c10::GetCPUAllocator()->raw_deallocate(memory);
      }
    }
    spare_.clear();
    kept_ = 0;
  }

 private:
  Pool() = default;

  static constexpr size_t kHeader = 64;  // its size; keeps the alignment

  void put(void* memory) {
    const size_t size = *static_cast<size_t*>(memory);
    {
      std::lock_guard lock(mutex_);
      if (kept_ + size <= kMostKept) {
        spare_[size].push_back(memory);
        kept_ += size;
        return;
      }
    }
    c10::GetCPUAllocator()->raw_deallocate(memory);
  }

  ForkMutex<Pool> mutex_;
  std::unordered_map<size_t, std::vector<void*>> spare_;
  size_t kept_ = 0;
};

}  // namespace

at::Tensor pooled_tensor(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype) {
  size_t bytes = c10::elementSize(dtype);
  for (const auto size : sizes) {
    bytes *= static_cast<size_t>(size);
  }
  if (bytes < kSmallest) {
    return at::detail::empty_strided_cpu(sizes, strides, dtype);
  }
  // One that an `out=` operator makes larger gets memory as any other.
  c10::Storage storage(
      c10::Storage::use_byte_size_t{},
      bytes,
      Pool::get().take(bytes),
      c10::GetCPUAllocator(),
      true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

void release_pool() {
  Pool::get().release();
}

}  // namespace optools
