// SPDX-License-Identifier: Apache-2.0
// Storage formats as torch_npu shows them: the tags, and casts between them.
#include "aten/formats/formats.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "aten/core/copy.h"
#include "aten/core/factories.h"
#include "aten/core/fill.h"
#include "aten/formats/shape.h"

namespace npu {
namespace {

struct Tag {
  std::int64_t format;
  format::Sizes sizes;  // of the tensor the format was given to
};

// Storages with a format of their own. Most programs have none, so that asking
// costs one load. The weak reference keeps the key from being used again.
class Tags {
 public:
  std::optional<Tag> find(const c10::Storage& storage) {
    if (count_.load(std::memory_order_acquire) == 0) {
      return std::nullopt;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = tags_.find(storage.unsafeGetStorageImpl());
    return found == tags_.end() ? std::nullopt
                                : std::optional<Tag>(found->second.tag);
  }
  void set(const c10::Storage& storage, Tag tag) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (tags_.size() >= sweep_at_) {
      sweep();
    }
    tags_.insert_or_assign(
        storage.unsafeGetStorageImpl(),
        Entry{storage.getWeakStorageImpl(), std::move(tag)});
    count_.store(tags_.size(), std::memory_order_release);
  }

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> owner;
    Tag tag;
  };

  void sweep() {
    for (auto it = tags_.begin(); it != tags_.end();) {
      it = it->second.owner.expired() ? tags_.erase(it) : std::next(it);
    }
    sweep_at_ = std::max<std::size_t>(64, 2 * tags_.size());
  }

  std::mutex mutex_;
  std::atomic<std::size_t> count_{0};
  std::size_t sweep_at_ = 64;
  std::unordered_map<const c10::StorageImpl*, Entry> tags_;
};

// For ever: tensors may outlive static objects.
Tags& tags() {
  static auto* const instance = new Tags;
  return *instance;
}

std::atomic<bool> internal_allowed{false};

bool is_the_tagged_one(const at::Tensor& tensor, const Tag& tag) {
  return tensor.storage_offset() == 0 && tensor.is_contiguous() &&
         tensor.sizes().equals(tag.sizes);
}

void set_tag(const at::Tensor& tensor, std::int64_t format) {
  const auto sizes = tensor.sizes();
  tags().set(tensor.storage(), {format, {sizes.begin(), sizes.end()}});
}

// What a request for `format` comes to for this many dimensions.
std::int64_t resolve(
    std::int64_t format,
    std::int64_t dims,
    bool allow_internal = allow_internal_format()) {
  if (format::is_base(format)) {
    return format;
  }
  if (format::needs_matrix(format) && dims < 2) {
    return format::kNd;
  }
  if (!allow_internal) {
    TORCH_WARN_ONCE(
        "Cannot create tensor with internal format while "
        "allow_internal_format=False, tensor will be created with base "
        "format.");
    return format::base_of(format);
  }
  return format;
}

}  // namespace

std::int64_t format_of(const at::Tensor& tensor) {
  const auto tag =
      tensor.has_storage() ? tags().find(tensor.storage()) : std::nullopt;
  if (!tag) {
    return format::default_of(tensor.dim());
  }
  return is_the_tagged_one(tensor, *tag) ? tag->format
                                         : format::base_of(tag->format);
}

std::int64_t storage_size_of(const at::Tensor& tensor) {
  const auto tag =
      tensor.has_storage() ? tags().find(tensor.storage()) : std::nullopt;
  if (tag && !is_the_tagged_one(tensor, *tag)) {
    return c10::multiply_integers(tag->sizes);
  }
  return static_cast<std::int64_t>(
      tensor.storage().nbytes() / tensor.element_size());
}

at::Tensor make_with_format(
    at::IntArrayRef sizes,
    c10::ScalarType dtype,
    c10::DeviceIndex device,
    std::int64_t wanted,
    bool allow_internal) {
  at::detail::check_size_nonnegative(sizes);
  const auto dims = static_cast<std::int64_t>(sizes.size());
  const std::int64_t format = resolve(wanted, dims, allow_internal);
  if (format::is_base(format)) {
    at::Tensor out = make_empty(sizes, dtype, device);
    if (format != format::default_of(dims)) {
      set_tag(out, format);
    }
    return out;
  }
  const auto item = static_cast<std::int64_t>(c10::elementSize(dtype));
  at::Tensor out = make_empty(
      {format::storage_elements(sizes, item, format)}, dtype, device);
  if (out.numel() != c10::multiply_integers(sizes)) {
    fill(out, 0);  // padding is saved to files too
  }
  out.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  set_tag(out, format);
  return out;
}

bool keeps_storage(const at::Tensor& tensor, std::int64_t wanted) {
  const std::int64_t format = resolve(wanted, tensor.dim());
  if (format == format_of(tensor)) {
    return true;
  }
  // A format the user may not have must not change the tags of what he has.
  const bool asked_for_base = format::is_base(wanted);
  const auto tag = tags().find(tensor.storage());
  return asked_for_base && (!tag || format::is_base(tag->format));
}

at::Tensor cast_format(const at::Tensor& tensor, std::int64_t wanted) {
  const std::int64_t format = resolve(wanted, tensor.dim());
  if (keeps_storage(tensor, wanted)) {
    if (format != format_of(tensor)) {
      set_tag(tensor, format);
    }
    return tensor;
  }
  at::Tensor out = make_with_format(
      tensor.sizes(), tensor.scalar_type(), tensor.device().index(), format);
  copy(out, tensor, /*non_blocking=*/true);
  return out;
}

void restore_format(const at::Tensor& tensor, std::int64_t format) {
  const auto item = static_cast<std::int64_t>(tensor.element_size());
  const auto elements = static_cast<std::uint64_t>(
      format::storage_elements(tensor.sizes(), item, format));
  if (tensor.storage().nbytes() / tensor.element_size() >= elements) {
    set_tag(tensor, format);
  }
}

void set_allow_internal_format(bool allow) noexcept {
  internal_allowed.store(allow);
}

bool allow_internal_format() noexcept {
  return internal_allowed.load(std::memory_order_relaxed);
}

}  // namespace npu
