/* SPDX-License-Identifier: Apache-2.0 */
/* The call frame: the one signature all operators share.
 *
 * The kinds themselves (slots, codes, attribute structs) are written down once,
 * in ops/kinds.yaml; npu/kinds.h is generated from it. The frame and what both
 * sides guarantee are explained in docs/driver-guide.md.
 */
#ifndef NPU_OP_H
#define NPU_OP_H

#include "npu/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dtypes ---- */

typedef uint16_t npu_dtype;
#define NPU_ABSENT 0u /* an optional operand that is not there */
#define NPU_BOOL 1u   /* one byte, 0 or 1 */
#define NPU_U8 2u
#define NPU_I8 3u
#define NPU_I16 4u
#define NPU_I32 5u
#define NPU_I64 6u
#define NPU_U16 7u
#define NPU_U32 8u
#define NPU_U64 9u
#define NPU_F16 10u
#define NPU_BF16 11u
#define NPU_F32 12u
#define NPU_F64 13u
#define NPU_C32 14u /* complex of two float16 */
#define NPU_C64 15u
#define NPU_C128 16u
#define NPU_F8_E4M3FN 17u
#define NPU_F8_E5M2 18u
#define NPU_F8_E4M3FNUZ 19u
#define NPU_F8_E5M2FNUZ 20u
#define NPU_F8_E8M0FNU 21u
#define NPU_F4_E2M1FN_X2 22u
#define NPU_DTYPE_COUNT 23u
#define NPU_DTYPE_ROOM 32 /* for arrays by dtype; there will be more */
/* Sets of dtypes are 64-bit masks. */
#define NPU_DTYPE_BIT(dtype) (UINT64_C(1) << (dtype))

/* ---- tensors ---- */

#define NPU_MAX_DIMS 64

#define NPU_TENSOR_CONTIGUOUS 1u
#define NPU_TENSOR_DENSE 2u       /* non-overlapping and dense, in some order */
#define NPU_TENSOR_HOST_SCALAR 4u /* 0-dim, data points to host memory */
#define NPU_TENSOR_CONJ 8u        /* values are to be read conjugated */
#define NPU_TENSOR_NEG 16u        /* values are to be read negated */
#define NPU_TENSOR_ALIAS 32u      /* same bytes as output alias_of */

/* A view of memory. Nothing is owned; pointers are valid until run returns. */
typedef struct npu_tensor {
  void* data;    /* element [0, ..., 0] */
  void* storage; /* start of the storage that contains data */
  uint64_t storage_bytes;
  int64_t numel;
  const int64_t* sizes;   /* ndim of them */
  const int64_t* strides; /* in elements, ndim of them */
  npu_dtype dtype;
  uint16_t ndim;
  uint32_t flags;
  npu_device device;
  uint16_t format; /* 0 = plain strided */
  uint16_t alias_of;
  uint64_t reserved[4];
} npu_tensor;

/* Many tensors of one role, for the kinds that work on lists. */
typedef struct npu_list {
  uint32_t size;
  uint32_t n;
  npu_dtype dtype; /* of all */
  uint16_t reserved0;
  uint32_t flags;
  void* const* data;
  const int64_t* numel;
  const npu_tensor* tensors; /* NULL when all are dense in the same order */
} npu_list;

/* ---- scalars ---- */

#define NPU_SCALAR_NONE 0u
#define NPU_SCALAR_BOOL 1u
#define NPU_SCALAR_INT 2u
#define NPU_SCALAR_FLOAT 3u
#define NPU_SCALAR_COMPLEX 4u
#define NPU_SCALAR_UINT 5u /* i holds the bits of a uint64 */

/* A number in an attribute struct. i is exact for bool and int; re (and im)
 * hold the value for every kind, rounded where they must. */
typedef struct npu_scalar {
  uint32_t kind;
  uint32_t reserved;
  int64_t i;
  double re;
  double im;
} npu_scalar;

/* ---- random numbers ---- */

/* Philox4x32-10 with key = seed. Effective offset = (offset_ptr ? *offset_ptr
 * : 0) + offset, counted in 32-bit words, a multiple of 4; effective seed =
 * seed_ptr ? *seed_ptr : seed. The pointers are device memory, so a replayed
 * graph draws new numbers without a synchronize. */
typedef struct npu_rng {
  uint64_t seed;
  uint64_t offset;
  const uint64_t* seed_ptr;
  const uint64_t* offset_ptr;
} npu_rng;

/* ---- the call ---- */

#define NPU_CALL_INDEX32 1u /* every byte offset fits in int32 */
#define NPU_CALL_CAPTURE 2u /* being recorded into a graph */
#define NPU_CALL_COUNT 4u   /* first half of a count/fill pair */
/* The user wants the fastest algorithm and accepts the time of the search: plan
 * may prepare several and ask for the largest workspace among them, tune
 * chooses. Since 1.1. */
#define NPU_CALL_BENCHMARK 8u

