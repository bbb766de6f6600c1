// SPDX-License-Identifier: Apache-2.0
// Generated host code over device memory: what torch.compile's CPU compiler
// makes is one long CPU kernel to the ladder.
#include "aten/ladder/host_function.h"

#include <torch/library.h>

#include "aten/ladder/unboxed.h"

namespace npu::ladder {
namespace {

// Only the schema is used: it says that every argument may be written.
Entry& host_entry() {
  static Entry& entry = []() -> Entry& {
    Entry& made = make_entry(
        c10::Dispatcher::singleton().findSchemaOrThrow(
            "npu::_host_function", ""),
        "npu::_host_function");
    // The user asked for host code: this is no operator that lacks a kernel.
    made.judged = true;
    made.reported = made.label;
    return made;
  }();
  return entry;
}

}  // namespace

std::vector<at::Tensor> run_host_function(
    const HostFunction& function,
    at::TensorList arguments,
    c10::Device device) {
  Entry& entry = host_entry();
  CpuRun run(entry, device, NPU_REASON_NONE);
  std::vector<at::Tensor> wrapped;
  wrapped.reserve(arguments.size());
  for (const at::Tensor& argument : arguments) {
    wrapped.emplace_back(
        TensorImplPtr::reclaim_copy(run.call.convert(argument, entry.args[0])));
  }
  run.ready();
  std::vector<at::Tensor> results;
  try {
    const CpuScope scope(run);
    results = function(std::move(wrapped));
  } catch (...) {
    run.call.write_back();
    throw;
  }
  run.call.write_back();
  for (at::Tensor& result : results) {
    result = run.call.to_npu(std::move(result));
  }
  run.finish();
  return results;
}

}  // namespace npu::ladder

TORCH_LIBRARY_FRAGMENT(npu, m) {
  m.def("_host_function(Tensor(a!)[] tensors) -> Tensor[]");
}
