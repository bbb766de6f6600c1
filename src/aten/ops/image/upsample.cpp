// SPDX-License-Identifier: Apache-2.0
// upsample_* and their gradients: one attempt each way for all of them. Half
// types with antialias, which CPU does not have, get its error.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_cpu_dispatch.h>
#include <ATen/ops/_upsample_bicubic2d_aa_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_cpu_dispatch.h>
#include <ATen/ops/_upsample_bilinear2d_aa_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/upsample_bicubic2d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_cpu_dispatch.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_cpu_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_linear1d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_cpu_dispatch.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_cpu_dispatch.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>

#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using at::IntArrayRef;
using Scale = std::optional<double>;

// What follows the sizes in a signature: align_corners where the filter has
// it, and one scale per spatial dimension.
template <class Attrs>
void set_option(Attrs& attrs, std::size_t&, bool align_corners) {
  attrs.align_corners = align_corners ? 1 : 0;
}
template <class Attrs>
void set_option(Attrs& attrs, std::size_t& n, const Scale& scale) {
  attrs.scales[n++] = scale.value_or(0);
}

template <class Attrs, class... Options>
Attrs resize_attrs(bool antialias, const Options&... options) {
  Attrs attrs{};
  std::size_t n = 0;
  (set_option(attrs, n, options), ...);
  attrs.spatial = static_cast<std::int64_t>(n);
  attrs.antialias = antialias ? 1 : 0;
  return attrs;
}

template <class Meta, bool kAntialias, class... Options>
npu_reason resize(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    IntArrayRef output_size,
    Options... options) {
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(out, self, output_size, options...);
  const at::Tensor& result = out.at(0);
  if (result.numel() == 0 || self.numel() == 0 ||
      (kAntialias && self.element_size() == 2)) {
    return kOdd;
  }
  auto attrs = resize_attrs<npu_upsample_attrs>(kAntialias, options...);
  Call call = site.call();
  build::upsample(call, to_operand(result), to_operand(self), attrs);
  return run(site, call, self);
}

