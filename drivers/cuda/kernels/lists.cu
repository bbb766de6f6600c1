// SPDX-License-Identifier: Apache-2.0
// Kinds optimizer, amp_unscale and amp_update_scale: all tensors of a list in
// one launch, as long as their addresses fit a kernel's parameters.
#include <algorithm>

#include "kernels/element.cuh"
#include "shared/arithmetic.h"

namespace npu::cuda {
namespace {

// ---- lists ----

constexpr int kEntries = 80;                    // of a launch
constexpr int kRoles = 6;                       // lists of a call
constexpr std::int64_t kPiece = kThreads * 16;  // elements of a block

// A part of the lists of a call. Blocks share out pieces of the entries.
struct Lists {
  int n;
  npu_dtype dtype[kRoles];
  std::uint8_t bytes[kRoles];
  char* data[kRoles][kEntries];
  std::int64_t numel[kEntries];
  std::int64_t pieces[kEntries + 1];  // before each entry

  template <class T>
  __device__ T at(int role, int entry, std::int64_t i) const {
    return load<T>(data[role][entry] + i * bytes[role], dtype[role]);
  }
  template <class T>
  __device__ void set(int role, int entry, std::int64_t i, T value) const {
    store<T>(data[role][entry] + i * bytes[role], dtype[role], value);
  }
  // The entry that a piece belongs to.
  __device__ int entry_of(std::int64_t piece) const {
    int low = 0;
    int high = n - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (pieces[middle] <= piece) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

// body(part, first entry) for launches of up to kEntries entries each. Lists
// that are absent are null.
template <class Body>
npu_status for_parts(
    const npu_call& call, const npu_list* const (&lists)[kRoles], Body body) {
  const npu_list& first = *lists[0];
  for (const npu_list* list : lists) {
    if (list && (list->n != first.n || list->data == nullptr)) {
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: %s: lists of different lengths.",
          npu_kind_name(call.slot));
    }
    if (list && list->tensors != nullptr) {
      return refuse(call, "takes lists of dense tensors only");
    }
  }
  Lists part{};
  for (int role = 0; role < kRoles; ++role) {
    if (lists[role]) {
      part.dtype[role] = lists[role]->dtype;
      part.bytes[role] =
          static_cast<std::uint8_t>(npu_dtype_bytes(lists[role]->dtype));
    }
  }
  for (std::uint32_t from = 0; from < first.n; from += kEntries) {
    part.n =
        static_cast<int>(std::min<std::uint32_t>(kEntries, first.n - from));
    for (int i = 0; i < part.n; ++i) {
      const std::uint32_t entry = from + static_cast<std::uint32_t>(i);
      part.numel[i] = first.numel[entry];
      part.pieces[i + 1] =
          part.pieces[i] + (part.numel[i] + kPiece - 1) / kPiece;
      for (int role = 0; role < kRoles; ++role) {
        part.data[role][i] = lists[role]
                                 ? static_cast<char*>(lists[role]->data[entry])
                                 : nullptr;
      }
    }
    if (part.pieces[part.n] == 0) {
      continue;
    }
    if (npu_status status = body(part)) {
      return status;
    }
  }
  return NPU_OK;
}

void list_caps(npu_op_caps& out) {
  usual_caps(out, NPU_DTYPES_FREE);
  out.flags |= NPU_CAP_ALIAS;
  out.alias_mask = ~UINT64_C(0);
  out.accumulate = NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);
}

// One number in device memory; absent: `otherwise`.
struct Number {
  const char* data;
  npu_dtype dtype;
  double otherwise;

