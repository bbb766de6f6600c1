// SPDX-License-Identifier: Apache-2.0
// NPU_DISCRETE_KERNELS: the kinds of the host driver, computed by its kernels
// on worker threads, with pointers into the second mapping.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "npu/validate.h"
#include "optional.h"

namespace npu::discrete {
namespace {

const npu_driver* base = nullptr;

// A call with everything it points to; device memory as worker threads see it.
class OwnedCall {
 public:
  explicit OwnedCall(const npu_call& given) : call_(given) {
    if (given.attrs != nullptr) {
      call_.attrs = copy(given.attrs, given.attr_bytes);
    }
    tensors_.assign(given.tensors, given.tensors + given.n_out + given.n_in);
    for (npu_tensor& tensor : tensors_) {
      own(tensor);
    }
    call_.tensors = tensors_.data();
    lists_.assign(given.lists, given.lists + given.n_lists);
    for (npu_list& list : lists_) {
      own(list);
    }
    call_.lists = lists_.data();
    call_.workspace = inside(given.workspace);
    if (inside(given.carry) != nullptr) {
      call_.carry = inside(given.carry);
    }
    call_.rng.seed_ptr = words(given.rng.seed_ptr);
    call_.rng.offset_ptr = words(given.rng.offset_ptr);
    call_.flags &= ~NPU_CALL_CAPTURE;
  }
  OwnedCall(const OwnedCall&) = delete;
  OwnedCall& operator=(const OwnedCall&) = delete;

  const npu_call* get() const {
    return &call_;
  }

 private:
  void* copy(const void* data, size_t bytes) {
    std::vector<uint64_t>& made = memory_.emplace_back(bytes / 8 + 1);
    std::memcpy(made.data(), data, bytes);
    return made.data();
  }
  static const uint64_t* words(const uint64_t* device) {
    return reinterpret_cast<const uint64_t*>(inside(device));
  }
  void own(npu_tensor& tensor) {
    if (tensor.dtype == NPU_ABSENT) {
      return;
    }
    const size_t dims = tensor.ndim * sizeof(int64_t);
    tensor.sizes = static_cast<int64_t*>(copy(tensor.sizes, dims));
    tensor.strides = static_cast<int64_t*>(copy(tensor.strides, dims));
    if ((tensor.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
      tensor.data = copy(tensor.data, npu_dtype_bytes(tensor.dtype));
      tensor.storage = tensor.data;
      return;
    }
    tensor.data = inside(tensor.data);
    tensor.storage = inside(tensor.storage);
  }
  void own(npu_list& list) {
    if (list.numel != nullptr) {
      list.numel =
          static_cast<int64_t*>(copy(list.numel, list.n * sizeof(int64_t)));
    }
    if (list.data != nullptr) {
      auto* const data =
          static_cast<void**>(copy(list.data, list.n * sizeof(void*)));
      const bool numbers = (list.flags & NPU_TENSOR_HOST_SCALAR) != 0;
      for (uint32_t i = 0; i < list.n; ++i) {
        data[i] = numbers ? copy(data[i], npu_dtype_bytes(list.dtype))
                          : inside(data[i]);
      }
      list.data = data;
    }
    if (list.tensors != nullptr) {
      auto* const tensors = static_cast<npu_tensor*>(
          copy(list.tensors, list.n * sizeof(npu_tensor)));
      for (uint32_t i = 0; i < list.n; ++i) {
        own(tensors[i]);
      }
      list.tensors = tensors;
    }
  }

  npu_call call_;
  std::vector<npu_tensor> tensors_;
  std::vector<npu_list> lists_;
  std::deque<std::vector<uint64_t>> memory_;
};

npu_stream host_stream() {
  static const npu_stream stream = [] {
    npu_stream made = nullptr;
    base->device->open(0);
    base->stream->create(0, 0, &made);
    return made;
  }();
  return stream;
}

npu_status find(const char* name, uint32_t* slot) {
  return base->op->find(name, slot);
}

npu_status caps(uint32_t slot, uint32_t code, npu_op_caps* out) {
  const npu_status status = base->op->caps(slot, code, out);
  out->flags |= status == NPU_OK ? NPU_CAP_CAPTURE : 0;
  return status;
}

npu_status plan(npu_device device, const npu_call* call, npu_verdict* verdict) {
  NPU_TRY(check_device(device, call, verdict));
  return base->op->plan == nullptr ? NPU_E_UNSUPPORTED
                                   : base->op->plan(0, call, verdict);
}

npu_status run(npu_stream stream, const npu_call* call) {
  NPU_TRY(check(stream, call));
  for (uint32_t i = 0; i < call->n_out + call->n_in; ++i) {
    const npu_tensor& tensor = call->tensors[i];
    if (tensor.dtype != NPU_ABSENT &&
        (tensor.flags & NPU_TENSOR_HOST_SCALAR) == 0 && tensor.numel != 0) {
      NPU_TRY(check_range(device_of(stream), tensor.data, 1));
    }
  }
  return enqueue(
      stream,
      [owned = std::make_shared<OwnedCall>(*call)](std::string& failure) {
        npu_status status = base->op->run(host_stream(), owned->get());
        if (status == NPU_OK) {
          status = base->stream->synchronize(host_stream());
        }
        if (status != NPU_OK) {
          const char* const why = services->last_error();
          failure = why == nullptr ? "a kernel failed" : why;
        }
      },
      call->slot + 2u);
}

void release_plan(void* plan) {
  if (base->op->release_plan != nullptr) {
    base->op->release_plan(plan);
  }
}

const npu_op_table table = {
    sizeof(table), 0, find, caps, plan, run, release_plan, nullptr, nullptr};

}  // namespace

npu_status borrow_host_kernels(
    uint32_t abi, const npu_host_services* given, npu_driver* driver) {
  const char* const path = std::getenv("NPU_DISCRETE_KERNELS");
  if (path == nullptr || *path == '\0') {
    return NPU_OK;
  }
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const auto entry =
      library == nullptr
          ? nullptr
          : reinterpret_cast<npu_status (*)(
                uint32_t, const npu_host_services*, const npu_driver**)>(
                dlsym(library, "npu_driver_entry"));
  if (entry == nullptr || entry(abi, given, &base) != NPU_OK) {
    return fail(NPU_E_INVALID, "NPU_DISCRETE_KERNELS names no host driver.");
  }
  driver->op = &table;
  driver->tensor_flags_known = base->tensor_flags_known;
  return NPU_OK;
}

}  // namespace npu::discrete