#define NPU_MATH_EXACT 0u
#define NPU_MATH_TF32 1u           /* also hf32: 10-bit mantissa products */
#define NPU_MATH_F16_ACCUMULATE 2u /* sums may be kept in half precision */
/* Sums of half operands are kept in float32, but a kernel that splits a sum may
 * round the partial sums to the operands' half type before it adds them.
 * Drivers of 1.1 get NPU_MATH_EXACT instead. Since 1.2. */
#define NPU_MATH_HALF_PARTIALS 3u

/* Flat. Attributes hold no pointers, so a frame is copied with memcpy and
 * relocation, and a list of frames is a graph. */
typedef struct npu_call {
  uint32_t size;
  uint32_t slot;
  uint32_t code;
  uint32_t flags;
  uint16_t math_mode;
  /* The dtype of the computation; NPU_ABSENT: the operands' own. Inputs are
   * converted to it (integers and bools too, before the operation), and the
   * result is rounded to it before it is converted to the output's dtype:
   * float16 operands with a float32 output give values that float16 has. Two
   * things are not converted: a condition (where, masked_scale), and a float32
   * number in host memory beside a half compute_dtype, whose digits all count
   * (mul and div by a Python number). A kernel may compute halves in float32
   * inside. The host side never combines a half compute_dtype with an output of
   * another floating point dtype; it lets the kernel write the half and
   * converts that. */
  npu_dtype compute_dtype;
  uint32_t deterministic; /* 1 = only deterministic kernels */
  const char* label;      /* "aten::add.Tensor", for messages and profiles */
  uint64_t correlation;
  uint32_t n_out; /* outputs come first in tensors, in the kind's order */
  uint32_t n_in;
  const npu_tensor* tensors;
  const void* attrs;
  uint32_t attr_bytes;
  uint32_t n_lists;
  const npu_list* lists;
  /* Device memory of the stream: work of this call may use it until the next
   * work on the stream begins. */
  void* workspace;
  uint64_t workspace_bytes;
  /* Pinned host memory (host_alloc), unlike the rest of the frame valid until
   * the stream passes this call: queued work may read and write it. */
  void* host_workspace;
  uint64_t host_workspace_bytes;
  void* carry; /* from count to fill */
  uint64_t carry_bytes;
  void* plan;
  npu_rng rng;
  /* For plan and tune: the most device workspace to ask for; 0 = as much as
   * helps, 1 = none. With less than it needs at least, plan answers NO and
   * NPU_REASON_WORKSPACE. Part of the plan key. Read it with
   * npu_call_workspace_limit. Since 1.1. */
  uint64_t workspace_limit;
} npu_call;

/* Bytes of a frame of contract 1.0. */
#define NPU_CALL_BYTES_1_0 ((uint32_t)offsetof(npu_call, workspace_limit))

/* The most device workspace plan may ask for, also of an older host's call. */
static inline uint64_t npu_call_workspace_limit(const npu_call* call) {
  if (call->size < sizeof(npu_call) || call->workspace_limit == 0)
    return UINT64_MAX;
  return call->workspace_limit == 1 ? 0 : call->workspace_limit;
}

/* ---- what a driver answers ---- */

#define NPU_VERDICT_NO 0u
#define NPU_VERDICT_YES 1u
#define NPU_VERDICT_IF_CONTIGUOUS 2u /* operands in mask made contiguous */
#define NPU_VERDICT_IF_CAST 3u       /* operands in mask cast to cast_dtype */
#define NPU_VERDICT_IF_ALIGNED 4u    /* operands in mask aligned */

typedef struct npu_verdict {
  uint32_t size; /* set by the caller; the rest starts as zero */
  uint32_t answer;
  npu_reason reason;
  npu_dtype cast_dtype;
  uint16_t alignment;
  /* Counts operands of the call, outputs first: bit i is call.tensors[i], so
   * that of the first input is n_out; bit n_out + n_in + i is lists[i]. (Unlike
   * npu_op_caps.alias_mask, which counts inputs.) */
  uint64_t mask;
  uint64_t workspace_bytes;
  uint64_t host_workspace_bytes;
  uint64_t carry_bytes;
  /* Passed to run, maybe by many threads at once, until release_plan. */
  void* plan;
  char detail[96]; /* shown to users: "groups=3" */
} npu_verdict;

/* Layouts. Contiguous operands are always taken; each flag adds a layout to
 * what the kernel takes, for each operand (and entry of a list) by itself. The
 * host side copies only operands that fit none of them. */
#define NPU_CAP_STRIDED_IN 1u /* any strides, 0 too */
#define NPU_CAP_STRIDED_OUT 2u
/* All elements side by side, in any order of dimensions: transposes, channels
 * last. Since 1.1. */
#define NPU_CAP_DENSE_IN 128u
#define NPU_CAP_DENSE_OUT 256u
/* 3 to 5 dimensions, dense in the order batch, spatial, channel (dimension 1
 * innermost). Inputs and outputs. Since 1.1. */
