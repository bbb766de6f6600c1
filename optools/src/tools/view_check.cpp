// SPDX-License-Identifier: Apache-2.0
// Views: nothing is computed, but they have to lie where the CPU's do.
#include "tools/view_check.h"

#include <sstream>

#include "core/tool.h"

namespace optools {
namespace {

std::vector<at::Tensor> tensors_of(c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> found;
  for (const auto& value : values) {
    each_tensor(value, [&](const at::Tensor& t) { found.push_back(t); });
  }
  return found;
}

std::string layout(const at::Tensor& t) {
  std::ostringstream out;
  out << t.scalar_type() << " " << t.sizes() << " strides " << t.strides()
      << " offset " << t.storage_offset();
  return out.str();
}

bool same_place(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() ||
      a.is_conj() != b.is_conj() || a.is_neg() != b.is_neg()) {
    return false;
  }
  return a.numel() == 0 || (same_strides(a, b.strides()) &&
                            a.storage_offset() == b.storage_offset());
}

}  // namespace

const char* check_view(
    HostCall& call,
    const std::vector<c10::IValue>& given,
    c10::ArrayRef<c10::IValue> outputs) {
  constexpr auto kMeta = c10::DispatchKey::Meta;
  if (!call.op->handle.hasComputedKernelForDispatchKey(kMeta)) {
    return "a view that only this device can make";
  }
  torch::jit::Stack stack(call.inputs.begin(), call.inputs.end());
  try {
    call.op->handle.redispatchBoxed(c10::DispatchKeySet(kMeta), &stack);
  } catch (const std::exception&) {
    return "a view PyTorch refuses to make of empty tensors";
  }
  const auto expected = tensors_of(stack);
  const auto got = tensors_of(outputs);
  const auto bases = tensors_of(given);
  if (expected.size() != got.size()) {
    call.complaints.push_back(
        std::to_string(got.size()) + " views instead of " +
        std::to_string(expected.size()));
    return nullptr;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (!same_place(got[i], expected[i])) {
      call.complaints.push_back(
          "a view that is " + layout(got[i]) + " instead of " +
          layout(expected[i]));
    } else if (
        got[i].numel() != 0 && !bases.empty() &&
        !got[i].is_alias_of(bases[0])) {
      call.complaints.push_back("a view with memory of its own");
    }
  }
  return nullptr;
}

}  // namespace optools
