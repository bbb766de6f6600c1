// SPDX-License-Identifier: Apache-2.0
// Host memory of storages during a call on rung 5, and what becomes of it.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/shadow.h"

namespace npu::ladder {

// Bytes of a storage, counted from its first one.
struct Extent {
  std::size_t begin = SIZE_MAX;
  std::size_t end = 0;
  bool empty() const {
    return end <= begin;
  }
  std::size_t size() const {
    return empty() ? 0 : end - begin;
  }
};

// What a CPU storage of the call owns: host memory for a range of the device's
// storage. It is the context of the storage's data pointer, so it ends when a
// kernel gives the storage other memory.
struct Lease {
  HostCopyPtr copy;
  char* first = nullptr;       // host address of the storage's first byte
  const char* base = nullptr;  // device address of it
  DeviceRange valid;           // of the claim: host and device agree there
  Shadows::Claim claim;
  bool shared = false;  // memory of a shadow, only to be read

  Lease() = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    drop_claim();
  }
  // nullptr when the storage's memory is not leased.
  static Lease* of(const c10::StorageImpl* cpu) noexcept;
  static void give(std::unique_ptr<Lease> lease, c10::StorageImpl& cpu);

  DeviceRange range(Extent extent) const {
    return {base + extent.begin, extent.size()};
  }
  char* host_of(std::uintptr_t address) const {
    return first + static_cast<std::ptrdiff_t>(
                       address - reinterpret_cast<std::uintptr_t>(base));
  }
  void claim_range(DeviceRange range);
  void drop_claim() noexcept;
  // The memory becomes a shadow; the claim ends.
  void publish();
  // Somebody else keeps the memory and may write it: it is no shadow, and no
  // queued copy reads it when this returns.
  void disown();
};

// What an argument needs of its storage.
struct Need {
  Extent read;   // has values
  Extent held;   // has memory
  bool written;  // by the kernel
  // Kernels of other libraries were seen to write arguments that their schema
  // calls read-only: they get memory of their own.
  bool trusted;
};

// Finds or makes the host memory of one call's arguments.
class Lender {
 public:
  explicit Lender(c10::DeviceIndex device);
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;
  ~Lender();

  std::unique_ptr<Lease> lend(
      const void* base, std::size_t storage_bytes, Need need);
  // Waits, once, for the copies that were queued; how many bytes they had.
  std::uint64_t wait();

 private:
  bool take(Lease& lease, const Need& need);
  void copy_down(Lease& lease, Extent read);
  bool may_keep(const Lease& lease);

  const c10::DeviceIndex device_;
  const npu_stream stream_;
  Shadows* const shadows_;
  std::uint64_t bytes_ = 0;
  bool queued_ = false;
  int others_idle_ = -1;  // asked once: 0, 1
};

// Device memory with the bytes of a storage that a kernel made; the storage's
// own memory becomes a lease.
c10::DataPtr upload_result(const c10::Storage& cpu, c10::DeviceIndex device);

}  // namespace npu::ladder
