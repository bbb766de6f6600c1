// SPDX-License-Identifier: Apache-2.0
// Kinds swiglu, geglu, rotary, add_rms_norm, and backward; the family's table.
#include "kernels/fused.h"

namespace npu::host {
namespace {

// ---- gates ----

// Along dim the first half of `part` elements, then the second.
struct Halves {
  Halves(const npu_tensor& in, std::int64_t dim) {
    part = in.sizes[dim] / 2;
    for (std::int64_t d = dim + 1; d < in.ndim; ++d) {
      part *= in.sizes[d];
    }
    count = in.numel / (2 * part);
  }
  // fn(first element of the halves, of the result, how many) in pieces, so that
  // few long halves are shared among threads too.
  template <class Fn>
  npu_status each(Fn fn) const {
    constexpr std::int64_t kPiece = 4096;
    const std::int64_t pieces = (part + kPiece - 1) / kPiece;
    return for_each_item(
        count * pieces, std::min(part, kPiece) * 8, [&](std::int64_t i) {
          const std::int64_t at = i % pieces * kPiece;
          const std::int64_t first = i / pieces * part;
          fn(2 * first + at, first + at, std::min(kPiece, part - at));
        });
  }
  std::int64_t part;
  std::int64_t count;
};

npu_status swiglu_run(const npu_call& call) {
  const npu_swiglu_args args = npu_swiglu_unpack(&call);
  const FusedTable& table = fused_table();
  const Loaded<float> in(args.in);
  const Stored<float> out(args.out);
  const Halves halves(*args.in, args.attrs.dim);
  const npu_status status =
      halves.each([&](std::int64_t from, std::int64_t to, std::int64_t n) {
        const float* const a = in.data() + from;
        table.swiglu(out.data() + to, a, a + halves.part, n);
      });
  return finish(status, in, out);
}

npu_status swiglu_grad_run(const npu_call& call) {
  const npu_swiglu_grad_args args = npu_swiglu_grad_unpack(&call);
  const FusedTable& table = fused_table();
  const Loaded<float> in(args.in);
  const Loaded<float> grad(args.grad_out);
  const Stored<float> out(args.grad_in);
  const Halves halves(*args.in, args.attrs.dim);
  const npu_status status = halves.each([&](std::int64_t from,
                                            std::int64_t to,
                                            std::int64_t n) {
    const float* const a = in.data() + from;
    float* const grad_a = out.data() + from;
    table.swiglu_grad(
        grad_a, grad_a + halves.part, grad.data() + to, a, a + halves.part, n);
  });
  return finish(status, in, grad, out);
}

// Where the active half begins, and the other one.
struct Places {
  Places(std::int64_t active, std::int64_t part)
      : gate(active == NPU_GEGLU_ACTIVE_FIRST ? 0 : part), other(part - gate) {}
  std::int64_t gate;
  std::int64_t other;
};

npu_status geglu_run(const npu_call& call) {
  const npu_geglu_args args = npu_geglu_unpack(&call);
  const auto run = fused_table().geglu[call.code];
  const Loaded<float> in(args.in);
  const Stored<float> out(args.out);
  const Stored<float> gelu(args.gelu);
  const Halves halves(*args.in, args.attrs.dim);
  const Places at(args.attrs.active, halves.part);
  const npu_status status =
      halves.each([&](std::int64_t from, std::int64_t to, std::int64_t n) {
        const float* const x = in.data() + from;
        run(out.data() + to, gelu.data() + to, x + at.gate, x + at.other, n);
      });
  return finish(status, in, out, gelu);
}

npu_status geglu_grad_run(const npu_call& call) {
  const npu_geglu_grad_args args = npu_geglu_grad_unpack(&call);
  const auto run = fused_table().geglu_grad[call.code];
  const Loaded<float> in(args.in);
  const Loaded<float> grad(args.grad_out);
  const Loaded<float> gelu(args.gelu);
  const Stored<float> out(args.grad_in);
  const Halves halves(*args.in, args.attrs.dim);
  const Places at(args.attrs.active, halves.part);
  const npu_status status =
      halves.each([&](std::int64_t from, std::int64_t to, std::int64_t n) {
        const float* const x = in.data() + from;
        float* const dx = out.data() + from;
        run(dx + at.gate,
            dx + at.other,
            grad.data() + to,
            x + at.gate,
            x + at.other,
            gelu.data() + to,
            n);
      });
  return finish(status, in, grad, gelu, out);
}

// ---- rotary ----

// Rows of `in` by the row of cos and sin they turn with, which may have sizes 1
// where `in` has more.
class Turns {
 public:
  Turns(const npu_tensor& in, const npu_tensor& cos)
      : length(in.sizes[in.ndim - 1]), count(cos.numel / length) {
    const int missing = in.ndim - cos.ndim;
    std::int64_t stride = 1;
    std::int64_t cos_stride = 1;
    for (int d = in.ndim - 2; d >= 0; --d) {
      const std::int64_t own = d < missing ? 1 : cos.sizes[d - missing];
      if (own == 1 && in.sizes[d] > 1) {
        shared_[n_shared_++] = {in.sizes[d], stride, 0};
        shares *= in.sizes[d];
      } else if (in.sizes[d] > 1) {
        own_[n_own_++] = {in.sizes[d], stride, cos_stride};
      }
      stride *= in.sizes[d];
      cos_stride *= own;
    }
  }
  // fn(row of in) for each row that row `c` of cos turns.
  template <class Fn>
  void each(std::int64_t c, Fn fn) const {
    std::int64_t first = 0;
    for (int d = 0; d < n_own_; ++d) {
      first += c / own_[d].cos_stride % own_[d].size * own_[d].stride;
    }
    for (std::int64_t i = 0; i < shares; ++i) {
      std::int64_t row = first;
      std::int64_t rest = i;
      for (int d = 0; d < n_shared_; ++d) {
        row += rest % shared_[d].size * shared_[d].stride;
        rest /= shared_[d].size;
      }
      fn(row);
    }
  }
  std::int64_t length;
  std::int64_t count;       // rows of cos
  std::int64_t shares = 1;  // rows of `in` for each

