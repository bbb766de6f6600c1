/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds program and multi_program: several calls of the map family in one pass
 * over their operands. Since 1.1.
 *
 * A program is a list of operations without branches. Each reads registers and
 * makes a new one: it is the call of its kind and code, with this compute
 * dtype, on tensors of the registers' dtypes, into a tensor of `dtype`. So a
 * register of a half type holds rounded values, and every driver has one right
 * answer. Registers 0 to 11 are the inputs; operation i makes register 12 + i.
 * Outputs are registers that operations made.
 *
 * In `program` operands are tensors of equal sizes, stride 0 where expanded, or
 * host scalars, as in the map kinds. In `multi_program` they are lists, and the
 * program runs on entry i of all of them; an entry of an input that has one
 * element stands for as many as the outputs have. An output may lie in inputs
 * (flag NPU_CAP_ALIAS): every operation reads them before they are written.
 *
 * Code `rows` of `program`, since 1.2: some registers are made by kind reduce
 * (codes sum, mean, min, max, sum_of_squares) over the last dimensions, the
 * same ones for all of them. Its operation reads one register. What it makes is
 * an output and nothing else: no operation reads it. The sizes of such a
 * program are those of its inputs that are no host scalars, of which it has one
 * at least. An output of a reduction has size 1 in the dimensions that are
 * reduced, and the program's sizes in the others. The values that are reduced
 * are those of the register, rounded to its dtype, as they lie in memory when
 * calls are separate. A reduction is the driver's own: it has the accuracy that
 * kind reduce has with this code, compute dtype and dtypes, and its order may
 * be another than that of a separate call. It does not depend on timing: equal
 * calls have equal bits. min and max have the bits of a separate call. A driver
 * says that it takes such programs by answering caps for the code.
 *
 * caps says what operands may be. Which operations a driver takes it says when
 * it is asked to plan a program: NPU_VERDICT_NO with NPU_REASON_NO_KERNEL.
 */
#ifndef NPU_PROGRAM_H
#define NPU_PROGRAM_H

#include <string.h>

#include "npu/kinds.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_PROGRAM_OUTPUTS 4u
#define NPU_PROGRAM_INPUTS 12u
#define NPU_PROGRAM_OPS 64u
#define NPU_PROGRAM_SCALARS 32u
#define NPU_PROGRAM_NONE 255u /* no register, no scalars */

/* One operation; frozen. It lies in an element of the attribute `ops`. */
typedef struct npu_program_op {
  uint8_t slot;          /* copy, fill, unary, ... ternary: NPU_KIND_* */
  uint8_t code;          /* of that kind, with one result */
  uint8_t compute_dtype; /* as npu_call.compute_dtype */
  uint8_t dtype;         /* of the register it makes */
  uint8_t in[3];         /* registers; NPU_PROGRAM_NONE: operand absent */
  uint8_t scalar;        /* its first in `scalars`; NPU_PROGRAM_NONE: not set */
} npu_program_op;

static inline npu_program_op npu_program_at(const uint64_t* ops, uint32_t i) {
  npu_program_op op;
  memcpy(&op, &ops[i], sizeof(op));
  return op;
}

static inline uint64_t npu_program_word(npu_program_op op) {
  uint64_t word;
  memcpy(&word, &op, sizeof(word));
  return word;
}

/* Scalars of an operation: those of its kind's attributes, in that order. */
static inline uint32_t npu_program_scalars(uint32_t slot) {
  switch (slot) {
    case NPU_KIND_FILL:
      return 1;
    case NPU_KIND_UNARY_WITH:
    case NPU_KIND_BINARY:
      return 4;
    case NPU_KIND_TERNARY:
      return 3;
    default:
      return 0;
  }
}

/* Operands of an operation; 255: programs have no such kind. */
static inline uint32_t npu_program_arity(uint32_t slot) {
  switch (slot) {
    case NPU_KIND_FILL:
      return 0;
    case NPU_KIND_COPY:
    case NPU_KIND_UNARY:
    case NPU_KIND_UNARY_WITH:
    case NPU_KIND_REDUCE:
      return 1;
    case NPU_KIND_BINARY:
    case NPU_KIND_COMPARE:
      return 2;
    case NPU_KIND_TERNARY:
      return 3;
    default:
      return NPU_PROGRAM_NONE;
  }
}

/* May operand i of this operation be absent? */
static inline int npu_program_optional(
    uint32_t slot, uint32_t code, uint32_t i) {
  return slot == NPU_KIND_TERNARY && ((code == NPU_TERNARY_CLAMP && i > 0) ||
                                      (code == NPU_TERNARY_ISCLOSE && i == 2));
}

