// SPDX-License-Identifier: Apache-2.0
// One call of kind random, with its attributes by name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kit.h"
#include "reference.h"

namespace npu::kit {

struct RandomCall {
  std::uint32_t code = 0;
  npu_dtype dtype = NPU_F32;
  double a = 0;
  double b = 1;
  std::int64_t low = 0;
  std::uint64_t range = 1;
  std::int64_t n = 1000;
  npu_rng rng = {42, 0, nullptr, nullptr};
  // Operands, when set; p_dtype is NPU_ABSENT for the output's.
  std::function<double(std::int64_t)> p = nullptr;
  std::function<double(std::int64_t)> q = nullptr;
  npu_dtype p_dtype = NPU_ABSENT;

  bool declared() const {
    npu_op_caps caps;
    const npu_kind_info& kind = *npu_kind_of(NPU_KIND_RANDOM);
    return declares(NPU_KIND_RANDOM, code, &caps) &&
           has(caps.dtypes[0], dtype) &&
           (!p || has(taken_dtypes(kind, caps, 1), parameter_dtype()));
  }

  std::string name() const {
    return std::string(npu_code_name(NPU_KIND_RANDOM, code)) + " " +
           npu_dtype_name(dtype) + " a=" + std::to_string(a) +
           " b=" + std::to_string(b);
  }

  // The drawn bytes.
  Bytes run() const {
    Buffer out(static_cast<std::uint64_t>(n) * npu_dtype_bytes(dtype));
    Frame frame(NPU_KIND_RANDOM, code);
    frame.out(out, flat(dtype, n)).rng(rng);
    npu_random_attrs attrs{};
    attrs.a = a;
    attrs.b = b;
    attrs.low = low;
    attrs.range = range;
    frame.attrs(attrs);
    const Buffer first(operand(p));
    const Buffer second(operand(q));
    const View view = flat(parameter_dtype(), n);
    p ? frame.in(first, view) : frame.absent_in();
    q ? frame.in(second, view) : frame.absent_in();
    const npu_status status = frame.run();
    EXPECT_EQ(status, NPU_OK) << name() << ": " << explain(status);
    return out.get();
  }

  std::vector<double> numbers() const {
    const Bytes bytes = run();
    const std::uint64_t size = npu_dtype_bytes(dtype);
    std::vector<double> out(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = load(dtype, bytes.data() + i * size).number.real();
    }
    return out;
  }

 private:
  npu_dtype parameter_dtype() const {
    return p_dtype == NPU_ABSENT ? dtype : p_dtype;
  }

  Bytes operand(const std::function<double(std::int64_t)>& value) const {
    if (!value) {
      return Bytes(1);
    }
    const std::uint64_t size = npu_dtype_bytes(parameter_dtype());
    Bytes out(static_cast<std::uint64_t>(n) * size);
    for (std::int64_t i = 0; i < n; ++i) {
      store(
          parameter_dtype(),
          {.number = value(i)},
          out.data() + static_cast<std::uint64_t>(i) * size);
    }
    return out;
  }
};

}  // namespace npu::kit
