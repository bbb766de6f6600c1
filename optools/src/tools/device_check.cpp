// SPDX-License-Identifier: Apache-2.0
// Asks devices for the largest magnitude of tensors without waiting.
#include "tools/device_check.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <limits>

#include "core/tally.h"
#include "core/tensor_bytes.h"
#include "core/tool.h"
#include "core/torch_compat.h"

namespace optools {
namespace {

// A larger tensor's own pass takes longer than its launch.
constexpr size_t kLargestKept = 1 << 20;
constexpr size_t kKeptBytes = 32 << 20;
constexpr size_t kKept = 128;
// Copying a larger tensor takes longer than the launch it saves.
constexpr size_t kLargestCopied = 256 << 10;
constexpr size_t kRoom = 2 << 20;
constexpr size_t kAligned = 64;

// `later` goes on only after what `earlier` has been given so far.
void order(c10::Stream earlier, c10::Stream later) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

const void* data_of(const at::Tensor& t) {
  return t.unsafeGetTensorImpl()
      ->unsafe_storage()
      .unsafeGetStorageImpl()
      ->_mutable_data_ptr_no_checks()
      .get();
}

// Another tensor on a stretch of the same memory, of one dimension.
at::Tensor stretch(const at::Tensor& t, int64_t offset, int64_t count) {
  auto alias = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW,
      c10::Storage(t.unsafeGetTensorImpl()->unsafe_storage()),
      c10::DispatchKeySet(
          c10::computeDispatchKey(t.scalar_type(), c10::kStrided, t.device())),
      t.dtype());
  alias->set_storage_offset(offset);
  alias->set_sizes_contiguous({count});
  return at::Tensor(std::move(alias));
}

// On all of its dense memory.
at::Tensor flat(const at::Tensor& t) {
  return stretch(t, t.storage_offset(), t.numel());
}

size_t bytes_of(const at::Tensor& t) {
  return static_cast<size_t>(t.numel()) * t.element_size();
}

// By the allocator itself, which costs less than a kernel's call. It has to be
// one whose copies are in the order of the current device's current stream.
bool copyable(const at::Tensor& t) {
  return (t.is_cuda() || t.is_privateuseone()) &&
         bytes_of(t) <= kLargestCopied && t.storage_offset() == 0 &&
         t.is_non_overlapping_and_dense() &&
         !c10::isComplexType(t.scalar_type()) &&
         t.unsafeGetTensorImpl()->unsafe_storage().allocator() != nullptr &&
         current_device(t.device().type()) == t.device();
}

// As they are, whatever the user's autocast says of norms. CUDA's pass over a
// list is two launches, so a list of one is none there; elsewhere lists have
// the faster kernel.
std::vector<at::Tensor> magnitudes_of(const std::vector<at::Tensor>& tensors) {
  c10::impl::ExcludeDispatchKeyGuard plainly(c10::autocast_dispatch_keyset);
  if (tensors.size() == 1 && tensors.front().is_cuda()) {
    return {at::linalg_vector_norm(tensors.front(), kInfinity)};
  }
  return at::_foreach_norm(tensors, kInfinity);
}

// Memory of another stream must not be given away before this one has read it.
void used_by(const at::Tensor& t, c10::Stream stream) {
  c10::impl::VirtualGuardImpl(stream.device_type())
      .recordDataPtrOnStream(
          t.unsafeGetTensorImpl()->unsafe_storage().data_ptr(), stream);
}

}  // namespace

bool device_checkable(const at::Tensor& t) {
  if (t.numel() == 0 || unreadable(t) != nullptr) {
    return false;
  }
  switch (t.scalar_type()) {
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
    case c10::ScalarType::ComplexFloat:
    case c10::ScalarType::ComplexDouble:
      return true;
    default:
      return false;
  }
}

// A tensor of its own on the same memory: autograd and PyTorch's kernels count
// the references to the user's to decide whether they may take it over. With
// gaps in the memory, a copy: it joins the others' pass, and a pass of its own
// would be launched as well.
at::Tensor DeviceCheck::alias_of(const at::Tensor& t, bool copies) {
  if (bytes_of(t) > kLargestKept || c10::isComplexType(t.scalar_type()) ||
      (copies && copyable(t))) {
    return {};
  }
  if (!t.is_non_overlapping_and_dense()) {
    return flat(t.clone(at::MemoryFormat::Contiguous));
  }
  return flat(t);
}

DeviceCheck::Group& DeviceCheck::group(const at::Tensor& t, bool copies) {
  const auto found =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) {
        return group.dtype == t.scalar_type() && group.device == t.device() &&
               group.copies == copies;
      });
  if (found != groups_.end()) {
    return *found;
  }
  groups_.emplace_back(
      t.scalar_type(), t.device(), current_stream(t.device()), copies);
  return groups_.back();
}

// What is kept is read by one stream.
void DeviceCheck::begin_on(Group& group, c10::Stream stream) {
  if (stream != group.stream) {
    flush(group);
    group.stream = stream;
    group.room.reset();
  }
}

