// SPDX-License-Identifier: Apache-2.0
// Rung 5: arguments get host memory together, what the kernel wrote and made is
// copied to the device. Shadows (shadow.h) save the copies of what has not
// changed.
//
// Note [Only what was written]: other streams and threads may write other
// elements of the same storage while the kernel runs. So only the elements of
// written tensors are copied back, never the bytes between or around them.
#include "aten/ladder/copies.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "aten/core/transfer.h"
#include "aten/ladder/call.h"
#include "driver/registry.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

namespace npu::ladder {
namespace {

// A view of at least this share of its storage has the whole storage copied,
// so that other views of it find a shadow.
constexpr std::size_t kShareOfStorage = 4;

void delete_lease(void* context) {
  delete static_cast<Lease*>(context);
}

// The bytes of its storage that a tensor can reach.
Extent extent_of(const c10::TensorImpl& tensor) {
  if (tensor.numel() == 0) {
    return {};
  }
  std::int64_t last = tensor.storage_offset();
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  const std::size_t item = tensor.itemsize();
  return {
      static_cast<std::size_t>(tensor.storage_offset()) * item,
      (static_cast<std::size_t>(last) + 1) * item};
}

// Operators that may look beyond the tensor they are given.
bool reaches_beyond(const Entry& entry) {
  return !entry.builtin || entry.label.find("as_strided") != std::string::npos;
}

// Memory that not all bytes arrived in is given up: what it holds must not be
// copied back or become a shadow when the call ends with an error.
template <class Storages>
struct Arrival {
  explicit Arrival(Storages& all) : storages(all) {}
  ~Arrival() {
    if (is_complete) {
      return;
    }
    for (auto& mapped : storages) {
      mapped.data = nullptr;
      if (Lease* const lease = Lease::of(mapped.cpu)) {
        lease->drop_claim();
      }
    }
  }
  Storages& storages;
  bool is_complete = false;
};

// Memory of PyTorch's own CPU allocator, whole: nobody else can write it.
bool is_cpu_block(const c10::DataPtr& data) {
  static const c10::DeleterFnPtr deleter =
      c10::GetDefaultCPUAllocator()->raw_deleter();
  return data.get() != nullptr && data.get() == data.get_context() &&
         data.get_deleter() == deleter;
}

// Pinned, so that copies are queued and waited for once.
void take_memory(Lease& lease, Extent held) {
  c10::DataPtr memory =
      at::getHostAllocator(kDeviceType)->allocate(held.size());
  // The kernel addresses by storage offset: the first byte may lie before the
  // memory.
  lease.first = static_cast<char*>(memory.get()) - held.begin;
  lease.copy = c10::make_intrusive<HostCopy>(std::move(memory), held.size());
}

}  // namespace

// ---- leases ----

Lease* Lease::of(const c10::StorageImpl* cpu) noexcept {
  return cpu != nullptr && cpu->data_ptr().get_deleter() == &delete_lease
             ? static_cast<Lease*>(cpu->data_ptr().get_context())
             : nullptr;
}

void Lease::give(std::unique_ptr<Lease> lease, c10::StorageImpl& cpu) {
  char* const first = lease->first;
  cpu.set_data_ptr_noswap(c10::DataPtr(
      first,
      lease.release(),
      &delete_lease,
      c10::Device(c10::DeviceType::CPU)));
}

void Lease::claim_range(DeviceRange range) {
  if (Shadows* const shadows = Shadows::active()) {
    claim = shadows->claim(range);
    valid = range;
  }
}

void Lease::drop_claim() noexcept {
  if (claim) {
    Shadows::made().drop(std::exchange(claim, {}));
  }
}

void Lease::publish() {
  if (claim) {
    Shadows::made().publish(
        std::exchange(claim, {}), copy, host_of(valid.begin));
  }
}

void Lease::disown() {
  drop_claim();
  if (shared) {
    Shadows::made().forget(*copy);
  }
  if (copy->upload != nullptr) {
    // Not to be written before the queued copy has read it.
    check_driver(
        active_driver().stream().synchronize(copy->upload),
        "wait for a copy to the device");
  }
}

// ---- before the kernel ----

Lender::Lender(c10::DeviceIndex device)
    : device_(device),
      stream_(current_stream_handle(device)),
      shadows_(Shadows::active()) {}

std::unique_ptr<Lease> Lender::lend(
    const void* base, std::size_t storage_bytes, Need need) {
  auto lease = std::make_unique<Lease>();
  lease->base = static_cast<const char*>(base);
  if (need.read.empty()) {
    take_memory(*lease, need.held);
    return lease;
  }
  if (shadows_ != nullptr && take(*lease, need)) {
    return lease;
  }
  const bool keeps = (need.trusted || need.written) && may_keep(*lease);
  if (keeps && need.read.size() >= storage_bytes / kShareOfStorage) {
    need.read = need.held = {0, storage_bytes};
  }
  take_memory(*lease, need.held);
  if (keeps) {
    lease->claim_range(lease->range(need.read));  // before the copy begins
  }
  copy_down(*lease, need.read);
  return lease;
}

// From a shadow: its memory where the kernel only reads or nobody else uses it,
// else a copy of that.
bool Lender::take(Lease& lease, const Need& need) {
  const DeviceRange asked = lease.range(need.read);
  if (!need.written) {
    Shadows::Found found = shadows_->find(asked);
    if (!found.copy) {
      return false;
    }
    if (!need.trusted) {
      take_memory(lease, need.held);
      std::memcpy(lease.first + need.read.begin, found.at, need.read.size());
      return true;
    }
    lease.copy = std::move(found.copy);
    lease.first = found.at - need.read.begin;
    lease.shared = true;
    return true;
  }
  const Shadows::Taken taken = shadows_->take(asked, lease.range(need.held));
  if (!taken.claim) {
    return false;
  }
  lease.claim = taken.claim;
  lease.valid = taken.range;
  if (taken.in_place) {
    lease.copy = taken.copy;
    lease.first = taken.at - need.read.begin;
    return true;
  }
  take_memory(lease, need.held);
  std::memcpy(
      lease.host_of(taken.range.begin),
      taken.at - (asked.begin - taken.range.begin),
      taken.range.bytes());
  return true;
}

void Lender::copy_down(Lease& lease, Extent read) {
  check_driver(
      active_driver().memory().copy_to_host(
          stream_,
          lease.first + read.begin,
          lease.base + read.begin,
          read.size()),
      "copy an argument to the host");
  queued_ = true;
  bytes_ += read.size();
  if (shadows_ != nullptr) {
    shadows_->count_miss();
  }
}

// Whether a copy of the device's memory that begins now may become a shadow.
bool Lender::may_keep(const Lease& lease) {
  // Memory that came from elsewhere may be written there.
  if (shadows_ == nullptr || device_of_pointer(lease.base) != device_) {
    return false;
  }
  if (others_idle_ < 0) {
    others_idle_ = shadows_->others_idle(stream_) ? 1 : 0;
  }
  return others_idle_ == 1;
}

std::uint64_t Lender::wait() {
  if (queued_) {
    synchronize_stream(current_stream(device_));
    queued_ = false;
  }
  return bytes_;
}

// After an error: queued copies still write the memory that is given up now.
Lender::~Lender() {
  if (C10_UNLIKELY(queued_)) {
    try {
      synchronize_stream(current_stream(device_));
    } catch (const std::exception&) {  // the first error is the one to report
    }
  }
}

void CpuCall::download() {
  std::vector<Extent> reached(storages_.size());
  for (const Wrapped& wrapped : tensors_) {
    if (wrapped.storage == kNone) {
      continue;
    }
    const c10::TensorImpl& tensor = *wrapped.cpu.unsafeGetTensorImpl();
    const Extent one = tensor.is_nested()
                           ? Extent{0, storages_[wrapped.storage].bytes}
                           : extent_of(tensor);
    Extent& all = reached[wrapped.storage];
    all.begin = std::min(all.begin, one.begin);
    all.end = std::max(all.end, one.end);
  }
  Arrival arrival(storages_);
  Lender lender(device_.index());
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    Mapped& mapped = storages_[i];
    Need need{reached[i], reached[i], mapped.written, entry_.builtin};
    if (reaches_beyond(entry_)) {
      mapped.out_only = false;
      need.read = need.held = {0, mapped.bytes};
    }
    // A kernel may resize what it writes, which reads the whole old storage:
    // its memory is as large, although only `read` has values.
    if (mapped.written) {
      need.held = {0, mapped.bytes};
    }
    if (mapped.out_only) {
      need.read = {};
    }
    if (need.held.empty()) {
      continue;
    }
    std::unique_ptr<Lease> lease =
        lender.lend(mapped.original->data(), mapped.bytes, need);
    mapped.data = lease->first;
    Lease::give(std::move(lease), *mapped.cpu);
  }
  bytes_ += lender.wait();
  arrival.is_complete = true;
}

