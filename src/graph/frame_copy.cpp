// SPDX-License-Identifier: Apache-2.0
// A call frame that outlives the call.
#include "graph/frame_copy.h"

#include <algorithm>
#include <cstring>

#include "driver/plan_cache.h"
#include "npu/validate.h"

namespace npu::graph {
namespace {

constexpr std::size_t kAlign = 16;
constexpr std::size_t kNumberBytes = 8;  // each number of a list has its own

// Bytes from the first to behind the last element.
std::uint64_t extent(const npu_tensor& tensor) {
  if (tensor.storage_bytes == 0 || tensor.storage == nullptr) {
    return 0;
  }
  const auto* const data = static_cast<const std::byte*>(tensor.data);
  const auto* const base = static_cast<const std::byte*>(tensor.storage);
  const std::uint64_t before = static_cast<std::uint64_t>(data - base);
  return tensor.storage_bytes > before ? tensor.storage_bytes - before : 0;
}

}  // namespace

// Lays the block out. Arrays are appended and pointers to them noted; nothing
// points anywhere before the block has its place.
class FrameCopy::Writer {
 public:
  explicit Writer(const Resolve& resolve) : resolve_(resolve) {}

  bool write(const npu_call& frame) {
    if (frame.carry != nullptr || frame.rng.seed_ptr != nullptr ||
        frame.rng.offset_ptr != nullptr) {
      return false;
    }
    const std::uint32_t size =
        std::min<std::uint32_t>(frame.size, sizeof(npu_call));
    const std::uint32_t head = append(&frame, size, sizeof(npu_call));
    reinterpret_cast<npu_call*>(bytes.data() + head)->host_workspace = nullptr;
    const std::uint32_t attrs = append(frame.attrs, frame.attr_bytes);
    point(head + offsetof(npu_call, attrs), attrs, frame.attrs != nullptr);
    const npu_kind_info* const kind = npu_kind_of(frame.slot);
    how_ = {.ref = {}, .reads = true, .writes = true};
    if (!device(
            head + offsetof(npu_call, workspace),
            frame.workspace,
            frame.workspace_bytes)) {
      return false;
    }
    const std::uint32_t n = frame.n_out + frame.n_in;
    const std::uint32_t tensors = append(frame.tensors, n * sizeof(npu_tensor));
    point(head + offsetof(npu_call, tensors), tensors, n != 0);
    for (std::uint32_t i = 0; i < n; ++i) {
      set_mode(
          i < frame.n_out
              ? mode_of(kind, 0, i, kind == nullptr ? 0 : kind->n_out)
              : NPU_MODE_IN);
      if (!tensor(tensors + i * sizeof(npu_tensor), frame.tensors[i])) {
        return false;
      }
    }
    return lists(head, frame, kind);
  }

  std::vector<std::byte> bytes;
  std::vector<Patch> patches;
  std::vector<Inner> inner;
  Numbers numbers;

 private:
  std::uint32_t append(
      const void* data, std::size_t size, std::size_t room = 0) {
    const std::size_t at = (bytes.size() + kAlign - 1) / kAlign * kAlign;
    bytes.resize(at + std::max(size, room));
    if (size != 0) {
      std::memcpy(bytes.data() + at, data, size);
    }
    return static_cast<std::uint32_t>(at);
  }
  void point(std::size_t at, std::uint32_t to, bool set) {
    if (set) {
      inner.push_back({static_cast<std::uint32_t>(at), to});
    }
  }
  bool device(std::size_t at, const void* pointer, std::uint64_t size) {
    if (pointer == nullptr) {
      return true;
    }
    const std::optional<Ref> ref = resolve_(pointer, size);
    if (ref) {
      Use how = how_;
      how.bytes = size;
      how.covered = covered_;
      patches.push_back({static_cast<std::uint32_t>(at), *ref, how});
    }
    return ref.has_value();
  }

