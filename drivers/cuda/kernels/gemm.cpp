// SPDX-License-Identifier: Apache-2.0
// Kind gemm by cuBLASLt: a plan holds the algorithm that its heuristics chose.
#include "gemm_problem.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/gemm_finish.h"
#include "kernels/kernel.h"
#include "lib/cublaslt.h"

namespace npu::cuda {
namespace {

constexpr std::uint64_t kMostWorkspace = UINT64_C(32) << 20;  // as on Hopper
constexpr std::uint64_t kAlign = 256;

int cuda_type(npu_dtype dtype) {
  switch (dtype) {
    case NPU_F16:
      return 2;
    case NPU_BF16:
      return 14;
    case NPU_F64:
      return 1;
    default:
      return 0;
  }
}

// One handle for each device; cuBLASLt lets threads share it.
lt::Handle handle_of(npu_device device) {
  static std::mutex mutex;
  static auto* const handles =
      new std::vector<lt::Handle>(static_cast<std::size_t>(device_count()));
  const std::lock_guard lock(mutex);
  lt::Handle& handle = (*handles)[static_cast<std::size_t>(device)];
  if (!handle) {
    const OnDevice on(device);
    if (lt::api()->create(&handle) != 0) {
      handle = nullptr;
    }
  }
  return handle;
}

// How far a pointer is aligned, up to 256.
std::uint32_t alignment_of(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  for (std::uint32_t bytes = 256; bytes > 1; bytes /= 2) {
    if (at % bytes == 0) {
      return bytes;
    }
  }
  return 1;
}

std::uint64_t rounded_up(std::uint64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

struct Plan {
  GemmProblem problem;
  lt::MatmulDesc desc = nullptr;
  lt::MatrixLayout a = nullptr;
  lt::MatrixLayout b = nullptr;
  lt::MatrixLayout c = nullptr;
  lt::MatrixLayout out = nullptr;
  lt::Algorithm algorithm{};
  std::uint64_t product_bytes = 0;    // staged: the product
  std::uint64_t workspace_bytes = 0;  // of the algorithm
  bool wide = false;

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    const lt::Api& api = *lt::api();
    for (const lt::MatrixLayout layout : {a, b, c, out}) {
      if (layout) {
        api.layout_destroy(layout);
      }
    }
    if (desc) {
      api.desc_destroy(desc);
    }
  }
};

template <class T>
bool set_desc(lt::MatmulDesc desc, int attribute, T value) {
  return lt::api()->desc_set(desc, attribute, &value, sizeof(value)) == 0;
}

// The transpose of a rows x columns matrix, which is what cuBLASLt sees.
bool set_layout(
    lt::MatrixLayout& out,
    npu_dtype dtype,
    std::int64_t rows,
    std::int64_t columns,
    const GemmMatrix& matrix,
    std::int64_t batches) {
  const lt::Api& api = *lt::api();
  const std::int64_t lines = matrix.transposed ? columns : rows;
  const std::int64_t length = matrix.transposed ? rows : columns;
  if (api.layout_create(
          &out,
          cuda_type(dtype),
          static_cast<std::uint64_t>(length),
          static_cast<std::uint64_t>(lines),
          matrix.ld) != 0) {
    return false;
  }
  const auto count = static_cast<std::int32_t>(batches);
  return batches == 1 ||
         (api.layout_set(out, lt::kBatchCount, &count, sizeof(count)) == 0 &&
          api.layout_set(
              out,
              lt::kBatchOffset,
              &matrix.batch_offset,
              sizeof(matrix.batch_offset)) == 0);
}

// The shapes and types of the problem; false: cuBLASLt does not know them.
bool describe(Plan& plan, const npu_call& call) {
  const GemmProblem& p = plan.problem;
  const npu_gemm_args args = npu_gemm_unpack(&call);
  const bool tf32 = call.math_mode == NPU_MATH_TF32 && p.dtype == NPU_F32;
  const int compute = plan.wide ? lt::kCompute64F
                      : tf32    ? lt::kComputeFastTf32
                                : lt::kCompute32F;
  const npu_dtype scale = plan.wide ? npu_dtype{NPU_F64} : npu_dtype{NPU_F32};
  const npu_dtype made = p.staged ? scale : args.out->dtype;
  GemmMatrix out = p.out;
  GemmMatrix c = p.has_c ? p.c : p.out;
  if (p.staged) {
    out = {p.n, p.m * p.n, false};
    c = out;
  }
  if (lt::api()->desc_create(&plan.desc, compute, cuda_type(scale)) != 0) {
    return false;
  }
  // out' = b' a', all of them transposes.
  const bool bias = p.has_bias && !p.staged;
  return set_desc(
             plan.desc,
             lt::kTransA,
             p.b.transposed ? lt::kTransposed : lt::kNormal) &&
         set_desc(
             plan.desc,
             lt::kTransB,
             p.a.transposed ? lt::kTransposed : lt::kNormal) &&
         (!bias || (set_desc(plan.desc, lt::kEpilogue, lt::kEpilogueBias) &&
                    set_desc(
                        plan.desc,
                        lt::kBiasPointer,
                        static_cast<const void*>(args.bias->data)))) &&
         set_layout(plan.b, p.dtype, p.k, p.n, p.b, p.batches) &&
         set_layout(plan.a, p.dtype, p.m, p.k, p.a, p.batches) &&
         set_layout(plan.c, made, p.m, p.n, c, p.batches) &&
         set_layout(plan.out, made, p.m, p.n, out, p.batches);
}

bool choose(
    Plan& plan,
    const npu_call& call,
    npu_device device,
    std::uint64_t workspace) {
  const lt::Api& api = *lt::api();
  const npu_gemm_args args = npu_gemm_unpack(&call);
  lt::Preference preference = nullptr;
  if (api.preference_create(&preference) != 0) {
    return false;
  }
  const auto set = [&](int attribute, auto value) {
    api.preference_set(preference, attribute, &value, sizeof(value));
  };
  const std::uint32_t made =
      plan.problem.staged ? 256 : alignment_of(args.out->data);
  set(lt::kMostWorkspace, workspace);
  set(lt::kReductionSchemes, lt::kReduceInCompute);
  set(lt::kAlignmentA, alignment_of(args.b->data));
  set(lt::kAlignmentB, alignment_of(args.a->data));
  set(lt::kAlignmentC,
      plan.problem.has_c && !plan.problem.staged ? alignment_of(args.c->data)
                                                 : made);
  set(lt::kAlignmentD, made);
  lt::Heuristic found{};
  int n = 0;
  const lt::Handle handle = handle_of(device);
  const bool works = handle &&
                     api.heuristic(
                         handle,
                         plan.desc,
                         plan.b,
                         plan.a,
                         plan.c,
                         plan.out,
                         preference,
                         1,
                         &found,
                         &n) == 0 &&
                     n > 0 && found.state == 0;
  api.preference_destroy(preference);
  plan.algorithm = found.algorithm;
  plan.workspace_bytes = found.workspace;
  return works;
}

npu_status decline(
    npu_verdict& verdict, npu_reason reason, const char* detail) {
  verdict.answer = NPU_VERDICT_NO;
  verdict.reason = reason;
  std::snprintf(verdict.detail, sizeof(verdict.detail), "%s", detail);
  return NPU_OK;
}

npu_status plan_gemm(
    npu_device device, const npu_call& call, npu_verdict& verdict) {
  if (!lt::api()) {
    return decline(verdict, NPU_REASON_NO_KERNEL, lt::why().c_str());
  }
  const npu_gemm_args args = npu_gemm_unpack(&call);
  if (!args.out || !args.a || !args.b || args.a->ndim < 2) {
    return decline(verdict, NPU_REASON_ARGUMENTS, "an operand is absent");
  }
  auto plan = std::make_unique<Plan>();
  GemmProblem& p = plan->problem;
  const std::uint64_t wrong = gemm_problem(call, p);
  if (wrong == UINT64_MAX) {
    return decline(verdict, NPU_REASON_SIZE, "too large");
  }
  if (wrong != 0) {
    verdict.answer = NPU_VERDICT_IF_CONTIGUOUS;
    verdict.mask = wrong;
    return NPU_OK;
  }
  // beta and alpha are not in the key: c counts as used.
  p.has_c = args.c != nullptr;
  plan->wide = p.dtype == NPU_F64;
  if (p.staged) {
    plan->product_bytes = rounded_up(
        static_cast<std::uint64_t>(p.batches * p.m * p.n) *
        (plan->wide ? 8 : 4));
  }
  const std::uint64_t limit = npu_call_workspace_limit(&call);
  if (plan->product_bytes > limit) {
    return decline(verdict, NPU_REASON_WORKSPACE, "");
  }
  const std::uint64_t left =
      std::min(limit - plan->product_bytes, kMostWorkspace);
  const OnDevice on(device);
  if (!describe(*plan, call) || !choose(*plan, call, device, left)) {
    return decline(
        verdict, NPU_REASON_NO_KERNEL, "cuBLASLt has no such product");
  }
  verdict.workspace_bytes = plan->product_bytes + plan->workspace_bytes;
  verdict.plan = plan.release();
  return NPU_OK;
}

npu_status finish(
    Stream& stream,
    const npu_call& call,
    const Plan& plan,
    const npu_gemm_args& args) {
  FinishArgs f{};
  npu_tensor bias = args.bias ? *args.bias : npu_tensor{};
  std::int64_t strides[NPU_MAX_DIMS] = {};
  if (args.bias) {
    strides[args.out->ndim - 1] =
        args.bias->numel > 1 ? args.bias->strides[args.bias->ndim - 1] : 0;
    bias.ndim = args.out->ndim;
    bias.sizes = args.out->sizes;
    bias.strides = strides;
  }
  const bool uses_c = args.c && args.attrs.beta.re != 0;
  const npu_tensor* const operands[] = {
      args.out,
      args.pre,
      uses_c ? args.c : nullptr,
      args.bias ? &bias : nullptr};
  if (!make_layout(f.layout, operands)) {
    return refuse(call, "more than 16 dimensions");
  }
  f.product = call.workspace;
  f.out = static_cast<char*>(args.out->data);
  f.out_dtype = args.out->dtype;
  if (args.pre) {
    f.pre = static_cast<char*>(args.pre->data);
    f.pre_dtype = args.pre->dtype;
  }
  if (uses_c) {
    f.c = static_cast<const char*>(args.c->data);
    f.c_dtype = args.c->dtype;
  }
  if (args.bias) {
    f.bias = static_cast<const char*>(args.bias->data);
    f.bias_dtype = args.bias->dtype;
  }
  f.epilogue = static_cast<std::uint32_t>(args.attrs.epilogue);
  f.wide = plan.wide;
  f.alpha = args.attrs.alpha.re;
  f.beta = args.attrs.beta.re;
  return finish_gemm(stream, f);
}

npu_status gemm(Stream& stream, const npu_call& call) {
  if (!call.plan) {
    return refuse(call, "it was not planned");
  }
  const Plan& plan = *static_cast<const Plan*>(call.plan);
  const GemmProblem& p = plan.problem;
  const npu_gemm_args args = npu_gemm_unpack(&call);
  const lt::Api& api = *lt::api();
  const double factors64[] = {
      p.staged ? 1 : args.attrs.alpha.re,
      p.staged || !args.c ? 0 : args.attrs.beta.re};
  const float factors32[] = {
      static_cast<float>(factors64[0]), static_cast<float>(factors64[1])};
  const void* const alpha =
      plan.wide ? static_cast<const void*>(&factors64[0]) : &factors32[0];
  const void* const beta =
      plan.wide ? static_cast<const void*>(&factors64[1]) : &factors32[1];
  // A plan serves many calls at once, each with a bias of its own.
  lt::MatmulDesc desc = plan.desc;
  std::unique_ptr<Plan> own;
  if (p.has_bias && !p.staged) {
    own = std::make_unique<Plan>();
    own->problem = p;
    own->wide = plan.wide;
    if (!describe(*own, call)) {
      return refuse(call, "cuBLASLt refuses the bias");
    }
    desc = own->desc;
  }
  char* const workspace =
      static_cast<char*>(call.workspace) + plan.product_bytes;
  void* const out = p.staged ? call.workspace : args.out->data;
  const bool uses_c = args.c && !p.staged;
  const lt::Status status = api.matmul(
      handle_of(stream.device),
      desc,
      alpha,
      args.b->data,
      plan.b,
      args.a->data,
      plan.a,
      beta,
      uses_c ? args.c->data : out,
      plan.c,
      out,
      plan.out,
      &plan.algorithm,
      plan.workspace_bytes > 0 ? workspace : nullptr,
      plan.workspace_bytes,
      stream.handle);
  if (status != 0) {
    return fail(
        NPU_E_INTERNAL,
        "npu: cuda driver: gemm: cublasLtMatmul answers %d.",
        status);
  }
  return p.staged ? finish(stream, call, plan, args) : NPU_OK;
}

// ---- caps ----

constexpr std::uint64_t kOut = kFloatBits;
constexpr npu_dtype_row kRowsOfDtypes[] = {
    {{NPU_F32, 0, NPU_F32, NPU_F32}},
    {{NPU_F16, 0, NPU_F16, NPU_F16}},
    {{NPU_BF16, 0, NPU_BF16, NPU_BF16}},
    {{NPU_F64, 0, NPU_F64, NPU_F64}},
    {{NPU_F32, 0, NPU_F16, NPU_F16}},
    {{NPU_F32, 0, NPU_BF16, NPU_BF16}},
};

npu_status caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0 || !lt::api()) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_ROWS);
  out.flags |= NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT | NPU_CAP_ALIAS;
  out.alias_mask = UINT64_C(1) << 2;  // c
  out.plan_use = NPU_PLAN_BY_SHAPE;
  out.max_ndim = kMostDims;
  out.accumulate = NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);
  std::fill_n(out.dtypes, 6, kOut);
  out.dtype_rows = kRowsOfDtypes;
  out.n_dtype_rows = std::size(kRowsOfDtypes);
  return NPU_OK;
}

constexpr KernelRow kTable[] = {{NPU_KIND_GEMM, caps, plan_gemm, gemm}};

}  // namespace

void release_gemm_plan(void* plan) noexcept {
  delete static_cast<Plan*>(plan);
}

const Rows kGemmKernels = kTable;

}  // namespace npu::cuda
