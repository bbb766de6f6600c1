// SPDX-License-Identifier: Apache-2.0
// Tests of decompositions: operands drawn at random, a kind run by the host
// driver and decomposed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "compose/compose.h"
#include "compose/driver_test.h"
#include "compose/tensor.h"
#include "driver/driver.h"
#include "npu/kinds.h"
#include "npu/validate.h"

namespace npu::compose {

inline npu_stream stream() {
  static npu_stream made = [] {
    npu_stream s = nullptr;
    host().stream().create(0, 0, &s);
    return s;
  }();
  return made;
}

inline bool run_on_host(Call& call) {
  if (call.plan(host(), 0).answer != NPU_VERDICT_YES) {
    return false;
  }
  EXPECT_EQ(call.run(host(), stream()), NPU_OK) << describe(call.frame());
  return true;
}

// Runs parts on the host driver, never the kind that is being made.
class HostRunner final : public Runner {
 public:
  explicit HostRunner(std::uint32_t without) : without_(without) {}
  void* allocate(std::uint64_t bytes) override {
    memory_.push_back(std::make_unique<char[]>(bytes));
    std::memset(memory_.back().get(), 0xee, bytes);
    return memory_.back().get();
  }
  bool run(Call& call) override {
    ++calls;
    const npu_call& frame = call.frame();
    EXPECT_TRUE(std::any_of(
        frame.tensors,
        frame.tensors + frame.n_out,
        [](const npu_tensor& t) { return t.numel > 0; }))
        << describe(frame) << ": drivers are not asked for nothing";
    const bool ran = call.frame().slot != without_ && run_on_host(call);
    EXPECT_TRUE(ran) << describe(call.frame());
    return ran;
  }
  int calls = 0;

 private:
  std::uint32_t without_;
  std::vector<std::unique_ptr<char[]>> memory_;
};

enum class Values { kNormal, kUnit, kSign, kBool, kIndex, kLabels, kPlaces };

// What an operand is made of. No sizes and no dtype: absent.
struct Spec {
  npu_dtype dtype = NPU_ABSENT;
  Sizes sizes;
  Values values = Values::kNormal;
  std::int64_t classes = 0;  // of an index
};

class Operand {
 public:
  Operand(const Spec& spec, std::mt19937& random) : spec_(spec) {
    std::int64_t n = 1;
    for (const std::int64_t size : spec.sizes) {
      n *= size;
    }
    numel_ = spec.dtype == NPU_ABSENT ? 0 : n;
    bytes_.resize(static_cast<std::size_t>(n) * 16);
    for (std::int64_t i = 0; i < numel_; ++i) {
      set(i, draw(i, random));
    }
  }

  Tensor tensor() {
    return spec_.dtype == NPU_ABSENT
               ? Tensor()
               : Tensor(spec_.dtype, spec_.sizes, bytes_.data(), 0);
  }
  std::int64_t numel() const {
    return numel_;
  }
  double get(std::int64_t i) const {
    const char* at = bytes_.data() + i * item();
    switch (spec_.dtype) {
      case NPU_F32:
        return read<float>(at);
      case NPU_F64:
        return read<double>(at);
      case NPU_I64:
        return static_cast<double>(read<std::int64_t>(at));
      case NPU_I32:
        return read<std::int32_t>(at);
      case NPU_I8:
        return read<std::int8_t>(at);
      case NPU_BF16: {
        const std::uint32_t bits = std::uint32_t{read<std::uint16_t>(at)} << 16;
        float value;
        std::memcpy(&value, &bits, sizeof(value));
        return value;
      }
      default:
        return read<std::uint8_t>(at);
    }
  }