  bool tensor(std::size_t at, const npu_tensor& tensor) {
    if (tensor.dtype == NPU_ABSENT) {
      return true;
    }
    const std::size_t dims = tensor.ndim * sizeof(std::int64_t);
    point(at + offsetof(npu_tensor, sizes), append(tensor.sizes, dims), true);
    point(
        at + offsetof(npu_tensor, strides), append(tensor.strides, dims), true);
    if ((tensor.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
      // A number: the value is part of the call.
      const std::uint32_t value =
          append(tensor.data, npu_dtype_bytes(tensor.dtype), kAlign);
      point(at + offsetof(npu_tensor, data), value, true);
      point(at + offsetof(npu_tensor, storage), value, true);
      return true;
    }
    const void* const base =
        tensor.storage != nullptr ? tensor.storage : tensor.data;
    const bool dense =
        (tensor.flags & (NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE)) != 0;
    covered_ = dense ? static_cast<std::uint64_t>(tensor.numel) *
                           npu_dtype_bytes(tensor.dtype)
                     : 0;
    return device(
               at + offsetof(npu_tensor, storage),
               base,
               tensor.storage_bytes) &&
           device(at + offsetof(npu_tensor, data), tensor.data, extent(tensor));
  }

  // Of operand i behind `skipped` others; both ways where it is unknown.
  static std::uint32_t mode_of(
      const npu_kind_info* kind,
      std::uint32_t skipped,
      std::uint32_t i,
      std::uint32_t n) {
    return kind == nullptr || i >= n ? NPU_MODE_INOUT
                                     : kind->operands[skipped + i].mode;
  }
  void set_mode(std::uint32_t mode) {
    how_.reads = mode == NPU_MODE_IN || mode == NPU_MODE_INOUT;
    how_.writes = mode != NPU_MODE_IN;
    how_.list = -1;
    how_.entry = -1;
  }

  bool lists(
      std::uint32_t head, const npu_call& frame, const npu_kind_info* kind) {
    const std::uint32_t at =
        append(frame.lists, frame.n_lists * sizeof(npu_list));
    point(head + offsetof(npu_call, lists), at, frame.n_lists != 0);
    for (std::uint32_t i = 0; i < frame.n_lists; ++i) {
      set_mode(
          kind == nullptr
              ? NPU_MODE_INOUT
              : mode_of(kind, kind->n_out + kind->n_in, i, kind->n_lists));
      how_.list = static_cast<std::int32_t>(i);
      if (!list(at + i * sizeof(npu_list), frame.lists[i])) {
        return false;
      }
    }
    return true;
  }

  bool list(std::size_t at, const npu_list& list) {
    const std::uint32_t numel =
        append(list.numel, list.n * sizeof(std::int64_t));
    point(at + offsetof(npu_list, numel), numel, list.numel != nullptr);
    if ((list.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
      return host_numbers(at, list);
    }
    if (list.data != nullptr) {
      const std::uint32_t data = append(list.data, list.n * sizeof(void*));
      point(at + offsetof(npu_list, data), data, true);
      for (std::uint32_t i = 0; i < list.n; ++i) {
        how_.entry = static_cast<std::int32_t>(i);
        const std::uint64_t size =
            list.numel == nullptr ? 0
                                  : static_cast<std::uint64_t>(list.numel[i]) *
                                        npu_dtype_bytes(list.dtype);
        covered_ = size;
        if (!device(data + i * sizeof(void*), list.data[i], size)) {
          return false;
        }
      }
    }
    if (list.tensors != nullptr) {
      const std::uint32_t tensors =
          append(list.tensors, list.n * sizeof(npu_tensor));
      point(at + offsetof(npu_list, tensors), tensors, true);
      for (std::uint32_t i = 0; i < list.n; ++i) {
        how_.entry = static_cast<std::int32_t>(i);
        if (!tensor(tensors + i * sizeof(npu_tensor), list.tensors[i])) {
          return false;
        }
      }
    }
    return true;
  }

  // One list of them: values and pointers go into the block.
  bool host_numbers(std::size_t at, const npu_list& list) {
    if (numbers.n != 0 || list.tensors != nullptr || list.data == nullptr ||
        (list.dtype != NPU_F32 && list.dtype != NPU_F64)) {
      return false;
    }
    const std::uint32_t values = append(nullptr, 0, list.n * kNumberBytes);
    const std::uint32_t data = append(list.data, list.n * sizeof(void*));
    point(at + offsetof(npu_list, data), data, true);
    for (std::uint32_t i = 0; i < list.n; ++i) {
      const auto to = static_cast<std::uint32_t>(values + i * kNumberBytes);
      std::memcpy(bytes.data() + to, list.data[i], npu_dtype_bytes(list.dtype));
      point(data + i * sizeof(void*), to, true);
    }
    numbers = {.at = values, .n = list.n, .dtype = list.dtype};
    return true;
  }

  const Resolve& resolve_;
  Use how_;  // of the operand that is being written
  std::uint64_t covered_ = 0;
};

std::optional<FrameCopy> FrameCopy::make(
    const npu_call& frame, PlanHandle plan, const Resolve& resolve) {
  Writer writer(resolve);
  if (!writer.write(frame)) {
    return std::nullopt;
  }
  FrameCopy made;
  made.bytes_ = static_cast<std::uint32_t>(writer.bytes.size());
  // new[] of bytes is aligned for every fundamental type.
  made.block_ = std::make_unique<std::byte[]>(writer.bytes.size());
  std::memcpy(made.block_.get(), writer.bytes.data(), writer.bytes.size());
  made.patches_ = std::move(writer.patches);
  made.inner_ = std::move(writer.inner);
  made.numbers_ = writer.numbers;
  made.plan_ = std::move(plan);
  made.set_inner_pointers();
  return made;
}

FrameCopy::FrameCopy(const FrameCopy& other)
    : block_(std::make_unique<std::byte[]>(other.bytes_)),
      bytes_(other.bytes_),
      patches_(other.patches_),
      inner_(other.inner_),
      numbers_(other.numbers_),
      draw_(other.draw_),
      plan_(other.plan_) {
  std::memcpy(block_.get(), other.block_.get(), bytes_);
  set_inner_pointers();
}

void FrameCopy::set_inner_pointers() noexcept {
  for (const Inner& inner : inner_) {
    *reinterpret_cast<void**>(block_.get() + inner.at) =
        block_.get() + inner.to;
  }
}

double FrameCopy::number(std::uint32_t entry) const noexcept {
  const std::byte* const at = block_.get() + numbers_.at + entry * kNumberBytes;
  if (numbers_.dtype == NPU_F64) {
    return *reinterpret_cast<const double*>(at);
  }
  return *reinterpret_cast<const float*>(at);
}

void FrameCopy::set_number(std::uint32_t entry, double value) noexcept {
  std::byte* const at = block_.get() + numbers_.at + entry * kNumberBytes;
  if (numbers_.dtype == NPU_F64) {
    *reinterpret_cast<double*>(at) = value;
  } else {
    *reinterpret_cast<float*>(at) = static_cast<float>(value);
  }
}

bool FrameCopy::has_only_lists() const noexcept {
  const npu_call& call = frame();
  if (call.plan != nullptr || call.workspace != nullptr ||
      call.n_out + call.n_in != 0 || call.n_lists == 0) {
    return false;
  }
  const std::span<const npu_list> all(call.lists, call.n_lists);
  return std::ranges::all_of(all, [&](const npu_list& list) {
    const bool is_absent = list.n == 0 && list.data == nullptr;
    return list.tensors == nullptr &&
           (is_absent || (list.n == all[0].n && list.data != nullptr));
  });
}

FrameCopy FrameCopy::entries(std::uint32_t first, std::uint32_t last) const {
  FrameCopy made(*this);
  auto* const call = reinterpret_cast<npu_call*>(made.block_.get());
  const auto lists = reinterpret_cast<const std::byte*>(call->lists);
  const auto at = static_cast<std::uint32_t>(lists - made.block_.get());
  const auto moves = [&](const Inner& inner) {
    const std::uint32_t in = (inner.at - at) % sizeof(npu_list);
    return inner.at >= at && inner.at < at + call->n_lists * sizeof(npu_list) &&
           (in == offsetof(npu_list, data) || in == offsetof(npu_list, numel));
  };
  for (Inner& inner : made.inner_) {
    inner.to += moves(inner) ? first * sizeof(void*) : 0;
  }
  made.set_inner_pointers();
  for (std::uint32_t i = 0; i < call->n_lists; ++i) {
    auto& list = const_cast<npu_list&>(call->lists[i]);
    list.n = list.data == nullptr ? 0 : last - first;
  }
  std::erase_if(made.patches_, [&](const Patch& patch) {
    const auto entry = static_cast<std::uint32_t>(patch.how.entry);
    return patch.how.entry >= 0 && (entry < first || entry >= last);
  });
  for (Patch& patch : made.patches_) {
    patch.how.entry -= patch.how.entry < 0 ? 0 : static_cast<int>(first);
  }
  if (made.numbers_.n != 0) {
    made.numbers_.at += first * kNumberBytes;
    made.numbers_.first += first;
    made.numbers_.n = last - first;
  }
  return made;
}

bool FrameCopy::remap(
    const std::function<std::optional<Ref>(const Ref&)>& change) {
  for (Patch& patch : patches_) {
    const std::optional<Ref> ref = change(patch.ref);
    if (!ref) {
      return false;
    }
    patch.ref = *ref;
  }
  return true;
}

std::optional<Ref> FrameCopy::place_of(const void* field) const {
  const std::ptrdiff_t at = static_cast<const std::byte*>(field) - block_.get();
  const auto found = std::ranges::find_if(patches_, [&](const Patch& patch) {
    return static_cast<std::ptrdiff_t>(patch.at) == at;
  });
  return found == patches_.end() ? std::nullopt : std::optional(found->ref);
}

std::vector<BufferId> FrameCopy::buffers() const {
  std::vector<BufferId> found;
  for (const Patch& patch : patches_) {
    if (std::ranges::find(found, patch.ref.buffer) == found.end()) {
      found.push_back(patch.ref.buffer);
    }
  }
  return found;
}

std::vector<Use> FrameCopy::uses() const {
  std::vector<Use> found;
  for (const Patch& patch : patches_) {
    found.push_back(patch.how);
    found.back().ref = patch.ref;
  }
  return found;
}

}  // namespace npu::graph