template <class Meta, bool kAntialias, class... Options>
npu_reason resize_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    IntArrayRef output_size,
    IntArrayRef input_size,
    Options... options) {
  if (const npu_reason why = site.wants(grad_out); why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(out, grad_out, output_size, input_size, options...);
  const at::Tensor& result = out.at(0);
  if (result.numel() == 0 || grad_out.numel() == 0 ||
      (kAntialias && grad_out.element_size() == 2)) {
    return kOdd;
  }
  auto attrs = resize_attrs<npu_upsample_grad_attrs>(kAntialias, options...);
  Call call = site.call();
  build::upsample_grad(call, to_operand(result), to_operand(grad_out), attrs);
  return run(site, call, grad_out);
}

constexpr std::uint32_t kUp = NPU_KIND_UPSAMPLE;
constexpr std::uint32_t kGrad = NPU_KIND_UPSAMPLE_GRAD;

void add_nearest(torch::Library& m) {
  using namespace at::cpu;
  constexpr auto nearest1d =
      resize<at::meta::structured_upsample_nearest1d, false, Scale>;
  constexpr auto nearest1d_grad = resize_grad<
      at::meta::structured_upsample_nearest1d_backward,
      false,
      Scale>;
  add<
      Op<"upsample_nearest1d",
         kUp,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest1d,
         nearest1d>>(m);
  add<
      Op<"upsample_nearest1d.out",
         kUp,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest1d_outf,
         nearest1d>>(m);
  add<
      Op<"upsample_nearest1d_backward",
         kGrad,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest1d_backward,
         nearest1d_grad>>(m);
  add<
      Op<"upsample_nearest1d_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest1d_backward_outf,
         nearest1d_grad>>(m);
  constexpr auto nearest2d =
      resize<at::meta::structured_upsample_nearest2d, false, Scale, Scale>;
  constexpr auto nearest2d_grad = resize_grad<
      at::meta::structured_upsample_nearest2d_backward,
      false,
      Scale,
      Scale>;
  add<
      Op<"upsample_nearest2d",
         kUp,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest2d,
         nearest2d>>(m);
  add<
      Op<"upsample_nearest2d.out",
         kUp,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest2d_outf,
         nearest2d>>(m);
  add<
      Op<"upsample_nearest2d_backward",
         kGrad,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest2d_backward,
         nearest2d_grad>>(m);
  add<
      Op<"upsample_nearest2d_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest2d_backward_outf,
         nearest2d_grad>>(m);
  constexpr auto nearest3d = resize<
      at::meta::structured_upsample_nearest3d,
      false,
      Scale,
      Scale,
      Scale>;
  constexpr auto nearest3d_grad = resize_grad<
      at::meta::structured_upsample_nearest3d_backward,
      false,
      Scale,
      Scale,
      Scale>;
  add<
      Op<"upsample_nearest3d",
         kUp,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest3d,
         nearest3d>>(m);
  add<
      Op<"upsample_nearest3d.out",
         kUp,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest3d_outf,
         nearest3d>>(m);
  add<
      Op<"upsample_nearest3d_backward",
         kGrad,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest3d_backward,
         nearest3d_grad>>(m);
  add<
      Op<"upsample_nearest3d_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_NEAREST,
         &upsample_nearest3d_backward_outf,
         nearest3d_grad>>(m);
}

void add_nearest_exact(torch::Library& m) {
  using namespace at::cpu;
  constexpr auto nearest_exact1d =
      resize<at::meta::structured__upsample_nearest_exact1d, false, Scale>;
  constexpr auto nearest_exact1d_grad = resize_grad<
      at::meta::structured__upsample_nearest_exact1d_backward,
      false,
      Scale>;
  add<
      Op<"_upsample_nearest_exact1d",
         kUp,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact1d,
         nearest_exact1d>>(m);
  add<
      Op<"_upsample_nearest_exact1d.out",
         kUp,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact1d_outf,
         nearest_exact1d>>(m);
  add<
      Op<"_upsample_nearest_exact1d_backward",
         kGrad,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact1d_backward,
         nearest_exact1d_grad>>(m);
  add<
      Op<"_upsample_nearest_exact1d_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact1d_backward_outf,
         nearest_exact1d_grad>>(m);
  constexpr auto nearest_exact2d = resize<
      at::meta::structured__upsample_nearest_exact2d,
      false,
      Scale,
      Scale>;
  constexpr auto nearest_exact2d_grad = resize_grad<
      at::meta::structured__upsample_nearest_exact2d_backward,
      false,
      Scale,
      Scale>;
  add<
      Op<"_upsample_nearest_exact2d",
         kUp,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact2d,
         nearest_exact2d>>(m);
  add<
      Op<"_upsample_nearest_exact2d.out",
         kUp,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact2d_outf,
         nearest_exact2d>>(m);
  add<
      Op<"_upsample_nearest_exact2d_backward",
         kGrad,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact2d_backward,
         nearest_exact2d_grad>>(m);
  add<
      Op<"_upsample_nearest_exact2d_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact2d_backward_outf,
         nearest_exact2d_grad>>(m);
  constexpr auto nearest_exact3d = resize<
      at::meta::structured__upsample_nearest_exact3d,
      false,
      Scale,
      Scale,
      Scale>;
  constexpr auto nearest_exact3d_grad = resize_grad<
      at::meta::structured__upsample_nearest_exact3d_backward,
      false,
      Scale,
      Scale,
      Scale>;
  add<
      Op<"_upsample_nearest_exact3d",
         kUp,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact3d,
         nearest_exact3d>>(m);
  add<
      Op<"_upsample_nearest_exact3d.out",
         kUp,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact3d_outf,
         nearest_exact3d>>(m);
  add<
      Op<"_upsample_nearest_exact3d_backward",
         kGrad,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact3d_backward,
         nearest_exact3d_grad>>(m);
  add<
      Op<"_upsample_nearest_exact3d_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_NEAREST_EXACT,
         &_upsample_nearest_exact3d_backward_outf,
         nearest_exact3d_grad>>(m);
}

void add_linear(torch::Library& m) {
  using namespace at::cpu;
  constexpr auto linear1d =
      resize<at::meta::structured_upsample_linear1d, false, bool, Scale>;
  constexpr auto linear1d_grad = resize_grad<
      at::meta::structured_upsample_linear1d_backward,
      false,
      bool,
      Scale>;
  add<
      Op<"upsample_linear1d",
         kUp,
         NPU_UPSAMPLE_LINEAR,
         &upsample_linear1d,
         linear1d>>(m);
  add<
      Op<"upsample_linear1d.out",
         kUp,
         NPU_UPSAMPLE_LINEAR,
         &upsample_linear1d_outf,
         linear1d>>(m);
  add<
      Op<"upsample_linear1d_backward",
         kGrad,
         NPU_UPSAMPLE_LINEAR,
         &upsample_linear1d_backward,
         linear1d_grad>>(m);
  add<
      Op<"upsample_linear1d_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_LINEAR,
         &upsample_linear1d_backward_outf,
         linear1d_grad>>(m);
  constexpr auto bilinear2d = resize<
      at::meta::structured_upsample_bilinear2d,
      false,
      bool,
      Scale,
      Scale>;
  constexpr auto bilinear2d_grad = resize_grad<
      at::meta::structured_upsample_bilinear2d_backward,
      false,
      bool,
      Scale,
      Scale>;
  add<
      Op<"upsample_bilinear2d",
         kUp,
         NPU_UPSAMPLE_BILINEAR,
         &upsample_bilinear2d,
         bilinear2d>>(m);
  add<
      Op<"upsample_bilinear2d.out",
         kUp,
         NPU_UPSAMPLE_BILINEAR,
         &upsample_bilinear2d_outf,
         bilinear2d>>(m);
  add<
      Op<"upsample_bilinear2d_backward",
         kGrad,
         NPU_UPSAMPLE_BILINEAR,
         &upsample_bilinear2d_backward,
         bilinear2d_grad>>(m);
  add<
      Op<"upsample_bilinear2d_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_BILINEAR,
         &upsample_bilinear2d_backward_outf,
         bilinear2d_grad>>(m);
  constexpr auto trilinear3d = resize<
      at::meta::structured_upsample_trilinear3d,
      false,
      bool,
      Scale,
      Scale,
      Scale>;
  constexpr auto trilinear3d_grad = resize_grad<
      at::meta::structured_upsample_trilinear3d_backward,
      false,
      bool,
      Scale,
      Scale,
      Scale>;
  add<
      Op<"upsample_trilinear3d",
         kUp,
         NPU_UPSAMPLE_TRILINEAR,
         &upsample_trilinear3d,
         trilinear3d>>(m);
  add<
      Op<"upsample_trilinear3d.out",
         kUp,
         NPU_UPSAMPLE_TRILINEAR,
         &upsample_trilinear3d_outf,
         trilinear3d>>(m);
  add<
      Op<"upsample_trilinear3d_backward",
         kGrad,
         NPU_UPSAMPLE_TRILINEAR,
         &upsample_trilinear3d_backward,
         trilinear3d_grad>>(m);
  add<
      Op<"upsample_trilinear3d_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_TRILINEAR,
         &upsample_trilinear3d_backward_outf,
         trilinear3d_grad>>(m);
  constexpr auto bicubic2d = resize<
      at::meta::structured_upsample_bicubic2d,
      false,
      bool,
      Scale,
      Scale>;
  constexpr auto bicubic2d_grad = resize_grad<
      at::meta::structured_upsample_bicubic2d_backward,
      false,
      bool,
      Scale,
      Scale>;
  add<
      Op<"upsample_bicubic2d",
         kUp,
         NPU_UPSAMPLE_BICUBIC,
         &upsample_bicubic2d,
         bicubic2d>>(m);
  add<
      Op<"upsample_bicubic2d.out",
         kUp,
         NPU_UPSAMPLE_BICUBIC,
         &upsample_bicubic2d_outf,
         bicubic2d>>(m);
  add<
      Op<"upsample_bicubic2d_backward",
         kGrad,
         NPU_UPSAMPLE_BICUBIC,
         &upsample_bicubic2d_backward,
         bicubic2d_grad>>(m);
  add<
      Op<"upsample_bicubic2d_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_BICUBIC,
         &upsample_bicubic2d_backward_outf,
         bicubic2d_grad>>(m);
}

void add_antialiased(torch::Library& m) {
  using namespace at::cpu;
  constexpr auto bilinear2d_aa = resize<
      at::meta::structured__upsample_bilinear2d_aa,
      true,
      bool,
      Scale,
      Scale>;
  constexpr auto bilinear2d_aa_grad = resize_grad<
      at::meta::structured__upsample_bilinear2d_aa_backward,
      true,
      bool,
      Scale,
      Scale>;
  add<
      Op<"_upsample_bilinear2d_aa",
         kUp,
         NPU_UPSAMPLE_BILINEAR,
         &_upsample_bilinear2d_aa,
         bilinear2d_aa>>(m);
  add<
      Op<"_upsample_bilinear2d_aa.out",
         kUp,
         NPU_UPSAMPLE_BILINEAR,
         &_upsample_bilinear2d_aa_outf,
         bilinear2d_aa>>(m);
  add<
      Op<"_upsample_bilinear2d_aa_backward",
         kGrad,
         NPU_UPSAMPLE_BILINEAR,
         &_upsample_bilinear2d_aa_backward,
         bilinear2d_aa_grad>>(m);
  add<
      Op<"_upsample_bilinear2d_aa_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_BILINEAR,
         &_upsample_bilinear2d_aa_backward_outf,
         bilinear2d_aa_grad>>(m);
  constexpr auto bicubic2d_aa = resize<
      at::meta::structured__upsample_bicubic2d_aa,
      true,
      bool,
      Scale,
      Scale>;
  constexpr auto bicubic2d_aa_grad = resize_grad<
      at::meta::structured__upsample_bicubic2d_aa_backward,
      true,
      bool,
      Scale,
      Scale>;
  add<
      Op<"_upsample_bicubic2d_aa",
         kUp,
         NPU_UPSAMPLE_BICUBIC,
         &_upsample_bicubic2d_aa,
         bicubic2d_aa>>(m);
  add<
      Op<"_upsample_bicubic2d_aa.out",
         kUp,
         NPU_UPSAMPLE_BICUBIC,
         &_upsample_bicubic2d_aa_outf,
         bicubic2d_aa>>(m);
  add<
      Op<"_upsample_bicubic2d_aa_backward",
         kGrad,
         NPU_UPSAMPLE_BICUBIC,
         &_upsample_bicubic2d_aa_backward,
         bicubic2d_aa_grad>>(m);
  add<
      Op<"_upsample_bicubic2d_aa_backward.grad_input",
         kGrad,
         NPU_UPSAMPLE_BICUBIC,
         &_upsample_bicubic2d_aa_backward_outf,
         bicubic2d_aa_grad>>(m);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  add_nearest(m);
  add_nearest_exact(m);
  add_linear(m);
  add_antialiased(m);
}

}  // namespace npu