  __device__ double get() const {
    return data != nullptr ? load<double>(data, dtype) : otherwise;
  }
};

Number number(const npu_tensor* t, double otherwise) {
  return t ? Number{static_cast<const char*>(t->data), t->dtype, otherwise}
           : Number{nullptr, NPU_ABSENT, otherwise};
}

// ---- optimizer ----

enum Role { kParam, kGrad, kState1, kState2, kState3, kSteps };

struct StepArgs {
  Lists lists;
  npu_optimizer_attrs attrs;
  Number lr;
  Number grad_scale;
  Number found_inf;
  std::uint32_t code;
};

// What is the same for all elements of an entry.
struct Step {
  double lr;
  double step_size;
  double root2;
  double grad_scale;
};

__device__ inline Step step_of(const StepArgs& args, int entry) {
  const double lr = args.lr.get();
  Step out{lr, lr, 1, args.grad_scale.get()};
  if (args.lists.data[kSteps][entry] != nullptr) {
    const double step = args.lists.at<double>(kSteps, entry, 0);
    out.lr = lr / (1 + (step - 1) * args.attrs.lr_decay);
    out.step_size = lr / (1 - pow(args.attrs.beta1, step));
    out.root2 = sqrt(1 - pow(args.attrs.beta2, step));
  }
  return out;
}

// C: what is computed in. One element of entry `e`.
template <class C>
__device__ inline void take_step(
    const StepArgs& args, const Step& step, int e, std::int64_t i) {
  const Lists& lists = args.lists;
  const npu_optimizer_attrs& attrs = args.attrs;
  C p = lists.at<C>(kParam, e, i);
  C g = lists.at<C>(kGrad, e, i);
  if (step.grad_scale != 0) {
    g = g / static_cast<C>(step.grad_scale);
    lists.set(kGrad, e, i, g);
  }
  g = attrs.maximize ? -g : g;
  const bool decoupled = args.code == NPU_OPTIMIZER_ADAMW;
  if (decoupled) {
    p = p * static_cast<C>(1 - step.lr * attrs.weight_decay);
  } else if (attrs.weight_decay != 0) {
    g = g + p * static_cast<C>(attrs.weight_decay);
  }
  if (args.code <= NPU_OPTIMIZER_ADAMW) {
    const C m = interpolate(
        lists.at<C>(kState1, e, i), g, static_cast<C>(1 - attrs.beta1));
    const C v = static_cast<C>(attrs.beta2) * lists.at<C>(kState2, e, i) +
                static_cast<C>(1 - attrs.beta2) * g * g;
    lists.set(kState1, e, i, m);
    lists.set(kState2, e, i, v);
    C under = v;
    if (attrs.amsgrad) {
      under = greater(lists.at<C>(kState3, e, i), v);
      lists.set(kState3, e, i, under);
    }
    p = p - static_cast<C>(step.step_size) * m /
                (square_root(under) / static_cast<C>(step.root2) +
                 static_cast<C>(attrs.eps));
  } else if (args.code == NPU_OPTIMIZER_ADAGRAD) {
    const C sum = lists.at<C>(kState1, e, i) + g * g;
    lists.set(kState1, e, i, sum);
    p = p - static_cast<C>(step.lr) * g /
                (square_root(sum) + static_cast<C>(attrs.eps));
  } else {
    if (lists.data[kState1][e] != nullptr) {
      const auto momentum = static_cast<C>(attrs.momentum);
      const C b = attrs.first_step
                      ? g
                      : momentum * lists.at<C>(kState1, e, i) +
                            static_cast<C>(1 - attrs.dampening) * g;
      lists.set(kState1, e, i, b);
      g = attrs.nesterov ? g + momentum * b : b;
    }
    p = p - static_cast<C>(step.lr) * g;
  }
  lists.set(kParam, e, i, p);
}

template <class C>
__global__ void step_kernel(const __grid_constant__ StepArgs args) {
  __shared__ Step step;
  __shared__ bool stops;
  const std::int64_t piece = blockIdx.x;
  const int entry = args.lists.entry_of(piece);
  if (threadIdx.x == 0) {
    stops = args.found_inf.get() != 0;
    step = step_of(args, entry);
  }
  __syncthreads();
  if (stops) {
    return;
  }
  const std::int64_t begin = (piece - args.lists.pieces[entry]) * kPiece;
  const std::int64_t end = min(begin + kPiece, args.lists.numel[entry]);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    take_step<C>(args, step, entry, i);
  }
}

npu_status optimizer(Stream& stream, const npu_call& call) {
  const npu_optimizer_args given = npu_optimizer_unpack(&call);
  const bool adam = call.code <= NPU_OPTIMIZER_ADAMW;
  const bool lacks =
      !given.params || !given.grads ||
      ((adam || call.code == NPU_OPTIMIZER_ADAGRAD) &&
       (!given.state1 || !given.steps)) ||
      (adam && (!given.state2 || (given.attrs.amsgrad && !given.state3)));
  if (lacks) {
    return fail(
        NPU_E_INVALID,
        "npu: cuda driver: optimizer.%s: a list is missing.",
        npu_code_name(call.slot, call.code));
  }
  const npu_list* const lists[kRoles] = {
      given.params,
      given.grads,
      given.state1,
      given.state2,
      given.state3,
      given.steps};
  StepArgs args{};
  args.attrs = given.attrs;
  args.lr = number(given.lr_tensor, given.attrs.lr);
  args.grad_scale = number(given.grad_scale, 0);
  args.found_inf = number(given.found_inf, 0);
  args.code = call.code;
  const bool wide = given.params->dtype == NPU_F64;
  return for_parts(call, lists, [&](const Lists& part) {
    args.lists = part;
    const auto blocks = static_cast<std::uint64_t>(part.pieces[part.n]);
    return wide ? launch<&step_kernel<double>>(stream, blocks, kThreads, args)
                : launch<&step_kernel<float>>(stream, blocks, kThreads, args);
  });
}

npu_status optimizer_caps(std::uint32_t code, npu_op_caps& out) {
  if (code >= NPU_OPTIMIZER_CODES) {
    return NPU_E_UNSUPPORTED;
  }
  list_caps(out);
  std::fill_n(out.dtypes, 9, kFloatBits);
  return NPU_OK;
}

// ---- loss scaling ----

struct UnscaleArgs {
  Lists lists;
  const float* scale;
  float* found_inf;
};

template <class C>
__global__ void unscale_kernel(const __grid_constant__ UnscaleArgs args) {
  const std::int64_t piece = blockIdx.x;
  const int entry = args.lists.entry_of(piece);
  const std::int64_t begin = (piece - args.lists.pieces[entry]) * kPiece;
  const std::int64_t end = min(begin + kPiece, args.lists.numel[entry]);
  const auto by = static_cast<C>(*args.scale);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const C x = args.lists.at<C>(0, entry, i);
    // x * 0 is 0 unless x is infinite or no number.
    if (x * C(0) != C(0)) {
      *args.found_inf = 1.0f;
    }
    args.lists.set(0, entry, i, by == C(1) ? x : x * by);
  }
}

