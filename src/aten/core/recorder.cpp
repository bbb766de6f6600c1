// SPDX-License-Identifier: Apache-2.0
// Records the frames that a thread gives to the driver.
#include "aten/core/recorder.h"

#include <memory>

namespace npu {
namespace {

thread_local Recorder* installed = nullptr;

const char* text_of(ByteWork::Kind kind) {
  switch (kind) {
    case ByteWork::kOnDevice:
      return " bytes on the device";
    case ByteWork::kToDevice:
      return " bytes to the device";
    case ByteWork::kToHost:
      return " bytes to the host";
    case ByteWork::kSet:
      break;
  }
  return " bytes set";
}

class WorkLog final : public Recorder {
 public:
  WorkLog() : guard_(*this) {}

  void on_frame(
      const npu_call& frame,
      const PlanHandle&,
      c10::DeviceIndex,
      npu_stream) override {
    lines_.push_back(describe(frame));
  }
  void on_bytes(const ByteWork& work, c10::DeviceIndex, npu_stream) override {
    lines_.push_back(std::to_string(work.bytes) + text_of(work.kind));
  }
  void on_temporary(c10::DataPtr) override {}

  std::vector<std::string> take() {
    return std::move(lines_);
  }

 private:
  RecorderGuard guard_;
  std::vector<std::string> lines_;
};

std::unique_ptr<WorkLog>& work_log() {
  static thread_local std::unique_ptr<WorkLog> mine;
  return mine;
}

}  // namespace

namespace detail {

std::atomic<int> installed_recorders{0};

Recorder* recorder_of_thread() noexcept {
  return installed;
}

}  // namespace detail

RecorderGuard::RecorderGuard(Recorder& recorder) noexcept : before_(installed) {
  installed = &recorder;
  detail::installed_recorders.fetch_add(1, std::memory_order_relaxed);
}

RecorderGuard::~RecorderGuard() {
  detail::installed_recorders.fetch_sub(1, std::memory_order_relaxed);
  installed = before_;
}

void start_work_log() {
  work_log().reset();
  work_log() = std::make_unique<WorkLog>();
}

std::vector<std::string> take_work_log() {
  std::vector<std::string> lines;
  if (work_log()) {
    lines = work_log()->take();
    work_log().reset();
  }
  return lines;
}

}  // namespace npu
