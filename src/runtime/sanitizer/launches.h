// SPDX-License-Identifier: Apache-2.0
// The operators that PyTorch dispatches, as launches with their accesses.
#pragma once

#include "runtime/sanitizer/sanitizer.h"

namespace at {
class TensorBase;
}  // namespace at

namespace npu::sanitizer {

// Observes every thread from now on, or no more.
void observe_operators(bool on);
void forget_forward_stacks();

// ---- of sanitizer.cpp ----

RaceTable& table();
StreamName name_of(c10::Stream stream) noexcept;
LaunchPtr facts_of_launch(std::string name, std::shared_ptr<void> forward);
// After the table was asked, without any lock.
void show(std::vector<Race>& found);
// False: no tensor with memory of its own.
bool describe(const at::TensorBase& tensor, Access& access);

}  // namespace npu::sanitizer