/* Codes with a second result are no operations of programs. */
static inline int npu_program_has_code(uint32_t slot, uint32_t code) {
  const npu_kind_info* kind = npu_kind_of(slot);
  if (kind == NULL || npu_program_arity(slot) == NPU_PROGRAM_NONE ||
      code >= kind->n_codes)
    return 0;
  if (slot == NPU_KIND_UNARY)
    return code != NPU_UNARY_FREXP;
  if (slot == NPU_KIND_REDUCE)
    return code == NPU_REDUCE_SUM || code == NPU_REDUCE_MEAN ||
           code == NPU_REDUCE_MIN || code == NPU_REDUCE_MAX ||
           code == NPU_REDUCE_SUM_OF_SQUARES;
  if (slot == NPU_KIND_TERNARY)
    return code != NPU_TERNARY_PRELU_GRAD && code != NPU_TERNARY_GLU_GRAD;
  return 1;
}

/* Is register `reg` made by a reduction? */
static inline int npu_program_reduces(const uint64_t* ops, uint32_t reg) {
  return reg >= NPU_PROGRAM_INPUTS &&
         reg < NPU_PROGRAM_INPUTS + NPU_PROGRAM_OPS &&
         npu_program_at(ops, reg - NPU_PROGRAM_INPUTS).slot == NPU_KIND_REDUCE;
}

/* Is operation i right, given the dtypes of the inputs (NPU_ABSENT: not there)?
 * NULL, or what is wrong with it. */
static inline const char* npu_program_wrong_op(
    const uint64_t* ops, uint32_t i, const npu_dtype* inputs) {
  const npu_program_op op = npu_program_at(ops, i);
  const uint32_t arity = npu_program_arity(op.slot);
  const uint32_t scalars = npu_program_scalars(op.slot);
  uint32_t k;
  if (!npu_program_has_code(op.slot, op.code))
    return "a program cannot hold its kind and code";
  if (op.dtype == NPU_ABSENT || op.dtype >= NPU_DTYPE_COUNT ||
      op.compute_dtype >= NPU_DTYPE_COUNT)
    return "its dtype is unknown";
  for (k = 0; k < 3; ++k) {
    const uint32_t r = op.in[k];
    if (r == NPU_PROGRAM_NONE) {
      if (k < arity && !npu_program_optional(op.slot, op.code, k))
        return "an operand is missing";
      continue;
    }
    if (k >= arity)
      return "it has an operand too many";
    if (r >= NPU_PROGRAM_INPUTS + i)
      return "it reads a register that is not made before it";
    if (r < NPU_PROGRAM_INPUTS && inputs[r] == NPU_ABSENT)
      return "it reads an input that is not there";
    if (npu_program_reduces(ops, r))
      return "it reads the result of a reduction";
  }
  if (op.scalar != NPU_PROGRAM_NONE &&
      (scalars == 0 || op.scalar + scalars > NPU_PROGRAM_SCALARS))
    return "its scalars are not there";
  if (op.slot == NPU_KIND_FILL && op.scalar == NPU_PROGRAM_NONE)
    return "a fill needs its value";
  return NULL;
}

/* NULL, or what is wrong with a program; *where is the operation, n_ops when it
 * is none. outputs, inputs: dtypes of the operands, NPU_ABSENT when not there.
 */
static inline const char* npu_program_wrong(
    uint32_t n_ops,
    const uint32_t* outs,
    const uint64_t* ops,
    const npu_dtype* outputs,
    const npu_dtype* inputs,
    uint32_t* where) {
  uint32_t i;
  const char* wrong;
  *where = n_ops;
  if (n_ops == 0 || n_ops > NPU_PROGRAM_OPS)
    return "a program has 1 to 64 operations";
  for (i = 0; i < n_ops; ++i) {
    wrong = npu_program_wrong_op(ops, i, inputs);
    if (wrong != NULL) {
      *where = i;
      return wrong;
    }
  }
  for (i = 0; i < NPU_PROGRAM_OUTPUTS; ++i) {
    if (outputs[i] == NPU_ABSENT) {
      if (outs[i] != NPU_PROGRAM_NONE)
        return "an output that is not there has a register";
      continue;
    }
    if (outs[i] < NPU_PROGRAM_INPUTS || outs[i] >= NPU_PROGRAM_INPUTS + n_ops)
      return "an output is no register that an operation makes";
    if (npu_program_at(ops, outs[i] - NPU_PROGRAM_INPUTS).dtype != outputs[i])
      return "an output has another dtype than its register";
  }
  return NULL;
}

/* NULL, or what is wrong with the reductions of a program that is right
 * otherwise. rows: its code is NPU_PROGRAM_ROWS. */
static inline const char* npu_program_wrong_rows(
    int rows, uint32_t n_ops, const uint32_t* outs, const uint64_t* ops) {
  uint32_t i;
  int found = 0;
  for (i = 0; i < n_ops && !rows; ++i) {
    if (npu_program_reduces(ops, NPU_PROGRAM_INPUTS + i))
      return "a reduction is in a program whose code is not rows";
  }
  for (i = 0; i < NPU_PROGRAM_OUTPUTS; ++i)
    found |= npu_program_reduces(ops, outs[i]);
  return rows && !found ? "no output of a program with code rows is reduced"
                        : NULL;
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_PROGRAM_H */