 private:
  struct Dim {
    std::int64_t size;
    std::int64_t stride;
    std::int64_t cos_stride;
  };
  Dim own_[NPU_MAX_DIMS];
  Dim shared_[NPU_MAX_DIMS];
  int n_own_ = 0;
  int n_shared_ = 0;
};

// One row, forward or back. A rotation turns pairs of elements: neighbours, or
// elements half of a segment apart; a row is one segment, or two (quarter).
void turn_row(
    std::uint32_t code,
    bool back,
    float* out,
    const float* x,
    const float* cos,
    const float* sin,
    std::int64_t n) {
  const FusedTable& table = fused_table();
  if (code == NPU_ROTARY_INTERLEAVE) {
    return table.turn_pairs(out, x, cos, sin, back, n / 2);
  }
  const std::int64_t segment = code == NPU_ROTARY_QUARTER ? n / 2 : n;
  const std::int64_t half = segment / 2;
  const float sign = back ? 1.0f : -1.0f;
  for (std::int64_t s = 0; s < n; s += segment) {
    const std::int64_t t = s + half;
    const float* const first_sin = sin + (back ? t : s);
    const float* const second_sin = sin + (back ? s : t);
    table.turn(out + s, x + s, cos + s, x + t, first_sin, sign, half);
    table.turn(out + t, x + t, cos + t, x + s, second_sin, -sign, half);
  }
}

// The element that `sin` multiplies at place k, and its sign.
struct Partner {
  std::int64_t at;
  float sign;
};
Partner partner_of(std::uint32_t code, std::int64_t k, std::int64_t n) {
  const std::int64_t segment = code == NPU_ROTARY_INTERLEAVE ? 2
                               : code == NPU_ROTARY_QUARTER  ? n / 2
                                                             : n;
  const std::int64_t half = segment / 2;
  return k % segment < half ? Partner{k + half, -1.0f}
                            : Partner{k - half, 1.0f};
}

npu_status rotary_run(const npu_call& call) {
  const npu_rotary_args args = npu_rotary_unpack(&call);
  const Loaded<float> in(args.in);
  const Loaded<float> cos(args.cos);
  const Loaded<float> sin(args.sin);
  const Stored<float> out(args.out);
  const Turns turns(*args.in, *args.cos);
  const std::int64_t n = turns.length;
  const npu_status status =
      for_each_item(turns.count, turns.shares * n * 2, [&](std::int64_t c) {
        turns.each(c, [&](std::int64_t row) {
          turn_row(
              call.code,
              false,
              out.data() + row * n,
              in.data() + row * n,
              cos.data() + c * n,
              sin.data() + c * n,
              n);
        });
      });
  return finish(status, in, cos, sin, out);
}

npu_status rotary_grad_run(const npu_call& call) {
  const npu_rotary_grad_args args = npu_rotary_grad_unpack(&call);
  const Loaded<float> grad(args.grad_out);
  const Loaded<float> in(args.in);
  const Loaded<float> cos(args.cos);
  const Loaded<float> sin(args.sin);
  const Stored<float> grad_in(args.grad_in);
  const Stored<float> grad_cos(args.grad_cos, Stored<float>::kZero);
  const Stored<float> grad_sin(args.grad_sin, Stored<float>::kZero);
  const Turns turns(*args.grad_out, *args.cos);
  const std::int64_t n = turns.length;
  const bool both = (grad_cos || grad_sin) && in;
  const npu_status status =
      for_each_item(turns.count, turns.shares * n * 4, [&](std::int64_t c) {
        turns.each(c, [&](std::int64_t row) {
          const float* const g = grad.data() + row * n;
          turn_row(
              call.code,
              true,
              grad_in.data() + row * n,
              g,
              cos.data() + c * n,
              sin.data() + c * n,
              n);
          for (std::int64_t k = 0; both && k < n; ++k) {
            const float* const x = in.data() + row * n;
            const Partner other = partner_of(call.code, k, n);
            if (grad_cos) {
              grad_cos[c * n + k] += g[k] * x[k];
            }
            if (grad_sin) {
              grad_sin[c * n + k] += g[k] * other.sign * x[other.at];
            }
          }
        });
      });
  return finish(status, grad, in, cos, sin, grad_in, grad_cos, grad_sin);
}

// ---- add_rms_norm ----

std::int64_t weights_of(const npu_tensor& weight) {
  return std::max<std::int64_t>(1, weight.numel);
}

npu_status add_rms_norm_run(const npu_call& call) {
  const npu_add_rms_norm_args a = npu_add_rms_norm_unpack(&call);
  return rms_rows(
      {a.out,
       a.rstd,
       a.sum,
       a.in,
       a.residual,
       a.weight,
       weights_of(*a.weight),
       a.attrs.eps});
}

npu_status add_rms_norm_grad_run(const npu_call& call) {
  const npu_add_rms_norm_grad_args a = npu_add_rms_norm_grad_unpack(&call);
  return rms_grad_rows(
      {a.grad_in,
       a.grad_weight,
       a.grad_out,
       a.grad_sum,
       a.sum,
       a.rstd,
       a.weight,
       weights_of(*a.weight)});
}

npu_status one_code_caps(std::uint32_t code, npu_op_caps& out) {
  narrow_caps(out);
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status two_code_caps(std::uint32_t code, npu_op_caps& out) {
  narrow_caps(out);
  return code < NPU_GEGLU_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status rotary_caps(std::uint32_t code, npu_op_caps& out) {
  narrow_caps(out);
  return code < NPU_ROTARY_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_SWIGLU, one_code_caps, nullptr, swiglu_run},
    {NPU_KIND_SWIGLU_GRAD, one_code_caps, nullptr, swiglu_grad_run},
    {NPU_KIND_GEGLU, two_code_caps, nullptr, geglu_run},
    {NPU_KIND_GEGLU_GRAD, two_code_caps, nullptr, geglu_grad_run},
    {NPU_KIND_ROTARY, rotary_caps, nullptr, rotary_run},
    {NPU_KIND_ROTARY_GRAD, rotary_caps, nullptr, rotary_grad_run},
    {NPU_KIND_ADD_RMS_NORM, one_code_caps, nullptr, add_rms_norm_run},
    {NPU_KIND_ADD_RMS_NORM_GRAD, one_code_caps, nullptr, add_rms_norm_grad_run},
    {NPU_KIND_MOE_GATING, moe_gating_caps, nullptr, moe_gating_run},
    {NPU_KIND_MOE_ROUTE, moe_route_caps, nullptr, moe_route_run},
    {NPU_KIND_QUANTISE, quantise_caps, nullptr, quantise_run},
    {NPU_KIND_DEQUANTISE, dequantise_caps, nullptr, dequantise_run},
    {NPU_KIND_PAGED_ATTENTION,
     paged_attention_caps,
     nullptr,
     paged_attention_run},
};

}  // namespace

const std::span<const KernelRow> kFusedKernels = kRows;

}  // namespace npu::host
