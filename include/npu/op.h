/* SPDX-License-Identifier: Apache-2.0 */
/* The call frame: the one signature all operators share.
 *
 * The kinds themselves (slots, codes, attribute structs) are written down once,
 * in ops/kinds.yaml; npu/kinds.h is made from it. Frame and promises are
 * explained in docs/driver-guide.md.
 */
#ifndef NPU_OP_H
#define NPU_OP_H

#include "npu/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dtypes
 * ------------------------------------------------------------------- */

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

/* ---- tensors
 * ------------------------------------------------------------------- */

#define NPU_MAX_DIMS 64

#define NPU_TENSOR_CONTIGUOUS 1u
#define NPU_TENSOR_DENSE 2u       /* non-overlapping and dense, in some order */
#define NPU_TENSOR_HOST_SCALAR 4u /* 0-dim, data points to host memory */
#define NPU_TENSOR_CONJ 8u        /* values are to be read conjugated */
#define NPU_TENSOR_NEG 16u        /* values are to be read negated */
#define NPU_TENSOR_ALIAS 32u      /* same bytes as output alias_of */

/* A view of memory. Nothing is owned; pointers hold until run returns. */
typedef struct npu_tensor {
  void* data;    /* element [0, ..., 0] */
  void* storage; /* start of the storage that data lies in */
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

/* ---- scalars
 * ------------------------------------------------------------------- */

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

/* ---- random numbers
 * ------------------------------------------------------------ */

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

/* ---- the call
 * ------------------------------------------------------------------ */

#define NPU_CALL_INDEX32 1u /* every byte offset fits in int32 */
#define NPU_CALL_CAPTURE 2u /* being recorded into a graph */
#define NPU_CALL_COUNT 4u   /* first half of a count/fill pair */

#define NPU_MATH_EXACT 0u
#define NPU_MATH_TF32 1u           /* also hf32: 10-bit mantissa products */
#define NPU_MATH_F16_ACCUMULATE 2u /* sums may be kept in half precision */

/* Flat. Attributes hold no pointers, so a frame is copied with memcpy and
 * relocation, and a list of frames is a graph. */
typedef struct npu_call {
  uint32_t size;
  uint32_t slot;
  uint32_t code;
  uint32_t flags;
  uint16_t math_mode;
  npu_dtype compute_dtype; /* NPU_ABSENT: the operands' own */
  uint32_t deterministic;  /* 1 = only deterministic kernels */
  const char* label;       /* "aten::add.Tensor", for messages and profiles */
  uint64_t correlation;
  uint32_t n_out; /* outputs come first in tensors, in the kind's order */
  uint32_t n_in;
  const npu_tensor* tensors;
  const void* attrs;
  uint32_t attr_bytes;
  uint32_t n_lists;
  const npu_list* lists;
  void* workspace;
  uint64_t workspace_bytes;
  void* host_workspace;
  uint64_t host_workspace_bytes;
  void* carry; /* from count to fill */
  uint64_t carry_bytes;
  void* plan;
  npu_rng rng;
} npu_call;

/* ---- what a driver answers
 * ------------------------------------------------------- */

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
  uint64_t mask; /* bit i = tensors[i], outputs included */
  uint64_t workspace_bytes;
  uint64_t host_workspace_bytes;
  uint64_t carry_bytes;
  void* plan;      /* handed back in run; release_plan ends it */
  char detail[96]; /* for people: "groups=3" */
} npu_verdict;

#define NPU_CAP_STRIDED_IN 1u
#define NPU_CAP_STRIDED_OUT 2u
#define NPU_CAP_ALIAS 4u   /* output may be an input, in place */
#define NPU_CAP_INDEX64 8u /* more than 2^31 bytes apart */
#define NPU_CAP_DETERMINISTIC 16u
#define NPU_CAP_CAPTURE 32u
#define NPU_CAP_HOST_SCALAR 64u

#define NPU_DTYPES_SAME 0u /* all operands of one dtype */
#define NPU_DTYPES_CAST 1u /* the kernel casts between the listed ones */
#define NPU_DTYPES_FREE 2u /* as the kind says per operand */

#define NPU_PLAN_NONE 0u     /* plan is never called: caps say it all */
#define NPU_PLAN_BY_DTYPE 1u /* one answer per dtypes, flags and code */
#define NPU_PLAN_BY_SHAPE 2u /* one per sizes and strides too */

#define NPU_MAX_OPERANDS 16

typedef struct npu_op_caps {
  uint32_t size; /* set by the caller; the rest starts as zero */
  uint32_t flags;
  uint32_t dtype_rule;
  uint32_t plan_use;
  uint32_t max_ndim;                 /* 0 = any */
  uint32_t min_alignment;            /* of data pointers; 0 = the element's */
  uint64_t alias_mask;               /* inputs that may be the output */
  uint64_t accumulate;               /* dtypes it can accumulate in */
  uint64_t dtypes[NPU_MAX_OPERANDS]; /* per operand, outputs first */
  /* By dtype of the first input, else output: n = ask only for calls whose
   * largest operand has up to 2^n elements, beyond it another rung is faster;
   * 255 = never ask; 0 = ask always. A preference: run takes every size. */
  uint8_t numel_limit[NPU_DTYPE_ROOM];
} npu_op_caps;

#define NPU_NEVER_ASK 255u

#define NPU_FIRST_VENDOR_SLOT 4096u

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_OP_H */
