// SPDX-License-Identifier: Apache-2.0
// A driver that can do less and asks for more, and watches what it is given.
//
//   NPU_FAULTY_LACKS=<words>  every kind but copy and fill takes no
//                             host_scalar   numbers in host memory
//                             casts         operands of several dtypes
//                             halves        float16, bfloat16
//                             strides       gaps between elements
//                             unaligned     data that is not on 64 bytes
//   NPU_FAULTY_ASKS=1         every kind asks for both workspaces, copy and
//   fill
//                             too, and for memory from count to fill
//
// Words are separated by commas. What a call should not have had is written
// down; npu_faulty_broken() gives it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "npu/kinds.h"
#include "npu/validate.h"

class Sparing {
 public:
  // False for a word that is none.
  bool read(const char* lacks, const char* asks) {
    asks_ = asks != nullptr && std::strcmp(asks, "1") == 0;
    std::string rest = lacks != nullptr ? lacks : "";
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      const std::string word = rest.substr(0, comma);
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
      bool* const flag = word == "host_scalar" ? &no_numbers_
                         : word == "casts"     ? &no_casts_
                         : word == "halves"    ? &no_halves_
                         : word == "strides"   ? &no_strides_
                         : word == "unaligned" ? &aligned_only_
                                               : nullptr;
      if (flag == nullptr) {
        return false;
      }
      *flag = true;
    }
    return true;
  }

  void limit(std::uint32_t slot, npu_op_caps& caps) const {
    if (asks_) {
      caps.plan_use = NPU_PLAN_BY_SHAPE;
    }
    if (slot == NPU_KIND_COPY || slot == NPU_KIND_FILL) {
      return;
    }
    if (no_numbers_) {
      caps.flags &= ~NPU_CAP_HOST_SCALAR;
    }
    if (no_strides_) {
      caps.flags &= ~(NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT);
    }
    if (no_casts_ && caps.dtype_rule == NPU_DTYPES_CAST) {
      caps.dtype_rule = NPU_DTYPES_SAME;
    }
    if (aligned_only_) {
      caps.min_alignment = kAlignment;
    }
    for (std::uint64_t& dtypes : caps.dtypes) {
      // 0 is any.
      dtypes = no_halves_ ? (dtypes != 0 ? dtypes : ~UINT64_C(0)) & ~kHalves
                          : dtypes;
    }
  }

  void ask(const npu_call& call, npu_verdict& verdict) const {
    if (asks_ && verdict.answer == NPU_VERDICT_YES) {
      verdict.workspace_bytes += kBytes;
      verdict.host_workspace_bytes += kBytes;
      verdict.carry_bytes += (call.flags & NPU_CALL_COUNT) != 0 ? kBytes : 0;
    }
  }

  // Before the call is forwarded.
  void look(const npu_call& call, const npu_op_caps& caps) {
    for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
      const npu_tensor& tensor = call.tensors[i];
      if (tensor.dtype != NPU_ABSENT) {
        look_at(call, caps, tensor.data, tensor.dtype, tensor.flags);
      }
    }
    for (std::uint32_t i = 0; i < call.n_lists; ++i) {
      const npu_list& list = call.lists[i];
      for (std::uint32_t k = 0; list.dtype != NPU_ABSENT && k < list.n; ++k) {
        look_at(call, caps, list.data[k], list.dtype, list.flags);
      }
    }
    const npu_kind_info* const kind = npu_kind_of(call.slot);
    if (!asks_ || kind == nullptr || kind->plan_use == NPU_PLAN_NONE) {
      return;
    }
    if (call.workspace == nullptr || call.workspace_bytes < kBytes) {
      note(call, "no workspace");
    }
    if (call.host_workspace == nullptr || call.host_workspace_bytes < kBytes) {
      note(call, "no host workspace");
    } else {
      std::memset(
          last(call.host_workspace, call.host_workspace_bytes), kMark, kBytes);
    }
    if ((call.flags & NPU_CALL_COUNT) != 0) {
      if (call.carry == nullptr || call.carry_bytes < kBytes) {
        note(call, "nothing to carry in");
      } else {
        std::memset(last(call.carry, call.carry_bytes), kMark, kBytes);
      }
    } else if (
        call.carry != nullptr &&
        !is_marked(last(call.carry, call.carry_bytes))) {
      note(call, "what was carried is gone");
    }
  }

  // After it was queued: whether the host workspace stays until it is done.
  void watch(
      npu_stream stream, const npu_call& call, const npu_stream_table& table) {
    const npu_kind_info* const kind = npu_kind_of(call.slot);
    if (asks_ && kind != nullptr && kind->plan_use != NPU_PLAN_NONE &&
        call.host_workspace != nullptr) {
      auto* const watched = new Watched{
          this,
          last(call.host_workspace, call.host_workspace_bytes),
          call.label};
      table.host_call(stream, &Sparing::passed, watched);
    }
  }

  std::string take_broken() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::move(broken_);
  }

 private:
  struct Watched {
    Sparing* self;
    const void* memory;
    std::string label;
  };
  static void passed(void* context) {
    const auto* const watched = static_cast<Watched*>(context);
    if (!is_marked(watched->memory)) {
      watched->self->note(watched->label, "host workspace was taken away");
    }
    delete watched;
  }

  void look_at(
      const npu_call& call,
      const npu_op_caps& caps,
      const void* data,
      npu_dtype dtype,
      std::uint32_t flags) {
    const bool number = (flags & NPU_TENSOR_HOST_SCALAR) != 0;
    if (number && (caps.flags & NPU_CAP_HOST_SCALAR) == 0) {
      note(call, "a number in host memory");
    }
    if (!number && caps.min_alignment > 1 &&
        reinterpret_cast<std::uintptr_t>(data) % caps.min_alignment != 0) {
      note(call, "data that is not aligned");
    }
    if (no_halves_ && call.slot != NPU_KIND_COPY &&
        call.slot != NPU_KIND_FILL && (NPU_DTYPE_BIT(dtype) & kHalves) != 0) {
      note(call, "a half");
    }
  }

  // The bytes this driver asked for; those before them are the base's.
  static unsigned char* last(void* memory, std::uint64_t bytes) {
    return static_cast<unsigned char*>(memory) + bytes - kBytes;
  }
  static bool is_marked(const void* memory) {
    const auto* const bytes = static_cast<const unsigned char*>(memory);
    for (std::uint64_t i = 0; i < kBytes; ++i) {
      if (bytes[i] != kMark) {
        return false;
      }
    }
    return true;
  }
  void note(const npu_call& call, const char* what) {
    note(call.label != nullptr ? call.label : "?", what);
  }
  void note(const std::string& label, const char* what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    broken_ += label + ": " + what + "\n";
  }

  static constexpr std::uint64_t kHalves =
      NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16);
  static constexpr std::uint32_t kAlignment = 64;
  static constexpr std::uint64_t kBytes = 64;
  static constexpr unsigned char kMark = 0x5a;

  bool asks_ = false;
  bool no_numbers_ = false;
  bool no_casts_ = false;
  bool no_halves_ = false;
  bool no_strides_ = false;
  bool aligned_only_ = false;
  std::mutex mutex_;
  std::string broken_;
};
