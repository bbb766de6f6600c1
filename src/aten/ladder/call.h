// SPDX-License-Identifier: Apache-2.0
// One CPU call: npu arguments become CPU tensors, results become npu tensors.
//
// Note [One to one]: within a call one npu storage has one CPU storage and one
// npu tensor one CPU tensor. PyTorch's overlap checks compare storages, and
// cat((x, y), out=x) compares tensors; with a wrapper per use they see
// nothing and compute garbage.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <string>

#include "aten/core/site.h"
#include "aten/ladder/entry.h"
#include "aten/ladder/shim.h"

namespace npu::ladder {

class CpuCall {
 public:
  // `copies`: rung 5, host code cannot read the device's memory.
  // `opens`: rung 4 with memory that has to be opened first.
  CpuCall(const Entry& entry, c10::Device device, bool copies, bool opens);
  ~CpuCall();
  CpuCall(const CpuCall&) = delete;
  CpuCall& operator=(const CpuCall&) = delete;

  // Replaces the operator's npu arguments by CPU tensors over the same bytes
  // (rung 4) or over copies (rung 5): their wrappers.
  void convert_arguments(c10::IValue* args);
  // The wrapper of an argument that outlives the call; the call owns the
  // wrapper. An undefined tensor stays one.
  c10::TensorImpl* convert(const at::Tensor& original, const Arg& arg);
  // The same as a tensor. It may be a temporary: the call keeps it.
  at::Tensor to_cpu(const at::Tensor& original, const Arg& arg);
  // Before the first argument: Note [Wide].
  void widen(const WideSight& sight) {
    wide_ = Wide::plan(sight);
  }
  Wide* wide() {
    return wide_.get();
  }
  // Rung 5: once all arguments are converted, brings their bytes.
  void download();
  // After the kernel, also after one that threw: what it did to the shape and
  // the memory of written tensors is done to the npu ones.
  void write_back();
  // Replaces results by npu tensors: an argument's wrapper by the argument, a
  // view of one by a view of the argument, new memory by moving it.
  void convert_results(c10::IValue* results, std::size_t n);
  // Gives wrappers back, or device memory to the ones a kernel kept.
  void finish();

  std::uint64_t bytes() const {
    return bytes_;
  }
  c10::Device device() const {
    return device_;
  }
  // The call makes host tensors: x.to("cpu") of a layout with a kernel for it,
  // copy_ into a CPU tensor. Its results stay as they are.
  bool for_host() const {
    return for_host_;
  }

  // "Float[2, 3] Long[3]".
  std::string describe() const;

  // Used by the other layouts (components.cpp): their members go through the
  // same maps.
  at::Tensor to_npu(at::Tensor cpu);
  // Remembers a pair that is no plain tensor with bytes.
  void remember(
      const at::Tensor& original, const at::Tensor& cpu, bool written);
  // The npu storage for a CPU one: the argument's, or a new one.
  c10::Storage storage_to_npu(const c10::Storage& cpu);
  // A wrapper's own storage, for tensors that are more than a TensorImpl.
  c10::Storage storage_to_cpu(const c10::Storage& original, const Arg& arg);

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Wrapped {
    c10::TensorImpl* original;
    at::Tensor cpu;         // the same tensor for a CPU argument
    std::uint32_t storage;  // in storages_, or kNone
    bool written;
    bool pooled;
  };
  struct Mapped {
    c10::StorageImpl* original;
    c10::StorageImpl* cpu;
    void* data;             // of the CPU storage, as we gave it to the kernel
    std::size_t bytes;      // of both
    std::uint32_t holders;  // wrappers of ours that share it
    bool written;
    bool out_only;  // nothing of its content is needed (rung 5)
    bool kept;      // a kernel holds on to it
    void* opened;   // what to close in the end
    std::size_t opened_bytes;
  };

  void check_device(const at::Tensor& tensor, const Arg& arg) const;
  // Memory for wide copies and what is made of them: the device's, as all that
  // CPU kernels get.
  ShimScope scratch() const;
  c10::TensorImpl* wrap(const at::Tensor& original, const Arg& arg);
  c10::TensorImpl* wrap_dense(c10::TensorImpl& original, const Arg& arg);
  std::uint32_t map_storage(
      c10::StorageImpl* original, c10::StorageImpl* cpu, const Arg& arg);
  std::uint32_t find_original(const c10::TensorImpl* impl) const;
  std::uint32_t find_cpu(const c10::TensorImpl* impl) const;
  std::uint32_t find_storage(const c10::StorageImpl* original) const;
  std::uint32_t find_cpu_storage(const c10::StorageImpl* cpu) const;
  void append(Wrapped wrapped);
  void index_last();
  std::uint32_t append_storage(const Mapped& mapped);
  void convert_list(c10::IValue& list, const Arg& arg);
  void widen(c10::IValue* args);

  at::Tensor adopt_dense(at::Tensor cpu);
  c10::Storage upload(const c10::Storage& cpu);
  void take_new_memory(Mapped& mapped);
  void write_back_one(Wrapped& wrapped);
  void keep_alive(Mapped& mapped) const;

  void upload_written();

  const Entry& entry_;
  const c10::Device device_;
  const bool copies_;
  const bool opens_;
  bool for_host_ = false;
  std::uint64_t bytes_ = 0;
  std::unique_ptr<Wide> wide_;
  c10::SmallVector<Wrapped, 6> tensors_;
  c10::SmallVector<Mapped, 6> storages_;    // arguments', then new results'
  c10::SmallVector<c10::Storage, 0> kept_;  // of results, while maps hold them
  c10::SmallVector<at::Tensor, 6> originals_;  // nobody else keeps them
  // Only made when lists make linear search slow.
  struct Index {
    ska::flat_hash_map<const void*, std::uint32_t> tensors;
    ska::flat_hash_map<const void*, std::uint32_t> storages;
  };
  std::unique_ptr<Index> index_;
};

at::Tensor components_to_cpu(
    CpuCall& call, const at::Tensor& original, const Arg& arg);
at::Tensor components_to_npu(CpuCall& call, const at::Tensor& cpu);
// After an in-place operator: members of `cpu` that changed, into `original`.
void write_back_components(
    CpuCall& call, const at::Tensor& original, const at::Tensor& cpu);

}  // namespace npu::ladder