 private:
  template <class T>
  static T read(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::int64_t item() const {
    return static_cast<std::int64_t>(npu_dtype_bytes(spec_.dtype));
  }
  template <class T>
  void write(std::int64_t i, T value) {
    std::memcpy(bytes_.data() + i * item(), &value, sizeof(value));
  }
  void set(std::int64_t i, double value) {
    switch (spec_.dtype) {
      case NPU_F32:
        return write(i, static_cast<float>(value));
      case NPU_F64:
        return write(i, value);
      case NPU_I64:
        return write(i, static_cast<std::int64_t>(value));
      case NPU_I32:
        return write(i, static_cast<std::int32_t>(value));
      case NPU_I8:
        return write(i, static_cast<std::int8_t>(value));
      case NPU_BF16: {
        const auto narrow = static_cast<float>(value);
        std::uint32_t bits;
        std::memcpy(&bits, &narrow, sizeof(bits));
        return write(i, static_cast<std::uint16_t>(bits >> 16));
      }
      default:
        return write(i, static_cast<std::uint8_t>(value));
    }
  }
  double draw(std::int64_t i, std::mt19937& random) const {
    const double unit = std::uniform_real_distribution<>(0.05, 0.95)(random);
    switch (spec_.values) {
      case Values::kUnit:
        return unit;
      case Values::kSign:
        return unit < 0.5 ? -1 : 1;
      case Values::kBool:
        return unit < 0.7 ? 1 : 0;
      case Values::kIndex:
        return std::floor(unit * static_cast<double>(spec_.classes));
      case Values::kLabels:  // 2, 0, then none
        return i % spec_.classes == 0 ? 2 : i % spec_.classes == 1 ? 0 : -1;
      case Values::kPlaces:  // a permutation, when classes is prime to 7
        return static_cast<double>((i * 7 + 3) % spec_.classes);
      default:
        return std::normal_distribution<>(0, 1)(random);
    }
  }

  Spec spec_;
  std::int64_t numel_ = 0;
  std::vector<char> bytes_;
};

inline double tolerance(npu_dtype dtype) {
  return dtype == NPU_F64 ? 1e-9 : dtype == NPU_BF16 ? 2e-2 : 3e-5;
}

// Runs the kind on `inputs` by `execute`, into `results`.
template <class Attrs, class Execute>
void run_kind(
    std::uint32_t slot,
    std::uint32_t code,
    std::vector<Operand>& results,
    std::vector<Operand>& inputs,
    Attrs attrs,
    Execute execute) {
  attrs.size = sizeof(attrs);
  Call call(slot, code, "test");
  std::vector<Tensor> views;
  for (std::vector<Operand>* group : {&results, &inputs}) {
    for (Operand& operand : *group) {
      views.push_back(operand.tensor());
    }
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    i < results.size() ? call.add_output(views[i].operand())
                       : call.add_input(views[i].operand());
  }
  if constexpr (sizeof(attrs) > sizeof(attrs.size)) {
    call.set_attrs(attrs);
  }
  ASSERT_TRUE(execute(call)) << describe(call.frame());
}

inline std::vector<Operand> drawn(
    const std::vector<Spec>& specs, std::mt19937& random) {
  std::vector<Operand> out;
  for (const Spec& spec : specs) {
    out.emplace_back(spec, random);
  }
  return out;
}

// What the decomposition writes, on the host driver's parts.
template <class Attrs>
std::vector<Operand> decomposed(
    std::uint32_t slot,
    std::uint32_t code,
    const std::vector<Spec>& outs,
    const std::vector<Spec>& ins,
    Attrs attrs) {
  std::mt19937 random(slot * 31 + code);
  std::vector<Operand> inputs = drawn(ins, random);
  std::vector<Operand> got = drawn(outs, random);
  HostRunner runner(slot);
  run_kind(slot, code, got, inputs, attrs, [&](Call& call) {
    return run(runner, call.frame());
  });
  return got;
}

// Runs the kind on the host driver and decomposed, on equal inputs.
template <class Attrs>
void expect_equal(
    std::uint32_t slot,
    std::uint32_t code,
    const std::vector<Spec>& outs,
    const std::vector<Spec>& ins,
    Attrs attrs) {
  std::mt19937 random(slot * 31 + code);
  std::vector<Operand> inputs = drawn(ins, random);
  std::vector<Operand> want = drawn(outs, random);
  std::vector<Operand> got = drawn(outs, random);
  run_kind(slot, code, want, inputs, attrs, run_on_host);
  HostRunner runner(slot);
  run_kind(slot, code, got, inputs, attrs, [&](Call& call) {
    return run(runner, call.frame());
  });
  EXPECT_GT(runner.calls, 0);
  for (std::size_t o = 0; o < outs.size(); ++o) {
    for (std::int64_t i = 0; i < want[o].numel(); ++i) {
      const double w = want[o].get(i);
      const double g = got[o].get(i);
      if (std::isfinite(w)) {
        ASSERT_NEAR(g, w, tolerance(outs[o].dtype) * (1 + std::abs(w)))
            << npu_kind_name(slot) << " code " << code << " output " << o
            << " element " << i;
      } else {
        ASSERT_TRUE(g == w || (std::isnan(g) && std::isnan(w))) << g << w;
      }
    }
  }
}

inline constexpr npu_dtype kFloats[] = {NPU_F32, NPU_F64, NPU_BF16};

inline npu_dtype wide(npu_dtype dtype) {
  return dtype == NPU_F64 ? NPU_F64 : NPU_F32;
}

}  // namespace npu::compose
