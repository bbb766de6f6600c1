// SPDX-License-Identifier: Apache-2.0
// Generated host code over device memory: what torch.compile's CPU compiler
// makes is one long CPU kernel to the ladder.
#include "aten/ladder/host_function.h"

#include <torch/library.h>

#include "aten/core/site.h"
#include "aten/ladder/check_policy.h"
#include "aten/ladder/count.h"
#include "aten/ladder/unboxed.h"
#include "runtime/dtype.h"
#include "runtime/sanitizer/sanitizer.h"

namespace npu::ladder {
namespace {

// Only the schema is used: it says that every argument may be written.
Entry& host_entry() {
  static Entry& entry = []() -> Entry& {
    Entry& made = twin::make_entry(
        c10::Dispatcher::singleton().findSchemaOrThrow(
            "npu::_host_function", ""),
        "npu::_host_function");
    // The user asked for host code: this is no operator that lacks a kernel.
    made.profile_known = true;
    made.reported = made.label;
    return made;
  }();
  return entry;
}

void show_work(at::TensorList tensors, bool write, const char* name) {
  if (sanitizer::finds_races()) {
    std::vector<sanitizer::Operand> operands;
    for (const at::Tensor& tensor : tensors) {
      operands.push_back({&tensor, write, name});
    }
    sanitizer::on_work("a compiled graph", operands);
  }
}

}  // namespace

void count_compiled(const std::string& overload) {
  Entry& entry = twin::entry_for(find_operator(overload.c_str()));
  check_policy(entry);
  count_call(entry, NPU_REASON_NO_KERNEL, /*rung=*/4, /*bytes=*/0, /*start=*/0);
}

void judge_compiled(
    const std::string& overload, const std::vector<c10::ScalarType>& dtypes) {
  Entry& entry = twin::entry_for(find_operator(overload.c_str()));
  JudgedDtypes judged;
  for (const c10::ScalarType dtype : dtypes) {
    judged.see(to_npu_dtype(dtype));
  }
  if (!entry.dtypes.takes(judged.bits()) &&
      entry.dtypes.may_run(entry.label.c_str(), judged.bits())) {
    entry.dtypes.count(judged.bits());
  }
}

std::vector<at::Tensor> run_host_function(
    const HostFunction& function,
    at::TensorList arguments,
    c10::Device device) {
  Entry& entry = host_entry();
  // Generated code calls no operator: what it is given, it reads.
  show_work(arguments, false, "an argument");
  TwinRun run(entry, device, NPU_REASON_NONE, twin::reaches_of(device).host);
  std::vector<at::Tensor> wrapped;
  wrapped.reserve(arguments.size());
  for (const at::Tensor& argument : arguments) {
    wrapped.emplace_back(
        TensorImplPtr::reclaim_copy(run.call.convert(argument, entry.args[0])));
  }
  run.ready();
  std::vector<at::Tensor> results;
  try {
    const CpuScope scope(run.call);
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
  show_work(results, true, "a result");
  return results;
}

}  // namespace npu::ladder

TORCH_LIBRARY_FRAGMENT(npu, m) {
  m.def("_host_function(Tensor(a!)[] tensors) -> Tensor[]");
}
