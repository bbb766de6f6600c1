// SPDX-License-Identifier: Apache-2.0
// One call on a twin: npu arguments become its tensors, its results become npu
// tensors.
//
// Note [One to one]: within a call one npu storage has one twin storage and one
// npu tensor one twin tensor. PyTorch's overlap checks compare storages, and
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
#include "aten/twin/entry.h"
#include "aten/twin/twin.h"

namespace npu::twin {

class TwinCall {
 public:
  // `reach`: one of reaches_of(device).
  TwinCall(const Entry& entry, c10::Device device, const Reach& reach);
  ~TwinCall();
  TwinCall(const TwinCall&) = delete;
  TwinCall& operator=(const TwinCall&) = delete;

  // Replaces the operator's npu arguments by twin tensors over the same bytes
  // (rung 4) or over copies (rung 5): their wrappers.
  void convert_arguments(c10::IValue* args);
  // The wrapper of an argument that outlives the call; the call owns the
  // wrapper. An undefined tensor stays one.
  c10::TensorImpl* convert(const at::Tensor& original, const Arg& arg);
  // The same as a tensor. It may be a temporary: the call keeps it.
  at::Tensor to_twin(const at::Tensor& original, const Arg& arg);
  // Before the first argument: Note [Wide].
  void widen(const WideInputs& inputs) {
    wide_ = Wide::plan(inputs);
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
  // Of the arguments that were converted, but not of out= ones.
  std::uint64_t judged_dtypes() const {
    return judged_.bits();
  }
  c10::Device device() const {
    return device_;
  }
  // Of the wrappers.
  c10::Device twin_device() const {
    return twin_device_;
  }
  const Twin& twin() const {
    return twin_;
  }
  // What CPU kernels allocate from: the device's pool, or PyTorch's own memory
  // on rung 5 and for host tensors.
  ShimState shim() const {
    return {
        copies_ || for_host_ ? c10::DeviceIndex{-1} : device_.index(), opens_};
  }

  // "Float[2, 3] Long[3]".
  std::string describe() const;

  // Used by the other layouts (components.cpp): their members go through the
  // same maps.
  at::Tensor to_npu(at::Tensor twin);
  // Remembers a pair that is no plain tensor with bytes.
  void remember(
      const at::Tensor& original, const at::Tensor& twin, bool written);
  // The npu storage for a twin one: the argument's, or a new one.
  c10::Storage storage_to_npu(const c10::Storage& twin);
  // A wrapper's own storage, for tensors that are more than a TensorImpl.
  c10::Storage storage_to_twin(const c10::Storage& original, const Arg& arg);

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Wrapped {
    c10::TensorImpl* original;
    at::Tensor twin;        // the same tensor for a CPU argument
    std::uint32_t storage;  // in storages_, or kNone
    bool written;
    bool pooled;
  };
  struct Mapped {
    c10::StorageImpl* original;
    c10::StorageImpl* twin;
    void* data;             // of the twin storage, as we gave it to the kernel
    std::size_t bytes;      // of both
    std::uint32_t holders;  // wrappers of ours that share it
    bool written;
    bool out_only;  // nothing of its content is needed (rung 5)
    bool may_grow;  // an out= tensor's: a kernel may resize it
    bool kept;      // a kernel holds on to it
    void* opened;   // what to close in the end
    std::size_t opened_bytes;
  };

  void check_device(const at::Tensor& tensor, const Arg& arg) const;
  bool owns(const c10::DataPtr& data) const noexcept {
    return C10_LIKELY(on_cpu_) ? is_pool_block(data) : twin_.owns(data);
  }
  void adopt(c10::DataPtr& data, c10::Device device) const;
  c10::TensorImpl* wrap(const at::Tensor& original, const Arg& arg);
  c10::TensorImpl* wrap_dense(c10::TensorImpl& original, const Arg& arg);
  std::uint32_t map_storage(
      c10::StorageImpl* original, c10::StorageImpl* twin, const Arg& arg);
  std::uint32_t find_original(const c10::TensorImpl* impl) const;
  std::uint32_t find_twin(const c10::TensorImpl* impl) const;
  std::uint32_t find_storage(const c10::StorageImpl* original) const;
  std::uint32_t find_twin_storage(const c10::StorageImpl* twin) const;
  void append(Wrapped wrapped);
  void index_last();
  std::uint32_t append_storage(const Mapped& mapped);
  void convert_list(c10::IValue& list, const Arg& arg);
  void widen(c10::IValue* args);

  at::Tensor adopt_dense(at::Tensor twin);
  c10::Storage upload(const c10::Storage& twin);
  void take_new_memory(Mapped& mapped);
  void write_back_one(Wrapped& wrapped);
  void keep_alive(Mapped& mapped) const;

  void upload_written();

  const Entry& entry_;
  const c10::Device device_;
  const Twin& twin_;
  const c10::Device twin_device_;
  const bool on_cpu_;  // twin_ is the CPU's
  const bool copies_;  // rung 5: host code cannot read the device's memory
  const bool opens_;   // it has to be opened first
  // The call makes host tensors: x.to("cpu") of a layout with a kernel for it,
  // copy_ into a CPU tensor. Its results stay as they are.
  bool for_host_ = false;
  std::uint64_t bytes_ = 0;
  JudgedDtypes judged_;
  std::unique_ptr<Wide> wide_;
  c10::SmallVector<Wrapped, 6> tensors_;
  c10::SmallVector<Mapped, 6> storages_;    // arguments', then new results'
  c10::SmallVector<c10::Storage, 0> kept_;  // of results, while maps hold them
  c10::SmallVector<at::Tensor, 6> originals_;  // without another owner
  // Only made when lists make linear search slow.
  struct Index {
    ska::flat_hash_map<const void*, std::uint32_t> tensors;
    ska::flat_hash_map<const void*, std::uint32_t> storages;
  };
  std::unique_ptr<Index> index_;
};

at::Tensor components_to_twin(
    TwinCall& call, const at::Tensor& original, const Arg& arg);
at::Tensor components_to_npu(TwinCall& call, const at::Tensor& twin);
// After an in-place operator: members of `twin` that changed, into `original`.
void write_back_components(
    TwinCall& call, const at::Tensor& original, const at::Tensor& twin);

}  // namespace npu::twin
