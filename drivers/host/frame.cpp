// SPDX-License-Identifier: Apache-2.0
// A queued frame: one piece of memory, copied and relocated.
#include <cstring>

#include "host.h"
#include "kernels/dtype.h"

namespace npu::host {
namespace {

// Lays the arrays of a frame out one after another. Run twice: without memory
// to measure, with memory to copy.
class Packer {
 public:
  explicit Packer(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* pack(const T* from, std::size_t n) {
    return static_cast<T*>(pack_bytes(from, n * sizeof(T)));
  }
  void* pack_bytes(const void* from, std::size_t bytes) {
    if (!from || bytes == 0) {
      return nullptr;
    }
    std::byte* to = memory_ ? memory_ + used_ : nullptr;
    if (to) {
      std::memcpy(to, from, bytes);
    }
    used_ += (bytes + 15) / 16 * 16;
    return to;
  }
  std::size_t used() const {
    return used_;
  }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

npu_tensor* pack_tensors(
    Packer& packer, const npu_tensor* from, std::size_t n) {
  npu_tensor* to = packer.pack(from, n);
  for (std::size_t i = 0; i < n && from; ++i) {
    if (from[i].dtype == NPU_ABSENT) {
      continue;
    }
    int64_t* sizes = packer.pack(from[i].sizes, from[i].ndim);
    int64_t* strides = packer.pack(from[i].strides, from[i].ndim);
    void* value = from[i].data;
    if (from[i].flags & NPU_TENSOR_HOST_SCALAR) {
      value = packer.pack_bytes(value, element_bytes(from[i].dtype));
    }
    if (to) {
      to[i].sizes = sizes;
      to[i].strides = strides;
      to[i].data = value;
    }
  }
  return to;
}

npu_list* pack_lists(Packer& packer, const npu_list* from, std::size_t n) {
  npu_list* to = packer.pack(from, n);
  for (std::size_t i = 0; i < n; ++i) {
    void** data = packer.pack(const_cast<void**>(from[i].data), from[i].n);
    int64_t* numel = packer.pack(from[i].numel, from[i].n);
    npu_tensor* tensors = from[i].tensors
                              ? pack_tensors(packer, from[i].tensors, from[i].n)
                              : nullptr;
    if (from[i].flags & NPU_TENSOR_HOST_SCALAR) {
      for (std::uint32_t j = 0; j < from[i].n; ++j) {
        void* value =
            packer.pack_bytes(from[i].data[j], element_bytes(from[i].dtype));
        if (data) {
          data[j] = value;
        }
      }
    }
    if (to) {
      to[i].data = data;
      to[i].numel = numel;
      to[i].tensors = tensors;
    }
  }
  return to;
}

npu_call* pack_call(Packer& packer, const npu_call& from) {
  npu_call* to = packer.pack(&from, 1);
  npu_tensor* tensors =
      pack_tensors(packer, from.tensors, from.n_out + from.n_in);
  void* attrs = packer.pack_bytes(from.attrs, from.attr_bytes);
  npu_list* lists = pack_lists(packer, from.lists, from.n_lists);
  char* label = from.label
                    ? packer.pack(from.label, std::strlen(from.label) + 1)
                    : nullptr;
  if (to) {
    to->tensors = tensors;
    to->attrs = attrs;
    to->lists = lists;
    to->label = label;
  }
  return to;
}

}  // namespace

Frame::Frame(const npu_call& call) {
  Packer measure(nullptr);
  pack_call(measure, call);
  memory_.reset(new std::byte[measure.used()]);
  Packer copy(memory_.get());
  call_ = pack_call(copy, call);
}

}  // namespace npu::host
