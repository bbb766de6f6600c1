// SPDX-License-Identifier: Apache-2.0
// Cast. Results get back the dtype the operator would have given them, and
// what it wrote in place is written to the caller's tensors.
#include "tools/cast.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "core/values.h"

namespace optools {

struct Cast::Changed {
  std::vector<c10::IValue> inputs;  // as they were given
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  // The dtype results of the target dtype have without the cast; undefined
  // when an argument had the target dtype already, and so would the result.
  c10::ScalarType back = c10::ScalarType::Undefined;
  c10::ScalarType forth = c10::ScalarType::Undefined;
};

c10::ScalarType Cast::target(c10::ScalarType from) const {
  for (const auto& [source, destination] : map_) {
    if (source == from) {
      return destination;
    }
  }
  return c10::ScalarType::Undefined;
}

const char* Cast::obstacle(const Call& call) const {
  if (call.op.is_view || call.op.uninitialised) {
    return "computes nothing";
  }
  if (call.op.name.rfind("aten::_to_copy", 0) == 0 ||
      call.op.name.rfind("aten::copy_", 0) == 0 ||
      call.op.name.rfind("aten::_local_scalar_dense", 0) == 0) {
    return "moves or converts data";
  }
  const auto& arguments = call.op.handle.schema().arguments();
  const auto inputs = call.inputs();
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (arguments[i].name() == "dtype" && !inputs[i].isNone()) {
      return "was given a dtype";
    }
    each_tensor(inputs[i], [&](const at::Tensor& t) {
      any = any || target(t.scalar_type()) != c10::ScalarType::Undefined;
    });
  }
  if (any) {
    return nullptr;
  }
  return call.cast ? "another tool cast it" : "no tensor of a dtype to cast";
}

void Cast::change_inputs(Call& call, Changed& changed) const {
  changed.inputs = call.inputs().vec();
  bool has_target_already = false;
  const auto change = [&](const at::Tensor& t) {
    const auto to = target(t.scalar_type());
    if (to == c10::ScalarType::Undefined) {
      return t;
    }
    for (const auto& [theirs, ours] : changed.pairs) {
      if (theirs.is_same(t)) {
        return ours;
      }
    }
    changed.back = t.scalar_type();
    changed.forth = to;
    changed.pairs.emplace_back(t, t.to(to));
    return changed.pairs.back().second;
  };
  const size_t first = call.stack.size() - call.op.arguments;
  for (size_t i = 0; i < changed.inputs.size(); ++i) {
    call.stack[first + i] = map_tensors(changed.inputs[i], change);
  }
  for (const auto& value : changed.inputs) {
    each_tensor(value, [&](const at::Tensor& t) {
      has_target_already = has_target_already ||
                           (t.scalar_type() == changed.forth && t.dim() > 0);
    });
  }
  if (has_target_already) {
    changed.back = c10::ScalarType::Undefined;
  }
}

void Cast::change_back(Call& call, Changed& changed) const {
  for (size_t i = 0; i < changed.inputs.size(); ++i) {
    if (!call.op.written[i]) {
      continue;
    }
    each_tensor(changed.inputs[i], [&](const at::Tensor& theirs) {
      for (const auto& [original, ours] : changed.pairs) {
        if (original.is_same(theirs)) {
          if (theirs.sizes() != ours.sizes()) {
            theirs.resize_(ours.sizes());
          }
          theirs.copy_(ours);
        }
      }
    });
  }
  const size_t first = call.stack.size() - call.op.returns;
  for (size_t i = first; i < call.stack.size(); ++i) {
    call.stack[i] = map_tensors(call.stack[i], [&](const at::Tensor& t) {
      for (const auto& [original, ours] : changed.pairs) {
        if (ours.is_same(t)) {
          return original;
        }
      }
      const bool back = changed.back != c10::ScalarType::Undefined &&
                        t.scalar_type() == changed.forth;
      return back ? t.to(changed.back) : t;
    });
  }
}

void Cast::around(Call& call, Chain& chain) {
  Changed changed;
  bool casts = false;
  const bool begun = attempt([&] {
    const char* why = obstacle(call);
    count(call, why == nullptr ? "" : why);
    casts = why == nullptr;
  });
  if (!begun || !casts) {
    chain.run();
    return;
  }
  {
    Quiet quiet;
    at::AutoDispatchBelowADInplaceOrView below;
    change_inputs(call, changed);
    call.cast = true;
  }
  chain.run();
  Quiet quiet;
  at::AutoDispatchBelowADInplaceOrView below;
  change_back(call, changed);
}

}  // namespace optools
