// SPDX-License-Identifier: Apache-2.0
// A collective that was asked for and may still be under way.
#include "dist/work.h"

#include <c10/core/DeviceGuard.h>

#include "dist/lane.h"
#include "driver/registry.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace npu::dist {

void Completion::set() {
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_all();
}

namespace {

// Lanes that have ended for ever complete nothing: Note [Ending] in lane.h.
constexpr std::chrono::milliseconds kLook(100);

}  // namespace

void Completion::wait() {
  std::unique_lock lock(mutex);
  while (!done && !lanes_are_ending()) {
    changed.wait_for(lock, kLook);
  }
}

HcclWork::HcclWork(About about, std::vector<at::Tensor> outputs)
    : Work(about.rank, about.type),
      about_(std::move(about)),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()),
          std::vector<c10::Device>{c10::Device(kDeviceType, about_.device)})) {}

bool HcclWork::finish_waiting(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (completed_) {
      return false;
    }
    completed_ = true;
    exception_ = std::move(error);
  }
  cv_.notify_all();
  completion_->set();
  return true;
}

void HcclWork::finish_futures() {
  if (exception_) {
    future_->setError(exception_);
  } else {
    const c10::DeviceGuard guard(c10::Device(kDeviceType, about_.device));
    future_->markCompleted(c10::IValue(outputs_));
  }
}

void HcclWork::complete(std::exception_ptr error) {
  if (finish_waiting(std::move(error))) {
    finish_futures();
  }
}

void HcclWork::rethrow() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = exception_;
    told_ = true;
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

void HcclWork::raise_unseen() {
  bool told = false;
  {
    const std::lock_guard lock(mutex_);
    told = told_;
  }
  if (!told) {
    rethrow();
  }
}

bool HcclWork::wait(std::chrono::milliseconds timeout) {
  if (about_.stream_waits && timeout == kNoTimeout) {
    synchronize();
    return true;
  }
  {
    std::unique_lock lock(mutex_);
    if (timeout == kNoTimeout) {
      while (!completed_ && !lanes_are_ending()) {
        cv_.wait_for(lock, kLook);
      }
      TORCH_CHECK_WITH(
          DistBackendError,
          completed_,
          "hccl: ",
          about_.text,
          " was still under way when Python ended.");
    } else {
      const bool done = cv_.wait_for(lock, timeout, [&] { return completed_; });
      TORCH_CHECK_WITH(
          DistBackendError,
          done,
          "hccl: wait(",
          timeout.count(),
          " ms) ended while ",
          about_.text,
          " (call ",
          about_.number,
          ") was still under way.");
    }
  }
  rethrow();
  return true;
}

void HcclWork::synchronize() {
  if (isCompleted()) {
    rethrow();  // done: the values are there for every stream
    return;
  }
  blockCurrentStream();
}

void HcclWork::blockCurrentStream() {
  // Owned by the queued function, which runs once.
  auto* held = new std::shared_ptr<Completion>(completion_);
  const auto stream = current_stream(about_.device);
  const auto status = active_driver().stream().host_call(
      stream_handle(stream),
      [](void* context) {
        auto* waited = static_cast<std::shared_ptr<Completion>*>(context);
        (*waited)->wait();
        delete waited;
      },
      held);
  if (status != NPU_OK) {
    delete held;
    completion_->wait();
  }
}

std::vector<at::Tensor> HcclWork::result() {
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> HcclWork::getFuture() {
  return future_;
}

int HcclWork::sourceRank() const {
  completion_->wait();  // the stream may still be waiting for it
  TORCH_CHECK(
      source_ >= 0,
      "hccl: ",
      about_.text,
      " has no source rank: it is no "
      "receive, or it failed.");
  return source_;
}

std::uint64_t HcclWork::getSequencenumber() const {
  return about_.number;
}

void HcclWork::abort() {
  complete(std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
      "hccl: " + about_.text + " was aborted.")));
}

}  // namespace npu::dist
