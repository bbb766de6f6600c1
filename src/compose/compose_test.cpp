// SPDX-License-Identifier: Apache-2.0
// A decomposition gives what the host driver's own kernel of the kind gives.
#include "compose/compose.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "compose/tensor.h"
#include "driver/driver.h"
#include "npu/kinds.h"
#include "npu/validate.h"

namespace npu::compose {
namespace {

Driver& host() {
  static Driver* driver = [] {
    ::setenv("NPU_HOST_KERNELS", "all", 1);
    Driver* loaded = Driver::load(NPU_HOST_DRIVER);
    loaded->device().open(0);
    return loaded;
  }();
  return *driver;
}

npu_stream stream() {
  static npu_stream made = [] {
    npu_stream s = nullptr;
    host().stream().create(0, 0, &s);
    return s;
  }();
  return made;
}

bool run_on_host(Call& call) {
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
    const bool ran = call.frame().slot != without_ && run_on_host(call);
    EXPECT_TRUE(ran) << describe(call.frame());
    return ran;
  }
  int calls = 0;

 private:
  std::uint32_t without_;
  std::vector<std::unique_ptr<char[]>> memory_;
};

enum class Values { kNormal, kUnit, kSign, kBool, kIndex, kLabels };

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
      default:
        return std::normal_distribution<>(0, 1)(random);
    }
  }

  Spec spec_;
  std::int64_t numel_ = 0;
  std::vector<char> bytes_;
};

