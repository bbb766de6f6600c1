// SPDX-License-Identifier: Apache-2.0
// What an operator pack in C++ sees of the plugin besides PyTorch.
//
// A pack is a shared library that exports npu_torch_pack_entry (written by
// `opennpu pack build` from the pack's YAML). It registers in a function that
// the loader calls, never in static initialisers: a clash there would end the
// process. Kernels for a driver: npu/pack.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>
#include <torch/version.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "npu/driver.h"

#define NPU_PACK_EXPORT __attribute__((visibility("default")))
#define NPU_TORCH_PACK_ABI 1u
#define NPU_TORCH_PACK_ENTRY "npu_torch_pack_entry"

namespace npu::pack {

// Collects a pack's registrations. All are undone when one fails.
class NPU_PACK_EXPORT Registrar {
 public:
  Registrar();
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;
  ~Registrar();

  // `where` is the line of the YAML, which errors begin with. An operator that
  // exists with this schema is left as it is; with another one it is an error.
  void define(const char* ns, const char* schema, const char* where);
  // Comes before the built-in kernel.
  void implement(
      const char* ns,
      const char* overload,
      c10::DispatchKey key,
      torch::CppFunction&& kernel,
      const char* where);

  struct State;
  std::unique_ptr<State> state;
};

// Counts the calls of a pack's function; with debug logging on, one line each.
// Made by the generated code, one per function.
class NPU_PACK_EXPORT CallNote {
 public:
  explicit CallNote(const char* overload);
  void operator()();

 private:
  friend struct CallNotes;
  const char* overload_;
  std::atomic<std::uint64_t> calls_{0};
};

// Whether the driver has a kind: a standard one ("binary"), or "vendor.name/1"
// of a pack.
NPU_PACK_EXPORT bool has_kind(const std::string& kind);

// Runs a kind on the current stream of the tensors' device. An undefined input
// is an absent operand. `attrs` is the kind's attribute struct (npu/kinds.h),
// nullptr when it has none. `label` names the call in traces and lives as long
// as the process. Raises NotImplementedError where the driver lacks or declines
// it.
NPU_PACK_EXPORT void run_kind(
    const char* label,
    const std::string& kind,
    std::uint32_t code,
    at::ArrayRef<at::Tensor> outputs,
    at::ArrayRef<at::Tensor> inputs,
    const void* attrs = nullptr,
    std::uint32_t attr_bytes = 0);

}  // namespace npu::pack

struct npu_torch_pack {
  std::uint32_t size;
  std::uint32_t abi;
  const char* name;
  const char* torch_version;
  void (*add)(npu::pack::Registrar&);
};

// The entry of a pack whose function `add` registers everything.
#define NPU_TORCH_PACK(name, add)                                           \
  extern "C" NPU_PACK_EXPORT const npu_torch_pack* npu_torch_pack_entry() { \
    static const npu_torch_pack pack{                                       \
        sizeof(npu_torch_pack),                                             \
        NPU_TORCH_PACK_ABI,                                                 \
        name,                                                               \
        TORCH_VERSION,                                                      \
        &add};                                                              \
    return &pack;                                                           \
  }