at::Tensor DeviceCheck::copy_into_room(
    const at::Tensor& t, c10::Stream stream) {
  auto& mine = group(t, true);
  begin_on(mine, stream);
  const size_t bytes = bytes_of(t);
  if (!mine.room.defined() || mine.room_used + bytes > kRoom) {
    flush(mine);
    mine.room_used = 0;
    if (!mine.room.defined()) {
      mine.room = at::empty(
          {static_cast<int64_t>(kRoom / t.element_size())},
          c10::TensorOptions(t.device()).dtype(t.scalar_type()));
    }
  }
  const auto offset = static_cast<int64_t>(mine.room_used / t.element_size());
  mine.room_used += (bytes + kAligned - 1) / kAligned * kAligned;
  const auto copy = stretch(mine.room, offset, t.numel());
  const auto& storage = mine.room.unsafeGetTensorImpl()->unsafe_storage();
  storage.allocator()->copy_data(
      static_cast<char*>(const_cast<void*>(data_of(mine.room))) +
          offset * static_cast<int64_t>(t.element_size()),
      data_of(t),
      bytes);
  return copy;
}

void DeviceCheck::keep_answer(
    Group& group,
    const at::Tensor& magnitude,
    uint64_t tag,
    c10::Stream stream) {
  group.magnitudes.push_back(flat(magnitude));
  group.tags.push_back(tag);
  auto& streams = group.streams;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.push_back(stream);
  }
}

void DeviceCheck::ask(
    const at::Tensor& t, at::Tensor alias, uint64_t tag, bool copies) {
  const auto stream = current_stream(t.device());
  ++unread_;
  if (copies && copyable(t)) {
    at::Tensor copy = copy_into_room(t, stream);
    keep(group(t, true), std::move(copy), tag);
    return;
  }
  if (!alias.defined()) {
    const at::Tensor plain =
        c10::isComplexType(t.scalar_type()) ? at::view_as_real(t) : t;
    const at::Tensor whole =
        plain.is_non_overlapping_and_dense() ? flat(plain) : plain;
    keep_answer(
        group(plain, false), magnitudes_of({whole}).front(), tag, stream);
    return;
  }
  auto& mine = group(t, false);
  begin_on(mine, stream);
  used_by(alias, stream);
  keep(mine, std::move(alias), tag);
}

void DeviceCheck::keep(Group& group, at::Tensor held, uint64_t tag) {
  group.kept_bytes += bytes_of(held);
  group.kept_data.push_back(data_of(held));
  group.kept_tags.push_back(tag);
  group.kept.push_back(std::move(held));
  if (group.kept.size() >= kKept || group.kept_bytes >= kKeptBytes) {
    flush(group);
  }
}

void DeviceCheck::flush(Group& group) {
  if (group.kept.empty()) {
    return;
  }
  std::vector<at::Tensor> asked;
  std::vector<uint64_t> tags;
  asked.reserve(group.kept.size());
  for (size_t i = 0; i < group.kept.size(); ++i) {
    // Storages are taken from their tensors without a kernel (sharded training
    // does); the question is then void.
    const auto& t = group.kept[i];
    const auto needed =
        static_cast<size_t>(t.storage_offset() + t.numel()) * t.element_size();
    if (data_of(t) == group.kept_data[i] &&
        t.unsafeGetTensorImpl()->unsafe_storage().nbytes() >= needed) {
      asked.push_back(t);
      tags.push_back(group.kept_tags[i]);
    } else {
      --unread_;
    }
  }
  if (!asked.empty()) {
    c10::OptionalStreamGuard guard;
    if (current_stream(group.device) != group.stream) {
      guard.reset_stream(group.stream);
    }
    const auto magnitudes = magnitudes_of(asked);
    for (size_t i = 0; i < asked.size(); ++i) {
      keep_answer(group, magnitudes[i], tags[i], group.stream);
    }
  }
  for (auto& t : group.kept) {
    spent_.push_back(std::move(t));
  }
  group.kept.clear();
  group.kept_data.clear();
  group.kept_tags.clear();
  group.kept_bytes = 0;
}

void DeviceCheck::let_go() {
  for (auto& group : groups_) {
    if (!group.copies) {
      flush(group);
    }
  }
}

void DeviceCheck::before_write(const at::Tensor& t) {
  for (auto& group : groups_) {
    const auto& kept = group.kept;
    if (group.device != t.device() ||
        std::none_of(kept.begin(), kept.end(), [&](const auto& each) {
          return storage_of(each) == storage_of(t);
        })) {
      continue;
    }
    flush(group);
    if (const auto stream = current_stream(t.device());
        stream != group.stream) {
      order(group.stream, stream);
    }
  }
}

DeviceCheck::Answers DeviceCheck::take() {
  Answers answers;
  for (auto& group : groups_) {
    flush(group);
    if (group.magnitudes.empty()) {
      continue;
    }
    const auto stream = current_stream(group.device);
    for (const auto other : group.streams) {
      if (other != stream) {
        order(other, stream);
        for (const auto& magnitude : group.magnitudes) {
          used_by(magnitude, stream);
        }
      }
    }
    auto values = at::cat(group.magnitudes)
                      .to(c10::TensorOptions(c10::kCPU).dtype(c10::kDouble),
                          /*non_blocking=*/true);
    std::optional<c10::Event> ready(group.device.type());
    ready->record(stream);
    answers.parts_.push_back(
        {std::move(group.tags), std::move(values), std::move(ready)});
    group.tags.clear();
    group.magnitudes.clear();
    group.streams.clear();
  }
  unread_ = 0;
  return answers;
}

std::vector<DeviceCheck::Answer> DeviceCheck::Answers::read() {
  std::vector<Answer> answers;
  for (auto& part : parts_) {
    part.ready->synchronize();
    const auto* values = part.values.const_data_ptr<double>();
    for (size_t i = 0; i < part.tags.size(); ++i) {
      answers.push_back({part.tags[i], values[i]});
    }
  }
  parts_.clear();
  return answers;
}

}  // namespace optools
