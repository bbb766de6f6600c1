// SPDX-License-Identifier: Apache-2.0
// The process group that torch.distributed calls "hccl" (and "lccl").
//
// A collective is a job: its arguments are noted and the caller's stream
// marked (Arguments), then a lane waits for the stream, meets the other ranks
// on the board, has the driver's communicator (comm/1) or Gloo move the bytes,
// and completes the Work. Collectives
// share one lane, in the order they were asked for; each partner and tag of
// point-to-point calls has one of its own, so that a receive never holds up a
// send.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dist/arguments.h"
#include "dist/board.h"
#include "dist/driver_way.h"
#include "dist/flight_recorder.h"
#include "dist/lane.h"
#include "dist/ways.h"
#include "dist/work.h"
#include "profiler/watch.h"

namespace npu::dist {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using Milliseconds = std::chrono::milliseconds;

class ProcessGroupHccl : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    explicit Options(
        const std::string& name = "hccl",
        Milliseconds limit = kBackendDefaultTimeout)
        : c10d::Backend::Options(name, limit) {}
    std::uint32_t op_timeout = 0;  // seconds; 0: `timeout`
    bool is_high_priority_stream = false;
  };
  using OptionsPtr = c10::intrusive_ptr<Options>;
  // Gloo has no header in PyTorch's package, so Python makes it.
  using GlooFactory = std::function<BackendPtr(
      const StorePtr& store, int rank, int size, const OptionsPtr& options)>;
  static void set_gloo_factory(GlooFactory factory);

  ProcessGroupHccl(
      const StorePtr& store, int rank, int size, OptionsPtr options);
  ~ProcessGroupHccl() override;

  const std::string getBackendName() const override {
    return options_->backend;
  }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return options_;
  }
  OptionsPtr options() const {
    return options_;
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& o) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& o) override;
  WorkPtr allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& o) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& o) override;
  WorkPtr allgather(
      std::vector<Tensors>& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions& o) override;
  WorkPtr _allgather_base(
      at::Tensor& output,
      at::Tensor& input,
      const c10d::AllgatherOptions& o) override;
  WorkPtr allgather_coalesced(
      std::vector<Tensors>& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions& o) override;
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions& o) override;
  WorkPtr gather(
      std::vector<Tensors>& outputs,
      Tensors& inputs,
      const c10d::GatherOptions& o) override;
  WorkPtr scatter(
      Tensors& outputs,
      std::vector<Tensors>& inputs,
      const c10d::ScatterOptions& o) override;
  WorkPtr reduce_scatter(
      Tensors& outputs,
      std::vector<Tensors>& inputs,
      const c10d::ReduceScatterOptions& o) override;
  WorkPtr _reduce_scatter_base(
      at::Tensor& output,
      at::Tensor& input,
      const c10d::ReduceScatterOptions& o) override;
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::ReduceScatterOptions& o) override;
  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_splits,
      std::vector<int64_t>& input_splits,
      const c10d::AllToAllOptions& o) override;
  WorkPtr alltoall(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::AllToAllOptions& o) override;
  WorkPtr barrier(const c10d::BarrierOptions& o) override;
  void monitoredBarrier(const c10d::BarrierOptions& o, bool all) override;

  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  bool supportsSplitting() const override {
    return true;
  }
  BackendPtr split(
      const StorePtr& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  void setTimeout(Milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;
  void setGroupUid(const std::string& uid) override;
  // Fails what is under way and every later call, without waiting for Gloo.
  void abort() override;
  // Waits for what is under way, at most the group's time-out.
  void shutdown() override;
  void waitForPendingWorks() override;

 private:
  // One collective, from the caller to the lane.
  struct Job {
    c10d::OpType type;
    std::string text;  // what every rank must agree on
    Arguments arguments;
    Tensors outputs;
    Milliseconds timeout;
    std::function<void(Job&)> body;
    // Of an all to all: bytes to each rank, then room for what each sends.
    std::vector<std::int64_t> counts{};
    c10::intrusive_ptr<HcclWork> work;
    std::chrono::steady_clock::time_point deadline{};
    profiler::Asked asked{};
    int partner = -1;          // of a send or receive; -1: any, or none
    int tag = 0;               // of the same
    std::uint64_t record = 0;  // in the flight recorder
    // The same for a driver's communicator; empty: none can do it.
    std::function<DriverPlan(Arguments&)> on_driver{};
    bool driver_has_it = false;  // for messages
    // "call 17, all_reduce SUM Float [4]": for messages.
    std::string named() const;
    void count(Way way) const;
  };
  using JobPtr = std::shared_ptr<Job>;
  // What lanes need of the group; they may outlive it.
  struct Shared;

  JobPtr job(
      c10d::OpType type,
      std::string text,
      const at::Tensor& example,
      Milliseconds timeout) const;
  WorkPtr start(const JobPtr& job, Tensors outputs);
  WorkPtr start_on(Lane& lane, const JobPtr& job, Tensors outputs, bool meet);
  Lane& lane_of(const std::string& key);
  // What the driver's communicator would do for it, if there is to be one.
  std::optional<Reduction> on_driver(const Reduction& reduction) const;
  // All of them, or none.
  std::optional<std::vector<Reduction>> all_on_driver(
      const std::vector<Reduction>& reductions) const;
  FlightRecorder::Call flight_call(const Job& job) const;  // flight_call.cpp
  FlightRecorder::Group flight_group() const;
  void describe_message(const Job& job, FlightRecorder::Call& call) const;
  void add_broadcast(const JobPtr& job, std::size_t argument, int root);
  WorkPtr receive(Tensors& tensors, int from, int tag);

  const OptionsPtr options_;
  std::shared_ptr<Shared> shared_;
  std::mutex mutex_;
  std::uint64_t calls_ = 0;
  std::uint64_t messages_ = 0;                          // sends and receives
  std::map<std::string, std::uint64_t> messages_with_;  // by pair
  std::unique_ptr<Lane> collectives_;
  std::map<std::string, std::unique_ptr<Lane>> lanes_;
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

}  // namespace npu::dist
