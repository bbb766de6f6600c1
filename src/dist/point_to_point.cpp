// SPDX-License-Identifier: Apache-2.0
// Send, receive and barriers.
//
// A message is its size, then its bytes: Gloo would end the process when a
// receiver expects another size than was sent.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "dist/shared.h"
#include "runtime/device.h"

namespace npu::dist {
namespace {

using c10d::OpType;

at::Tensor& single(Tensors& tensors, const char* name) {
  TORCH_CHECK_VALUE(
      tensors.size() == 1,
      "hccl: ",
      name,
      " takes one tensor, got ",
      tensors.size(),
      ".");
  return tensors[0];
}

std::string message_text(
    const std::string& name, const at::Tensor& tensor, int tag) {
  return c10::str(
      name, " ", tensor.scalar_type(), " ", tensor.sizes(), " tag ", tag);
}

void check_partner(int other, int rank, int size, const char* name) {
  TORCH_CHECK_VALUE(
      other >= 0 && other < size && other != rank,
      "hccl: ",
      name,
      ": rank ",
      other,
      " is no partner of rank ",
      rank,
      " in a group of ",
      size,
      ".");
}

// Gloo has no time-out of a call here, only of the wait.
bool await(
    const WorkPtr& work, std::chrono::steady_clock::time_point deadline) {
  return work->wait(time_left(deadline));
}

}  // namespace

WorkPtr ProcessGroupHccl::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = single(tensors, "send");
  check_partner(to, rank_, size_, "send");
  const auto made =
      job(OpType::SEND,
          message_text(c10::str("send to rank ", to), tensor, tag),
          tensor,
          c10d::kUnsetTimeout);
  made->partner = to;
  made->tag = tag;
  const auto from = made->arguments.read(tensor);
  made->body = [gloo = shared_->gloo, from, to, tag](Job& job) {
    at::Tensor data = job.arguments.bytes(from);
    Tensors size{at::full({1}, data.numel(), at::kLong)};
    await(gloo->send(size, to, tag), job.deadline);
    if (data.numel() != 0) {
      Tensors one{data};
      await(gloo->send(one, to, tag), job.deadline);
    }
  };
  return start_on(lane_of(c10::str("s", to, ".", tag)), made, {tensor}, false);
}

WorkPtr ProcessGroupHccl::receive(Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = single(tensors, "recv");
  const auto made =
      job(from < 0 ? OpType::RECVANYSOURCE : OpType::RECV,
          message_text(
              from < 0 ? std::string("recv from any rank")
                       : c10::str("recv from rank ", from),
              tensor,
              tag),
          tensor,
          c10d::kUnsetTimeout);
  made->partner = from;
  made->tag = tag;
  const auto to = made->arguments.write(tensor);
  made->body = [gloo = shared_->gloo, to, from, tag](Job& job) {
    Tensors size{at::zeros({1}, at::kLong)};
    int source = from;
    if (from < 0) {
      const auto first = gloo->recvAnysource(size, tag);
      await(first, job.deadline);
      source = first->sourceRank();
    } else {
      await(gloo->recv(size, from, tag), job.deadline);
    }
    job.work->set_source(source);
    const int64_t sent = size[0].const_data_ptr<int64_t>()[0];
    at::Tensor room = job.arguments.bytes(to);
    Tensors one{sent == room.numel() ? room : at::empty({sent}, at::kByte)};
    if (sent != 0) {
      await(gloo->recv(one, source, tag), job.deadline);
    }
    if (sent != room.numel()) {
      throw_disagreement(c10::str(
          "hccl: ",
          job.text,
          " has room for ",
          room.numel(),
          " bytes, but rank ",
          source,
          " sent ",
          sent,
          ". The message was dropped."));
    }
  };
  return start_on(
      lane_of(c10::str("r", from, ".", tag)), made, {tensor}, false);
}

WorkPtr ProcessGroupHccl::recv(Tensors& tensors, int from, int tag) {
  check_partner(from, rank_, size_, "recv");
  return receive(tensors, from, tag);
}

WorkPtr ProcessGroupHccl::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, -1, tag);
}

// ---- barriers ----

WorkPtr ProcessGroupHccl::barrier(const c10d::BarrierOptions& o) {
  const auto index = !o.device_ids.empty()
                         ? static_cast<c10::DeviceIndex>(o.device_ids[0])
                         : current_device();
  const at::Tensor nothing =
      at::empty({0}, at::TensorOptions().device(kDeviceType, index));
  const auto made = job(OpType::BARRIER, "barrier", nothing, o.timeout);
  const bool met = shared_->board != nullptr;  // where meeting is one already
  made->body = [gloo = shared_->gloo, met](Job& job) {
    if (!met) {
      c10d::BarrierOptions options;
      options.timeout = time_left(job.deadline);
      gloo->barrier(options)->wait();
    }
  };
  return start(made, {});
}

void ProcessGroupHccl::monitoredBarrier(
    const c10d::BarrierOptions& o, bool /*all*/) {
  // The meeting names every rank that did not come.
  barrier(o)->wait(kNoTimeout);
}

}  // namespace npu::dist
