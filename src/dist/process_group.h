// SPDX-License-Identifier: Apache-2.0
// The process group that torch.distributed calls "hccl" (and "lccl").
//
// A call becomes a job: its arguments are noted and the caller's stream is
// marked (Arguments). What a driver's communicator (comm/1) can do is queued
// there in stream order: Note [Stream order] in group_state.h. Anything else
// runs on a lane, a thread that waits for the stream, meets the other ranks on
// the board, has Gloo move the bytes, and completes the Work. Collectives share
// one lane, in the order they were asked for. Each partner and tag of messages
// has one of its own, so that a receive never holds up a send.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dist/group_state.h"

namespace npu::dist {

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
  using LanePtr = std::shared_ptr<Lane>;

  JobPtr job(
      c10d::OpType type,
      std::string text,
      const at::Tensor& example,
      Milliseconds timeout) const;
  WorkPtr start(const JobPtr& job, Tensors outputs);
  WorkPtr start_message(const JobPtr& job, const at::Tensor& tensor);
  // Queues it on the driver's communicator, or has `run` called on the lane.
  WorkPtr start_on(
      const LanePtr& lane,
      const JobPtr& job,
      Tensors outputs,
      std::function<void()> run);
  void check_usable(const Job& job) const;
  LanePtr lane_of(const std::string& key);
  bool messages_use_driver() const {
    return state_->comm_table != nullptr && !state_->checks_calls;
  }
  // What the driver's communicator would do for it, if there is to be one.
  std::optional<Reduction> on_driver(const Reduction& reduction) const;
  // All of them, or none.
  std::optional<std::vector<Reduction>> all_on_driver(
      const std::vector<Reduction>& reductions) const;
  FlightRecorder::Call flight_call(const Job& job) const;
  FlightRecorder::Group flight_group() const;
  void describe_message(const Job& job, FlightRecorder::Call& call) const;
  WorkPtr receive(Tensors& tensors, int from, int tag);

  const OptionsPtr options_;
  const std::shared_ptr<GroupState> state_;
  std::mutex mutex_;  // order of the calls
  std::uint64_t calls_ = 0;
  std::uint64_t messages_ = 0;                          // sends and receives
  std::map<std::string, std::uint64_t> messages_with_;  // by pair
  const LanePtr collectives_;
  std::map<std::string, LanePtr> lanes_;
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

}  // namespace npu::dist
