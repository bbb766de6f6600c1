// SPDX-License-Identifier: Apache-2.0
// Tensors of a collective, as CPU tensors for Gloo or as dense ones for a
// driver's communicator.
//
// Memory the host can read is used where it lies. Other memory goes through
// pinned buffers: down on the caller's stream, up on a stream of the lane's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/event.h"

namespace npu::dist {

class Arguments {
 public:
  explicit Arguments(c10::DeviceIndex device);

  // On the caller's thread. The number to ask for it.
  std::size_t read(const at::Tensor& tensor);
  std::size_t write(const at::Tensor& tensor);
  std::size_t update(const at::Tensor& tensor);  // read, then written
  // Before queue(): nothing goes to the host unless fetch() asks for it.
  void keep_on_device() {
    kept_ = true;
  }
  // Queues what must come first; after it the caller's stream may go on.
  void queue();

  // On the lane's thread: waits for the caller's stream.
  void await() const {
    queued_.synchronize();
  }
  // After it: has the values for the host.
  void fetch();
  // A contiguous CPU tensor with the values, or to be written.
  at::Tensor& host(std::size_t number) {
    return all_[number].host;
  }
  // Its bytes, whatever its dtype.
  at::Tensor bytes(std::size_t number);
  // Results go back to the device.
  void store();

  // For a driver's communicator instead, in the order of `stream`, which is the
  // current one: it waits for the caller's stream, and has each as a dense
  // tensor on its device.
  void place(c10::Stream stream);
  at::Tensor& placed(std::size_t number) {
    return all_[number].placed;
  }
  void put_back();
  // The caller may free the tensors now; their memory is not used again before
  // `stream` has passed the work it holds. Returns the tensors whose memory is
  // not the allocator's: those must be kept alive that long.
  std::vector<at::Tensor> release(c10::Stream stream);

  // Gloo reads and writes the device's memory where it lies.
  bool in_place() const {
    return in_place_;
  }
  c10::DeviceIndex device() const {
    return device_;
  }
  // What it reads, or where it reads nothing, what it writes.
  std::uint64_t bytes_of_this_rank() const;
  // What is read, and what is written.
  std::vector<at::Tensor> inputs() const;
  std::vector<at::Tensor> outputs() const;

 private:
  struct Argument {
    at::Tensor tensor;
    bool reads = false;
    bool writes = false;
    at::Tensor alias;  // the same bytes, where the host can read them
    at::Tensor host;
    at::Tensor placed;
  };
  void stage();
  std::size_t add(const at::Tensor& tensor, bool reads, bool writes);

  const c10::DeviceIndex device_;
  const bool in_place_;
  bool kept_ = false;
  std::vector<Argument> all_;
  Event queued_;
};

// Gloo can use the device's memory where it lies.
bool gloo_reaches(c10::DeviceIndex device);
// A stream can wait for a thread of the host while its caller goes on.
bool streams_wait_for_host();

}  // namespace npu::dist
