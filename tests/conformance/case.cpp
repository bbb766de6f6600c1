// SPDX-License-Identifier: Apache-2.0
// Cases: sizes, words about them, and the same call in float64.
#include "case.h"

#include <numeric>

namespace npu::kit {

std::int64_t product(const Shape& sizes) {
  return std::accumulate(
      sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

Shape contiguous_strides(const Shape& sizes) {
  Shape out(sizes.size());
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    out[d] = step;
    step *= sizes[d];
  }
  return out;
}

Operand& Case::operand(const std::string& name) {
  for (Operand& each : operands) {
    if (name == each.info->name) {
      return each;
    }
  }
  ADD_FAILURE() << kind->name << " has no operand " << name;
  return operands.at(0);
}

std::string Case::text() const {
  std::string out =
      std::string(kind->name) + "." + npu_code_name(kind->slot, code);
  const auto add = [&](const Operand& each) {
    out += std::string(" ") + each.info->name + "=" +
           npu_dtype_name(each.dtype) + "(";
    for (std::size_t d = 0; d < each.sizes.size(); ++d) {
      out += (d ? "," : "") + std::to_string(each.sizes[d]) + ":" +
             std::to_string(each.strides[d]);
    }
    out += each.alias_of >= 0 ? ") in place" : ")";
  };
  for (const Operand& each : operands) {
    if (each.present()) {
      add(each);
    }
  }
  for (const auto& list : lists) {
    for (const Operand& each : list) {
      add(each);
    }
  }
  return out + "; seed " + std::to_string(seed);
}

Machine subject(npu_device device) {
  return {&driver(), device};
}

const Machine& oracle() {
  static const Machine machine{reference_driver()};
  return machine;
}

Case widened(const Case& value) {
  Case out = value;
  const auto wide = [](npu_dtype dtype) -> npu_dtype {
    if (is_complex(dtype)) {
      return NPU_C128;
    }
    return is_floating(dtype) ? NPU_F64 : dtype;
  };
  const auto widen = [wide](Operand& each) {
    const npu_dtype dtype = wide(each.dtype);
    // Some operands are float32 in any call.
    const std::uint64_t allowed = each.info->dtypes;
    each.dtype = allowed == 0 || has(allowed, dtype) ? dtype : each.dtype;
    each.strides = contiguous_strides(each.sizes);
    each.offset = 0;
    each.alias_of = -1;
  };
  for (Operand& each : out.operands) {
    widen(each);
  }
  for (auto& list : out.lists) {
    for (Operand& each : list) {
      widen(each);
    }
  }
  out.compute_dtype = wide(out.compute_dtype);
  if (out.sized) {
    out.sized = [sized = value.sized, widen](Case& c, std::int64_t total) {
      sized(c, total);
      for (Operand& each : c.operands) {
        widen(each);
      }
    };
  }
  return out;
}

}  // namespace npu::kit