// ---- after the kernel ----

c10::DataPtr upload_result(const c10::Storage& cpu, c10::DeviceIndex device) {
  const std::size_t bytes = cpu.nbytes();
  c10::DataPtr data = allocate(bytes, device);
  if (bytes == 0) {
    return data;
  }
  const void* const from = cpu.data();
  c10::StorageImpl& impl = *cpu.unsafeGetStorageImpl();
  c10::SmallVector<Shadows::Claim, 1> claims;
  if (c10::DataPtr& memory = impl._mutable_data_ptr_no_checks();
      Shadows::active() != nullptr && is_cpu_block(memory)) {
    auto lease = std::make_unique<Lease>();
    lease->first = static_cast<char*>(memory.get());
    lease->base = static_cast<const char*>(data.get());
    lease->claim_range(DeviceRange(data.get(), bytes));
    claims.push_back(lease->claim);
    lease->copy = c10::make_intrusive<HostCopy>(std::move(memory), bytes);
    Lease::give(std::move(lease), impl);
  }
  const Mirrored mine(claims);
  check_driver(
      active_driver().memory().copy_to_device(
          current_stream_handle(device), data.get(), from, bytes),
      "copy a result to the device");
  return data;
}

namespace {

// Before a written tensor is copied to the device: where it has no gaps, all of
// its bytes are known from then on.
Shadows::Claim claim_written(
    Lease& lease, const c10::TensorImpl& tensor, c10::DeviceIndex device) {
  // Parts a lazy clone from the memory it shares, as the copy would.
  const auto* const base =
      static_cast<const char*>(tensor.unsafe_storage().mutable_data());
  if (base != lease.base) {
    lease.drop_claim();
    lease.base = base;
  }
  if (!lease.claim && !tensor.is_nested() && tensor.numel() != 0 &&
      tensor.is_non_overlapping_and_dense() &&
      device_of_pointer(base) == device) {
    lease.claim_range(lease.range(extent_of(tensor)));
  }
  return lease.claim;
}

}  // namespace

void CpuCall::upload_written() {
  const c10::Stream stream = current_stream(device_.index());
  c10::SmallVector<Shadows::Claim, 6> claims;
  for (const Wrapped& wrapped : tensors_) {
    if (!wrapped.written || wrapped.storage == kNone) {
      continue;
    }
    const Mapped& mapped = storages_[wrapped.storage];
    if (!mapped.written || mapped.cpu == nullptr || mapped.data == nullptr) {
      continue;
    }
    Lease* const lease = Lease::of(mapped.cpu);
    if (lease != nullptr) {
      claims.push_back(
          claim_written(*lease, *wrapped.original, device_.index()));
    }
    const Mirrored mine(claims);
    upload_elements(*wrapped.original, mapped.data, stream);
    bytes_ += static_cast<std::uint64_t>(wrapped.original->numel()) *
              wrapped.original->itemsize();
    if (lease != nullptr) {
      lease->copy->read_by(stream);
    }
  }
}

}  // namespace npu::ladder
