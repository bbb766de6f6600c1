// SPDX-License-Identifier: Apache-2.0
// A collective or message that was asked for and may still be under way.
#include "dist/work.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>

#include "dist/lane.h"
#include "driver/registry.h"
#include "runtime/device.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Threads that have ended for ever finish nothing: Note [Ending] in lane.h.
constexpr milliseconds kLook(100);

}  // namespace

std::string words_of(const std::exception& error) {
  const auto* const known = dynamic_cast<const c10::Error*>(&error);
  return known != nullptr ? known->what_without_backtrace() : error.what();
}

// ---- Progress ----

Progress::~Progress() {
  sanitizer::on_event_gone(this);
}

void Progress::queue_behind(c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  end_.record(stream);
  stream_ = stream;
  changed_.notify_all();
}

bool Progress::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (finished_) {
      return false;
    }
    finished_ = true;
    error_ = std::move(error);
  }
  changed_.notify_all();
  return true;
}

bool Progress::is_done() const {
  const std::lock_guard lock(mutex_);
  const bool done = is_done_locked();
  if (done) {
    sanitizer::on_event_done(this);
  }
  return done;
}

bool Progress::is_done_locked() const {
  if (finished_ || !stream_ || !device_error_.empty()) {
    return finished_;
  }
  try {
    return end_.query();
  } catch (const std::exception& error) {
    device_error_ = words_of(error);
    return false;
  }
}

std::string Progress::device_error() const {
  const std::lock_guard lock(mutex_);
  return device_error_;
}

bool Progress::has_failed() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

std::optional<c10::Stream> Progress::stream() const {
  const std::lock_guard lock(mutex_);
  return stream_;
}

std::exception_ptr Progress::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Progress::wait_until_finished() const {
  std::unique_lock lock(mutex_);
  while (!finished_ && !lanes_are_ending()) {
    changed_.wait_for(lock, kLook);
  }
}

bool Progress::wait(milliseconds limit) const {
  const auto began = steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!is_done_locked()) {
    if (lanes_are_ending() ||
        (limit != kNoTimeout && steady_clock::now() - began >= limit)) {
      return false;
    }
    // Nothing wakes the host when a stream passes an event.
    const milliseconds look = stream_ ? milliseconds(1) : kLook;
    changed_.wait_for(lock, limit == kNoTimeout ? look : std::min(look, limit));
  }
  sanitizer::on_event_done(this);
  return true;
}

void Progress::hold_up(const ProgressPtr& progress, c10::Stream stream) {
  sanitizer::on_wait(stream, progress.get());
  {
    const std::lock_guard lock(progress->mutex_);
    if (progress->finished_) {
      return;
    }
    if (progress->stream_) {
      progress->end_.block(stream);
      return;
    }
  }
  // Not with a driver yet: the stream waits for the host. The queued function
  // owns its copy and runs once.
  auto* held = new ProgressPtr(progress);
  const auto status = active_driver().stream().host_call(
      stream_handle(stream),
      [](void* context) {
        auto* waited = static_cast<ProgressPtr*>(context);
        (*waited)->wait_until_finished();
        delete waited;
      },
      held);
  if (status != NPU_OK) {
    delete held;
    progress->wait_until_finished();
  }
}

void Progress::rethrow() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
    told_ = told_ || error != nullptr;
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

void Progress::rethrow_unless_told() {
  bool told = false;
  {
    const std::lock_guard lock(mutex_);
    told = told_;
  }
  if (!told) {
    rethrow();
  }
}

// ---- HcclWork ----

HcclWork::HcclWork(About about, std::vector<at::Tensor> outputs)
    : Work(about.rank, about.type),
      about_(std::move(about)),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()),
          std::vector<c10::Device>{c10::Device(kDeviceType, about_.device)})) {}

void HcclWork::finish_future() {
  if (future_taken_.exchange(true)) {
    return;
  }
  const sanitizer::AfterGroupWork after(progress_.get());
  if (const auto error = progress_->error()) {
    future_->setError(error);
  } else if (const auto stream = progress_->stream()) {
    // The future records its events there. Tensors of another device are
    // ordered by the stream that is current on it.
    const c10::StreamGuard guard(*stream);
    future_->markCompleted(c10::IValue(outputs_));
  } else {
    const c10::DeviceGuard guard(c10::Device(kDeviceType, about_.device));
    future_->markCompleted(c10::IValue(outputs_));
  }
}

bool HcclWork::isCompleted() {
  return progress_->is_done();
}

bool HcclWork::isSuccess() const {
  return !progress_->has_failed();
}

std::exception_ptr HcclWork::exception() const {
  return progress_->error();
}

bool HcclWork::wait(milliseconds timeout) {
  const bool queued = progress_->stream().has_value();
  if ((about_.stream_waits || queued) && timeout == kNoTimeout) {
    synchronize();
    return true;
  }
  bool done = false;
  if (timeout == kNoTimeout && about_.type != c10d::OpType::BARRIER) {
    // The host waits because this driver's streams cannot: a program must not
    // rely on that.
    const sanitizer::Quiet quiet;
    done = progress_->wait(timeout);
    sanitizer::on_wait(current_stream(about_.device), progress_.get());
  } else {
    done = progress_->wait(timeout);
  }
  TORCH_CHECK_WITH(
      DistBackendError,
      done || timeout != kNoTimeout,
      "hccl: ",
      about_.text,
      " was still under way when Python ended.");
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
  progress_->rethrow();
  return true;
}

void HcclWork::synchronize() {
  progress_->rethrow();
  blockCurrentStream();
}

void HcclWork::blockCurrentStream() {
  Progress::hold_up(progress_, current_stream(about_.device));
}

std::vector<at::Tensor> HcclWork::result() {
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> HcclWork::getFuture() {
  return future_;
}

int HcclWork::sourceRank() const {
  if (source_ < 0) {
    progress_->wait_until_finished();  // the stream may still be waiting for it
  }
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
  const bool first =
      progress_->finish(std::make_exception_ptr(c10::DistBackendError(
          {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
          "hccl: " + about_.text + " was aborted.")));
  if (first) {
    finish_future();
  }
}

}  // namespace npu::dist