#define NPU_CAP_CHANNELS_LAST 512u
/* Rows apart by any distance, stride 1 inside a row (last dimension). Inputs
 * and outputs. Since 1.1. */
#define NPU_CAP_INNER_STRIDE_1 1024u

#define NPU_CAP_ALIAS 4u   /* output may be an input, in place: alias_mask */
#define NPU_CAP_INDEX64 8u /* more than 2^31 bytes apart */
#define NPU_CAP_DETERMINISTIC 16u
#define NPU_CAP_CAPTURE 32u
/* Operands flagged NPU_TENSOR_HOST_SCALAR, and lists flagged so. The number has
 * the dtype the operand says: the compute dtype where the call names one, or
 * float32 where that is a half. It is not rounded to the half then. */
#define NPU_CAP_HOST_SCALAR 64u
/* A limit, not an ability: ask only for calls whose inputs have one dtype. Bool
 * inputs, host scalars and operands whose dtypes the kind limits are no matter.
 * A host side older than the flag asks all the same: run answers the right
 * numbers or NPU_E_UNSUPPORTED. Since 1.1. */
#define NPU_CAP_ONE_INPUT_DTYPE 8192u
/* Normalisations of half tensors write and read their statistics (mean, rstd)
 * in float32, also beside half parameters. Without the flag dtypes alone says
 * what the kernel takes. Since 1.2. */
#define NPU_CAP_WIDE_STATISTICS 16384u

/* Attributes that came later. A kernel without the flag never sees them set
 * (npu_attr_info.cap). Since 1.1. */
#define NPU_CAP_EPILOGUE 2048u      /* conv: epilogue */
#define NPU_CAP_BIAS_GRADIENT 4096u /* gemm: bias_gradient */
/* gemm: the epilogues that multiply by a derivative, and `aux`. Since 1.2. */
#define NPU_CAP_EPILOGUE_GRAD 32768u
/* attention: dropout_rule. Since 1.2. */
#define NPU_CAP_DROPOUT_RULE 65536u

#define NPU_DTYPES_SAME 0u /* all operands of one dtype */
#define NPU_DTYPES_CAST 1u /* the kernel casts between the listed ones */
#define NPU_DTYPES_FREE 2u /* as the kind says per operand */
#define NPU_DTYPES_ROWS 3u /* one of dtype_rows. Since 1.1. */

#define NPU_PLAN_NONE 0u     /* plan is never called: caps are enough */
#define NPU_PLAN_BY_DTYPE 1u /* one answer per dtypes, flags and code */
#define NPU_PLAN_BY_SHAPE 2u /* one per sizes and strides too */
/* A workspace takes a plan. ops/kinds.yaml says per kind how far plans may go;
 * since 1.1 by shape for all but copy, fill and the elementwise kinds,
 * since 1.2 for those too. Elementwise kinds without a plan are issued faster.
 * The plans of copy and fill say YES or NO: the host side mends operands with
 * these kinds. */

#define NPU_MAX_OPERANDS 16

/* One combination of dtypes a kernel takes, by place: outputs, inputs, then
 * lists. NPU_ABSENT = whatever caps.dtypes allows there, absent operands fit
 * any. Frozen. */
typedef struct npu_dtype_row {
  npu_dtype dtypes[NPU_MAX_OPERANDS];
} npu_dtype_row;

typedef struct npu_op_caps {
  uint32_t size; /* set by the caller; the rest starts as zero */
  uint32_t flags;
  uint32_t dtype_rule;
  uint32_t plan_use;
  uint32_t max_ndim; /* 0 = any */
  /* Of data pointers, also those in lists; 0 = the element's. */
  uint32_t min_alignment;
  /* Inputs that may be the output. Counts inputs: bit i is input i, which is
   * call.tensors[n_out + i]. (Unlike npu_verdict.mask, which counts operands.)
   */
  uint64_t alias_mask;
  uint64_t accumulate; /* dtypes it can accumulate in */
  /* Per operand, outputs first. 0 = those of dtypes[0]; for an operand whose
   * dtypes the kind limits (npu_operand_info.dtypes), and for every operand
   * with NPU_DTYPES_FREE, 0 = what the kind allows. */
  uint64_t dtypes[NPU_MAX_OPERANDS];
  /* By dtype of the first input, else output: n = ask only for calls whose
   * largest operand has up to 2^n elements, beyond it another rung is faster;
   * 255 = never ask; 0 = ask always. A preference: run takes every size. */
  uint8_t numel_limit[NPU_DTYPE_ROOM];
  /* With NPU_DTYPES_ROWS. Static data of the driver. Since 1.1. */
  const npu_dtype_row* dtype_rows;
  uint32_t n_dtype_rows;
  uint32_t reserved;
} npu_op_caps;

#define NPU_NEVER_ASK 255u

#define NPU_FIRST_VENDOR_SLOT 4096u

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_OP_H */
