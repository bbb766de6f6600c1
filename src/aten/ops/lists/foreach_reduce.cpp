// SPDX-License-Identifier: Apache-2.0
// torch._foreach_norm, _max, _powsum: one call of kind multi_reduce each.
#include <ATen/ops/_foreach_max_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_norm_compositeexplicitautograd_dispatch.h>
#if __has_include(<ATen/ops/_foreach_powsum.h>)
#include <ATen/ops/_foreach_powsum_compositeexplicitautograd_dispatch.h>
#define NPU_HAS_POWSUM 1
#endif
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "aten/core/factories.h"
#include "aten/core/list_frame.h"
#include "aten/ops/lists/foreach.h"
#include "driver/build_call.h"

namespace npu::foreach {
namespace {

namespace loops = at::compositeexplicitautograd;
using OptType = std::optional<c10::ScalarType>;

// A number per tensor, or nothing when the lists do not go in one call. Empty
// tensors are PyTorch's to judge: some reductions have no value for them.
std::optional<Results> reduce(Site& site, List self, double p) {
  if (!goes_as_lists(self, {}) ||
      std::any_of(self.begin(), self.end(), [](const at::Tensor& tensor) {
        return tensor.numel() == 0;
      })) {
    return std::nullopt;
  }
  const c10::DeviceIndex device = self[0].device().index();
  Results out;
  out.reserve(self.size());
  for (const at::Tensor& tensor : self) {
    out.push_back(make_empty({}, tensor.scalar_type(), device));
  }
  ListFrame lists(self);
  npu_multi_reduce_attrs attrs{.p = p};
  const npu_list values = lists.single_of(out);
  Call call = site.call();
  build::multi_reduce(call, nullptr, &values, lists.of(self), attrs);
  if (site.run(call, device) != NPU_REASON_NONE) {
    return std::nullopt;
  }
  return out;
}

bool keeps_dtype(List self, const OptType& dtype) {
  return !dtype || (!self.empty() && *dtype == self[0].scalar_type());
}

using Loop = Results(List, const at::Scalar&, OptType);
Results reduce_powers(
    Site& site, Loop* loop, List self, const at::Scalar& ord, OptType dtype) {
  std::optional<Results> results;
  if (!ord.isComplex() && keeps_dtype(self, dtype)) {
    results = reduce(site, self, ord.toDouble());
  }
  return results ? std::move(*results) : loop(self, ord, dtype);
}

Results norm(List self, const at::Scalar& ord, OptType dtype) {
  static Site site(
      "aten::_foreach_norm.Scalar",
      NPU_KIND_MULTI_REDUCE,
      NPU_MULTI_REDUCE_NORM);
  return reduce_powers(site, &loops::_foreach_norm, self, ord, dtype);
}

Results max(List self) {
  static Site site(
      "aten::_foreach_max", NPU_KIND_MULTI_REDUCE, NPU_MULTI_REDUCE_MAX);
  auto results = reduce(site, self, 0);
  return results ? std::move(*results) : loops::_foreach_max(self);
}

#ifdef NPU_HAS_POWSUM
Results powsum(List self, const at::Scalar& ord, OptType dtype) {
  static Site site(
      "aten::_foreach_powsum.Scalar",
      NPU_KIND_MULTI_REDUCE,
      NPU_MULTI_REDUCE_POWSUM);
  return reduce_powers(site, &loops::_foreach_powsum, self, ord, dtype);
}
#endif

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_foreach_norm.Scalar", &norm);
  m.impl("_foreach_max", &max);
#ifdef NPU_HAS_POWSUM
  m.impl("_foreach_powsum.Scalar", &powsum);
#endif
}

}  // namespace npu::foreach
