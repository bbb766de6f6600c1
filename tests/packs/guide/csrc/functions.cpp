// SPDX-License-Identifier: Apache-2.0
// Kernels by name, as op-plugin's adapters call them, and a kind of the pack.
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "op_plugin/utils/op_api_common.h"
#include "torch_npu/csrc/aten/NPUNativeFunctions.h"
#include "torch_npu/csrc/core/npu/NPUGuard.h"
#include "torch_npu/csrc/core/npu/NPUStream.h"
#include "torch_npu/csrc/framework/utils/OpAdapter.h"
#include "torch_npu/pack.h"

namespace at_npu {
namespace native {

extern int64_t calls_of_add;

namespace {

at::Tensor made(const at::Tensor& like, at::IntArrayRef sizes) {
  return OpPreparation::apply_tensor_without_format(sizes, like.options());
}

// The gradient passes straight through, so that the test sees whose it is.
struct Relu6 : torch::autograd::Function<Relu6> {
  static at::Tensor forward(
      torch::autograd::AutogradContext*, const at::Tensor& self) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return at::clamp(self, 0, 6);
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    return {grads[0]};
  }
};

}  // namespace

at::Tensor NPUNativeFunctions::relu6(const at::Tensor& self) {
  return Relu6::apply(self);
}

at::Tensor NPUNativeFunctions::npu_dtype_cast(
    const at::Tensor& self, at::ScalarType dtype) {
  at::Tensor result =
      OpPreparation::ApplyTensor(self, self.options().dtype(dtype));
  OpCommand cmd;
  cmd.Name("Cast")
      .Input(self)
      .Output(result)
      .Attr(
          "dst_type",
          static_cast<int64_t>(CalcuOpUtil::ConvertToAclDataType(dtype)))
      .Run();
  return result;
}

at::Tensor NPUNativeFunctions::npu_stride_add(
    const at::Tensor&, const at::Tensor&, at::Scalar, at::Scalar, at::Scalar) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "5HD slices do not exist here");
}

int64_t NPUNativeFunctions::calls() {
  return calls_of_add;
}

::std::vector<at::Tensor> NPUNativeFunctions::commands(
    const at::Tensor& a, const at::Tensor& b) {
  std::vector<at::Tensor> results;
  const auto run = [&](at::Tensor result, OpCommand& command) {
    command.Output(result).Run();
    results.push_back(result);
  };
  {
    OpCommand c;
    run(made(a, a.sizes()), c.Name("RealDiv").Input(a).Input(b));
  }
  {
    OpCommand c;
    run(made(a, {a.size(0), 1}),
        c.Name("ReduceSum")
            .Input(a)
            .Input(at::IntArrayRef{1})
            .Attr("keep_dims", true));
  }
  {
    OpCommand c;
    run(made(a, {a.size(1), b.size(1)}),
        c.Name("MatMul")
            .Input(a)
            .Input(b)
            .Attr("transpose_x1", true)
            .Attr("transpose_x2", false));
  }
  {
    OpCommand c;
    run(made(a, a.sizes()),
        c.Name("ClipByValue")
            .Input(a)
            .Input(at::Scalar(0.25), at::kFloat)
            .Input(at::Scalar(0.5), at::kFloat));
  }
  {
    OpCommand c;
    run(made(a, a.sizes()),
        c.Name("SoftmaxV2").Input(a).Attr("axes", at::IntArrayRef{-1}));
  }
  {
    OpCommand c;
    run(made(a, {a.size(1), a.size(0)}),
        c.Name("Transpose").Input(a).Input(at::IntArrayRef{1, 0}));
  }
  {
    OpCommand c;
    run(made(a, {2 * a.size(0), a.size(1)}),
        c.Name("ConcatD")
            .Inputs({a, b})
            .Attr("N", int64_t{2})
            .Attr("concat_dim", int64_t{0}));
  }
  {
    OpCommand c;
    run(made(a, a.sizes()), c.Name("TanhGrad").Input(a).Input(b));
  }
  // Indices come first.
  at::Tensor indices = at::empty({a.size(0)}, a.options().dtype(at::kLong));
  at::Tensor values = made(a, {a.size(0)});
  OpCommand c;
  c.Name("ArgMaxWithValue")
      .Input(a)
      .Output(indices)
      .Output(values)
      .Attr("dimension", int64_t{1})
      .Attr("keep_dims", false)
      .Run();
  results.push_back(values);
  return results;
}

::std::vector<at::Tensor> NPUNativeFunctions::aclnn(
    const at::Tensor& a, const at::Tensor& b) {
  std::vector<at::Tensor> results;
  const auto fresh = [&](at::IntArrayRef sizes) -> at::Tensor& {
    return results.emplace_back(made(a, sizes));
  };
  results.reserve(16);
  const at::Scalar alpha = 2;
  EXEC_NPU_CMD(aclnnAdd, a, b, alpha, fresh(a.sizes()));
  EXEC_NPU_CMD(aclnnMuls, a, alpha, fresh(a.sizes()));
  const int8_t cube_math_type = 0;
  const at::Tensor turned = b.t();
  EXEC_NPU_CMD(
      aclnnMatmul, a, turned, fresh({a.size(0), b.size(0)}), cube_math_type);
  const std::vector<int64_t> dims{0};
  const bool keep = false;
  const at::ScalarType dtype = at::kFloat;
  EXEC_NPU_CMD(aclnnReduceSum, a, dims, keep, dtype, fresh({a.size(1)}));
  const int64_t dim = 1;
  EXEC_NPU_CMD(aclnnCumsum, a, dim, dtype, fresh(a.sizes()));
  const std::vector<at::Tensor> both{a, b};
  EXEC_NPU_CMD(aclnnCat, both, dim, fresh({a.size(0), 2 * a.size(1)}));
  const int64_t floor_mode = 2;
  EXEC_NPU_CMD(aclnnDivMod, a, b, floor_mode, fresh(a.sizes()));
  at::Tensor& copy = fresh(a.sizes());
  copy.copy_(a);
  EXEC_NPU_CMD(aclnnInplaceMul, copy, b);
  EXEC_NPU_CMD(aclnnGelu, a, fresh(a.sizes()));
  EXEC_NPU_CMD(aclnnFastGelu, a, fresh(a.sizes()));
  TORCH_CHECK(check_aclnn_kernel_available("aclnnAdd"), "aclnnAdd is known");
  TORCH_CHECK(
      !check_aclnn_kernel_available("aclnnNoSuch"), "aclnnNoSuch is not");
  return results;
}

at::Tensor NPUNativeFunctions::unknown(const at::Tensor& a) {
  EXEC_NPU_CMD(aclnnNoSuch, a, a);
  return a;
}

at::Tensor NPUNativeFunctions::doubled(const at::Tensor& a) {
  ASCEND_LOGI("doubled is given %ld numbers", static_cast<long>(a.numel()));
  TORCH_CHECK(
      a.dim() > 0,
      "doubled: a has no dimensions; give at least 1.",
      OPS_ERROR(ErrCode::PARAM));
  const c10_npu::NPUGuard guard(a.device());
  TORCH_CHECK(
      c10_npu::getCurrentNPUStream().device() == a.device(),
      "the stream is the device's");
  const at::Tensor input = a.contiguous();
  const at::Tensor result = at::empty_like(input);
  npu::pack::run_kind(
      "guide_ops::doubled", "guide.double/1", 0, {result}, {input});
  return result;
}

}  // namespace native
}  // namespace at_npu