double tolerance(npu_dtype dtype) {
  return dtype == NPU_F64 ? 1e-9 : dtype == NPU_BF16 ? 2e-2 : 3e-5;
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
  std::vector<Operand> inputs;
  for (const Spec& spec : ins) {
    inputs.emplace_back(spec, random);
  }
  attrs.size = sizeof(attrs);
  const auto run_with = [&](std::vector<Operand>& results, auto execute) {
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
    call.set_attrs(attrs);
    ASSERT_TRUE(execute(call)) << describe(call.frame());
  };
  std::vector<Operand> want;
  std::vector<Operand> got;
  for (const Spec& spec : outs) {
    want.emplace_back(spec, random);
    got.emplace_back(spec, random);
  }
  run_with(want, run_on_host);
  HostRunner runner(slot);
  run_with(got, [&](Call& call) { return run(runner, call.frame()); });
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

constexpr npu_dtype kFloats[] = {NPU_F32, NPU_F64, NPU_BF16};

npu_dtype wide(npu_dtype dtype) {
  return dtype == NPU_F64 ? NPU_F64 : NPU_F32;
}

TEST(Compose, FlipAndRoll) {
  for (const std::uint64_t dims : {0u, 1u, 5u, 7u}) {
    npu_flip_attrs attrs{};
    attrs.dims = dims;
    const Spec x{NPU_F32, {2, 3, 4}};
    expect_equal(NPU_KIND_FLIP, 0, {x}, {x}, attrs);
  }
  npu_roll_attrs attrs{};
  attrs.n = 2;
  attrs.axes[0] = 2;
  attrs.shifts[0] = -5;
  attrs.axes[1] = 0;
  attrs.shifts[1] = 1;
  const Spec x{NPU_I64, {3, 2, 4}, Values::kIndex, 9};
  expect_equal(NPU_KIND_ROLL, 0, {x}, {x}, attrs);
}

TEST(Compose, Isin) {
  for (const std::uint32_t invert : {0u, 1u}) {
    npu_isin_attrs attrs{};
    attrs.invert = invert;
    expect_equal(
        NPU_KIND_ISIN,
        0,
        {{NPU_BOOL, {4, 5}}},
        {{NPU_I64, {4, 5}, Values::kIndex, 30},
         {NPU_I64, {7}, Values::kIndex, 30}},
        attrs);
  }
}

TEST(Compose, RmsNorm) {
  for (const npu_dtype dtype : kFloats) {
    const Spec x{dtype, {3, 2, 5}};
    const Spec rstd{wide(dtype), {3, 1, 1}, Values::kUnit};
    const Spec weight{dtype, {2, 5}};
    npu_rms_norm_attrs attrs{};
    attrs.axes = 2;
    attrs.eps = 1e-5;
    expect_equal(NPU_KIND_RMS_NORM, 0, {x, rstd}, {x, weight}, attrs);
    expect_equal(NPU_KIND_RMS_NORM, 0, {x, {}}, {x, {}}, attrs);
    npu_rms_norm_grad_attrs grad{};
    grad.axes = 2;
    expect_equal(
        NPU_KIND_RMS_NORM_GRAD, 0, {x, weight}, {x, x, rstd, weight}, grad);
    expect_equal(NPU_KIND_RMS_NORM_GRAD, 0, {x, {}}, {x, x, rstd, {}}, grad);
  }
}

TEST(Compose, WeightNorm) {
  for (const npu_dtype dtype : kFloats) {
    for (const std::int64_t dim : {0, 2}) {
      const Spec v{dtype, {3, 2, 5}};
      const Sizes one = dim == 0 ? Sizes{3, 1, 1} : Sizes{1, 1, 5};
      const Spec g{dtype, one};
      const Spec norms{wide(dtype), one, Values::kUnit};
      npu_weight_norm_attrs attrs{};
      attrs.dim = dim;
      expect_equal(NPU_KIND_WEIGHT_NORM, 0, {v, norms}, {v, g}, attrs);
      npu_weight_norm_grad_attrs grad{};
      grad.dim = dim;
      expect_equal(
          NPU_KIND_WEIGHT_NORM_GRAD, 0, {v, g}, {v, v, g, norms}, grad);
    }
  }
}

TEST(Compose, Losses) {
  for (const npu_dtype dtype : {NPU_F32, NPU_F64}) {
    for (std::uint32_t code = 0; code < NPU_LOSS_CODES; ++code) {
      for (std::uint32_t reduction = 0; reduction < 3; ++reduction) {
        const bool one = reduction != NPU_LOSS_REDUCTION_NONE;
        const auto d = static_cast<npu_dtype>(dtype);
        const Spec x{d, {4, 5}, Values::kUnit};
        const Spec out{d, one ? Sizes{} : Sizes{4, 5}};
        const bool sign = code == NPU_LOSS_SOFT_MARGIN;
        const Spec target{d, {4, 5}, sign ? Values::kSign : Values::kUnit};
        const Spec pos = code == NPU_LOSS_BCE_LOGITS ? x : Spec{};
        npu_loss_attrs attrs{};
        attrs.a = 0.3;
        attrs.reduction = reduction;
        expect_equal(NPU_KIND_LOSS, code, {out}, {x, target, x, pos}, attrs);
        npu_loss_grad_attrs grad{};
        grad.a = 0.3;
        grad.reduction = reduction;
        expect_equal(
            NPU_KIND_LOSS_GRAD, code, {x}, {out, x, target, {}, pos}, grad);
      }
    }
  }
}

TEST(Compose, CrossEntropy) {
  for (const std::uint32_t code : {0u, 1u}) {
    for (const double smoothing : {0.0, 0.1}) {
      for (std::uint32_t reduction = 0; reduction < 3; ++reduction) {
        const bool one = reduction != NPU_CROSS_ENTROPY_REDUCTION_NONE;
        const Spec x{NPU_F32, {3, 5, 2}};
        const Spec rows{NPU_F32, {3, 2}};
        const Spec out = one ? Spec{NPU_F32, {}} : rows;
        const Spec target = code == NPU_CROSS_ENTROPY_INDEX
                                ? Spec{NPU_I64, {3, 2}, Values::kIndex, 5}
                                : Spec{NPU_F32, {3, 5, 2}, Values::kUnit};
        const Spec weight{NPU_F32, {5}, Values::kUnit};
        const Spec total{NPU_F32, {}};
        npu_cross_entropy_attrs attrs{};
        attrs.ignore_index = 2;
        attrs.label_smoothing = smoothing;
        attrs.reduction = reduction;
        expect_equal(
            NPU_KIND_CROSS_ENTROPY,
            code,
            {out, rows, total},
            {x, target, weight},
            attrs);
        npu_cross_entropy_grad_attrs grad{};
        grad.ignore_index = 2;
        grad.label_smoothing = smoothing;
        grad.reduction = reduction;
        expect_equal(
            NPU_KIND_CROSS_ENTROPY_GRAD,
            code,
            {x},
            {out, x, target, weight, rows, {}},
            grad);
      }
    }
  }
}

TEST(Compose, MarginLosses) {
  for (std::uint32_t code = 0; code < 2; ++code) {
    for (std::uint32_t reduction = 0; reduction < 3; ++reduction) {
      const bool one = reduction != NPU_MARGIN_REDUCTION_NONE;
      const bool multilabel = code == NPU_MARGIN_MULTILABEL_MARGIN;
      const Spec x{NPU_F32, {4, 5}};
      const Spec out{NPU_F32, one ? Sizes{} : Sizes{4}};
      const Spec target = multilabel ? Spec{NPU_I64, {4, 5}, Values::kLabels, 5}
                                     : Spec{NPU_I64, {4}, Values::kIndex, 5};
      const Spec weight =
          multilabel ? Spec{} : Spec{NPU_F32, {5}, Values::kUnit};
      npu_margin_attrs attrs{};
      attrs.p = 2;
      attrs.margin = 0.8;
      attrs.reduction = reduction;
      expect_equal(
          NPU_KIND_MARGIN,
          code,
          {out, multilabel ? x : Spec{}},
          {x, target, weight},
          attrs);
      if (multilabel) {
        continue;  // its backward reads is_target, tested in the ATen tests
      }
      npu_margin_grad_attrs grad{};
      grad.p = 2;
      grad.margin = 0.8;
      grad.reduction = reduction;
      expect_equal(
          NPU_KIND_MARGIN_GRAD, code, {x}, {out, x, target, weight, {}}, grad);
    }
  }
}

struct AttentionCase {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::uint32_t layout;
  std::uint32_t causal;
  std::int64_t window_left;
  double softcap;
  Spec mask;
  bool sink;
};

TEST(Compose, Attention) {
  constexpr std::int64_t kBatch = 2;
  constexpr std::int64_t kSq = 5;
  constexpr std::int64_t kSk = 7;
  const AttentionCase cases[] = {
      {4, 4, NPU_ATTENTION_LAYOUT_BHSD, 0, -1, 0, {}, false},
      {4,
       2,
       NPU_ATTENTION_LAYOUT_BSHD,
       1,
       -1,
       0,
       {NPU_BOOL, {kBatch, 1, kSq, kSk}, Values::kBool},
       false},
      {4,
       2,
       NPU_ATTENTION_LAYOUT_BHSD,
       2,
       2,
       3.0,
       {NPU_F32, {kBatch, 4, kSq, kSk}},
       true},
      {2, 1, NPU_ATTENTION_LAYOUT_BHSD, 0, -1, 0, {NPU_F32, {kSq, kSk}}, true},
  };
  for (const AttentionCase& c : cases) {
    const bool bhsd = c.layout == NPU_ATTENTION_LAYOUT_BHSD;
    const auto shape = [&](std::int64_t h, std::int64_t s) {
      return bhsd ? Sizes{kBatch, h, s, 6} : Sizes{kBatch, s, h, 6};
    };
    const Spec q{NPU_F32, shape(c.heads, kSq)};
    const Spec k{NPU_F32, shape(c.kv_heads, kSk)};
    const Spec lse{NPU_F32, {kBatch, c.heads, kSq}, Values::kUnit};
    const Spec sink = c.sink ? Spec{NPU_F32, {c.heads}} : Spec{};
    npu_attention_attrs attrs{};
    attrs.scale = 0.4;
    attrs.softcap = c.softcap;
    attrs.window_left = c.window_left;
    attrs.window_right = -1;
    attrs.causal = c.causal;
    attrs.layout = c.layout;
    expect_equal(
        NPU_KIND_ATTENTION,
        0,
        {q, lse},
        {q, k, k, c.mask, {}, {}, sink},
        attrs);
    npu_attention_grad_attrs grad{};
    std::memcpy(&grad, &attrs, sizeof(grad));
    const Spec grad_mask = c.mask.dtype == NPU_F32 ? c.mask : Spec{};
    expect_equal(
        NPU_KIND_ATTENTION_GRAD,
        0,
        {q, k, k, grad_mask, sink},
        {q, q, k, k, q, lse, c.mask, {}, {}, sink},
        grad);
  }
}

// A declined part means that the caller takes another road.
TEST(Compose, DeclinedPart) {
  class Refuses final : public Runner {
   public:
    void* allocate(std::uint64_t) override {
      return nullptr;
    }
    bool run(Call&) override {
      return false;
    }
  } runner;
  Tensor x(NPU_F32, {2, 2}, nullptr, 0);
  npu_flip_attrs attrs{};
  attrs.size = sizeof(attrs);
  attrs.dims = 1;
  Call call(NPU_KIND_FLIP, 0, "test");
  call.add_output(x.operand());
  call.add_input(x.operand());
  call.set_attrs(attrs);
  EXPECT_FALSE(run(runner, call.frame()));
  EXPECT_FALSE(has_decomposition(NPU_KIND_COPY));
}

}  // namespace
}  // namespace npu::compose
