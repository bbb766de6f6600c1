// SPDX-License-Identifier: Apache-2.0
// torch._foreach_*: one call of kind multi_map for a whole list.
#include "aten/ops/lists/foreach.h"

#include <ATen/OpMathType.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "aten/core/factories.h"
#include "aten/core/frame.h"
#include "aten/core/list_frame.h"
#include "driver/build_call.h"

namespace npu::foreach {
namespace {

// A number the driver computes with as it is.
bool is_real(const at::Scalar& value) {
  return !value.isComplex() && !value.isSymbolic();
}

bool factor_fits(const Factor& factor, List x) {
  if (factor.is_list) {
    return factor.each.size() == x.size() &&
           std::all_of(factor.each.begin(), factor.each.end(), is_real);
  }
  if (factor.tensor != nullptr) {
    const at::Tensor& tensor = *factor.tensor;
    return tensor.dim() == 0 && tensor.device() == x[0].device() &&
           at::isFloatingType(tensor.scalar_type());
  }
  return factor.one == nullptr || is_real(*factor.one);
}

// Autograd leaves this to the kernels that take lists.
void written(List tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_inference()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

Site& site_of(const Op& op) {
  static std::mutex mutex;
  static auto* const sites = new std::unordered_map<const Op*, Site*>;
  const std::lock_guard<std::mutex> lock(mutex);
  Site*& site = (*sites)[&op];
  if (site == nullptr) {
    site = new Site(op.label, NPU_KIND_MULTI_MAP, op.code);
  }
  return *site;
}

bool run(const Op& op, List out, List x, List y, List z, const Factor& factor) {
  ListFrame lists(x);
  if (lists.n() == 0) {
    return true;
  }
  npu_multi_map_attrs attrs{};
  attrs.op = op.op;
  if (factor.one != nullptr) {
    attrs.a = to_npu_scalar(*factor.one);
  }
  npu_list each{};
  const npu_list* scalars = nullptr;
  if (factor.is_list) {
    each = lists.scalars(factor.each, at::toOpMathType(x[0].scalar_type()));
    scalars = &each;
  } else if (factor.tensor != nullptr) {
    each = lists.repeated(*factor.tensor);
    scalars = &each;
  }
  const npu_list ys = y.empty() ? npu_list{} : lists.of(y);
  const npu_list zs = z.empty() ? npu_list{} : lists.of(z);
  Site& site = site_of(op);
  Call call = site.call();
  build::multi_map(
      call,
      lists.of(out),
      lists.of(x),
      y.empty() ? nullptr : &ys,
      z.empty() ? nullptr : &zs,
      scalars,
      attrs);
  return site.run(call, x[0].device().index()) == NPU_REASON_NONE;
}

}  // namespace

std::optional<Results> map_new(
    const Op& op, List x, List y, List z, const Factor& factor) {
  if (!goes_as_lists(x, {y, z}) || !factor_fits(factor, x)) {
    return std::nullopt;
  }
  Results out;
  out.reserve(x.size());
  for (const at::Tensor& tensor : x) {
    out.push_back(make_empty_like(tensor, tensor.scalar_type()));
  }
  if (!run(op, out, x, y, z, factor)) {
    return std::nullopt;
  }
  return out;
}

bool map_into(const Op& op, List self, List y, List z, const Factor& factor) {
  const bool copies = op.code == NPU_MULTI_MAP_COPY;
  if (!goes_as_lists(self, {y, z}, copies) || !factor_fits(factor, self) ||
      !writes_apart(self, {y, z})) {
    return false;
  }
  if (factor.tensor != nullptr &&
      std::any_of(self.begin(), self.end(), [&](const at::Tensor& tensor) {
        return tensor.is_alias_of(*factor.tensor);
      })) {
    return false;
  }
  const bool done = copies ? run(op, self, y, {}, {}, factor)
                           : run(op, self, self, y, z, factor);
  if (done) {
    written(self);
  }
  return done;
}

}  // namespace npu::foreach
