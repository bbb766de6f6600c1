// SPDX-License-Identifier: Apache-2.0
// Every operator the dispatcher knows, numbered, with the kernels our taps
// stand in front of.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace optools {

// Keys a tap can stand on: backends x functionalities, then the two alias keys
// of kernels written for every backend.
inline constexpr int kBackends = 8;
inline constexpr int kFunctionalities = 5;
inline constexpr int kRuntimeSlots = kBackends * kFunctionalities;
inline constexpr int kKeySlots = kRuntimeSlots + 2;

struct SavedKernel;

struct Operator {
  Operator(c10::OperatorHandle h, uint32_t i);

  c10::OperatorHandle handle;
  c10::OperatorName id;
  bool alive = true;  // false once its library has gone
  std::string name;   // "aten::add.Tensor"
  uint32_t index;
  uint32_t arguments;
  uint32_t returns;
  bool is_view = false;  // returns share memory with an argument, unwritten
  bool writes = false;   // some argument is written in place
  bool uninitialised = false;  // the results' contents mean nothing yet
  int bookkeeping = -1;        // the result that only its backward kernel reads
  bool random = false;
  bool collective = false;       // other processes take part
  bool generated = false;        // by PyTorch's build, from another overload
  std::vector<bool> written;     // by argument
  std::vector<bool> unreturned;  // by argument: written, and no result

  // What the taps call. Never freed while a thread may still be on its way
  // into a tap; see Taps.
  std::array<std::atomic<const SavedKernel*>, kKeySlots> kernels{};
};

c10::DispatchKey slot_key(int slot);

// The operator of a handle, or null when it appeared after the last refresh().
// No lock, no allocation: taps call it.
Operator* find_operator(const c10::OperatorHandle& handle);

// The following two are for the Engine, under its lock; everybody else asks
// that.

// Numbers operators that appeared since the last call; existing numbers stay.
void refresh_operators();

// Only grows; index == Operator::index.
const std::vector<Operator*>& all_operators();

}  // namespace optools