npu_status unscale(Stream& stream, const npu_call& call) {
  const npu_amp_unscale_args given = npu_amp_unscale_unpack(&call);
  if (!given.grads || !given.found_inf || !given.inv_scale) {
    return refuse(call, "an operand is absent");
  }
  const npu_list* const lists[kRoles] = {given.grads};
  UnscaleArgs args{};
  args.scale = static_cast<const float*>(given.inv_scale->data);
  args.found_inf = static_cast<float*>(given.found_inf->data);
  const bool wide = given.grads->dtype == NPU_F64;
  return for_parts(call, lists, [&](const Lists& part) {
    args.lists = part;
    const auto blocks = static_cast<std::uint64_t>(part.pieces[part.n]);
    return wide
               ? launch<&unscale_kernel<double>>(stream, blocks, kThreads, args)
               : launch<&unscale_kernel<float>>(stream, blocks, kThreads, args);
  });
}

npu_status unscale_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  list_caps(out);
  out.dtypes[0] = out.dtypes[1] = NPU_DTYPE_BIT(NPU_F32);
  out.dtypes[2] = kFloatBits;
  return NPU_OK;
}

struct UpdateArgs {
  float* scale;
  std::int32_t* tracker;
  const float* found_inf;
  double growth;
  double backoff;
  std::int64_t interval;
};

__global__ void update_kernel(const UpdateArgs args) {
  if (*args.found_inf != 0.0f) {
    *args.scale = static_cast<float>(*args.scale * args.backoff);
    *args.tracker = 0;
    return;
  }
  const std::int32_t now = *args.tracker + 1;
  if (now == args.interval) {
    // A scale that would overflow stays where it is.
    const auto grown = static_cast<float>(*args.scale * args.growth);
    *args.scale = isfinite(grown) ? grown : *args.scale;
  }
  *args.tracker = now == args.interval ? 0 : now;
}

npu_status update_scale(Stream& stream, const npu_call& call) {
  const npu_amp_update_scale_args given = npu_amp_update_scale_unpack(&call);
  const UpdateArgs args{
      static_cast<float*>(given.scale->data),
      static_cast<std::int32_t*>(given.growth_tracker->data),
      static_cast<const float*>(given.found_inf->data),
      given.attrs.growth_factor,
      given.attrs.backoff_factor,
      given.attrs.growth_interval};
  return launch<&update_kernel>(stream, 1, 1, args);
}

npu_status update_scale_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  list_caps(out);
  out.dtypes[0] = out.dtypes[2] = NPU_DTYPE_BIT(NPU_F32);
  out.dtypes[1] = NPU_DTYPE_BIT(NPU_I32);
  return NPU_OK;
}

constexpr KernelRow kTable[] = {
    {NPU_KIND_OPTIMIZER, optimizer_caps, nullptr, optimizer},
    {NPU_KIND_AMP_UNSCALE, unscale_caps, nullptr, unscale},
    {NPU_KIND_AMP_UPDATE_SCALE, update_scale_caps, nullptr, update_scale},
};

}  // namespace

const Rows kListKernels = kTable;

}  // namespace npu::cuda
