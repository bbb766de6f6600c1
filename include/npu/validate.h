/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a call frame against the kinds: for debug builds, drivers under
 * development and the conformance kit. Header-only; reads no tensor data.
 */
#ifndef NPU_VALIDATE_H
#define NPU_VALIDATE_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "npu/kinds.h"
#include "npu/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of one element; 0 for NPU_ABSENT and unknown dtypes. */
static inline uint32_t npu_dtype_bytes(npu_dtype dtype) {
  static const uint8_t bytes[NPU_DTYPE_COUNT] = {
      0, 1, 1, 1, 2, 4, 8, 2, 4, 8, 2, 2, 4, 8, 4, 8, 16, 1, 1, 1, 1, 1, 1};
  return dtype < NPU_DTYPE_COUNT ? bytes[dtype] : 0;
}

/* "f32"; "?" for an unknown dtype. */
static inline const char* npu_dtype_name(npu_dtype dtype) {
  static const char* const names[NPU_DTYPE_COUNT] = {
      "absent",      "bool",       "u8",          "i8",      "i16",
      "i32",         "i64",        "u16",         "u32",     "u64",
      "f16",         "bf16",       "f32",         "f64",     "c32",
      "c64",         "c128",       "f8_e4m3fn",   "f8_e5m2", "f8_e4m3fnuz",
      "f8_e5m2fnuz", "f8_e8m0fnu", "f4_e2m1fn_x2"};
  return dtype < NPU_DTYPE_COUNT ? names[dtype] : "?";
}

/* Whether element i of one tensor is element i of the other, for all i: the
 * promise of NPU_TENSOR_ALIAS. An equal address is not enough: x[0], expanded,
 * begins where x does. The sizes are those of one call. */
static inline int npu_same_place(const npu_tensor* a, const npu_tensor* b) {
  uint32_t d;
  if (a->data != b->data || a->ndim != b->ndim || a->numel != b->numel ||
      npu_dtype_bytes(a->dtype) != npu_dtype_bytes(b->dtype)) {
    return 0;
  }
  for (d = 0; d < a->ndim; ++d) {
    if (a->sizes[d] != b->sizes[d] ||
        (a->sizes[d] != 1 && a->strides[d] != b->strides[d])) {
      return 0;
    }
  }
  return 1;
}

/* Whether the byte ranges of two tensors meet: from the lowest byte that each
 * reaches to its highest. */
static inline int npu_ranges_meet(const npu_tensor* a, const npu_tensor* b) {
  const npu_tensor* const both[2] = {a, b};
  const char* low[2];
  const char* high[2];
  uint32_t d;
  int i;
  if (a->numel == 0 || b->numel == 0)
    return 0;
  for (i = 0; i < 2; ++i) {
    const npu_tensor* const t = both[i];
    const int64_t bytes = (int64_t)npu_dtype_bytes(t->dtype);
    low[i] = (const char*)t->data;
    high[i] = low[i] + bytes;
    for (d = 0; d < t->ndim; ++d) {
      const int64_t reach = (t->sizes[d] - 1) * t->strides[d] * bytes;
      if (reach < 0) {
        low[i] += reach;
      } else {
        high[i] += reach;
      }
    }
  }
  return low[0] < high[1] && low[1] < high[0];
}

/* Where the text goes, and whose call it is. */
typedef struct npu_validation {
  const npu_call* call;
  char* text;
  size_t n;
} npu_validation;

static inline npu_status npu_validation_fails(
    const npu_validation* v, const char* format, ...) {
  va_list args;
  int used;
  if (v->text == NULL || v->n == 0)
    return NPU_E_INVALID;
  used = snprintf(
      v->text,
      v->n,
      "%s (%s): ",
      npu_kind_name(v->call->slot),
      v->call->label != NULL ? v->call->label : "no label");
  if (used < 0 || (size_t)used >= v->n)
    return NPU_E_INVALID;
  va_start(args, format);
  (void)vsnprintf(v->text + used, v->n - (size_t)used, format, args);
  va_end(args);
  return NPU_E_INVALID;
}

/* Lowest and highest element offset a view reaches, against its storage. */
static inline npu_status npu_validate_extent(
    const npu_validation* v, const npu_tensor* t, const char* name) {
  const int64_t bytes = (int64_t)npu_dtype_bytes(t->dtype);
  int64_t numel = 1, low = 0, high = 0, start;
  uint32_t d;
  for (d = 0; d < t->ndim; ++d) {
    if (t->sizes[d] < 0) {
      return npu_validation_fails(
          v,
          "operand '%s' has size %lld in dimension %u",
          name,
          (long long)t->sizes[d],
          (unsigned)d);
    }
    numel *= t->sizes[d];
    if (t->sizes[d] == 0)
      continue;
    if (t->strides[d] < 0) {
      low += (t->sizes[d] - 1) * t->strides[d];
    } else {
      high += (t->sizes[d] - 1) * t->strides[d];
    }
  }
  if (numel != t->numel) {
    return npu_validation_fails(
        v,
        "operand '%s' says numel %lld, its sizes give %lld",
        name,
        (long long)t->numel,
        (long long)numel);
  }
  if (numel == 0 || t->storage == NULL)
    return NPU_OK;
  if (t->data == NULL) {
    return npu_validation_fails(v, "operand '%s' has no data", name);
  }
  start = (int64_t)((const char*)t->data - (const char*)t->storage);
  if (start + low * bytes < 0 ||
      start + (high + 1) * bytes > (int64_t)t->storage_bytes) {
    return npu_validation_fails(
        v,
        "operand '%s' reaches bytes %lld to %lld of a storage of %llu",
        name,
        (long long)(start + low * bytes),
        (long long)(start + (high + 1) * bytes),
        (unsigned long long)t->storage_bytes);
  }
  return NPU_OK;
}

static inline npu_status npu_validate_tensor(
    const npu_validation* v,
    const npu_tensor* t,
    const char* name,
    uint64_t dtypes) {
  if (t->dtype >= NPU_DTYPE_COUNT) {
    return npu_validation_fails(
        v, "operand '%s' has unknown dtype %u", name, (unsigned)t->dtype);
  }
  if (dtypes != 0 && (dtypes & NPU_DTYPE_BIT(t->dtype)) == 0) {
    return npu_validation_fails(
        v,
        "operand '%s' is %s, which this kind does not allow there",
        name,
        npu_dtype_name(t->dtype));
  }
  if (t->ndim > NPU_MAX_DIMS) {
    return npu_validation_fails(
        v,
        "operand '%s' has %u dimensions, at most %d are possible",
        name,
        (unsigned)t->ndim,
        NPU_MAX_DIMS);
  }
  if (t->ndim > 0 && (t->sizes == NULL || t->strides == NULL)) {
    return npu_validation_fails(
        v, "operand '%s' has no sizes or strides", name);
  }
  if ((t->flags & NPU_TENSOR_HOST_SCALAR) != 0 && t->numel != 1) {
    return npu_validation_fails(
        v,
        "operand '%s' is flagged as a host scalar but has %lld elements",
        name,
        (long long)t->numel);
  }
  if ((t->flags & NPU_TENSOR_ALIAS) != 0 && t->alias_of >= v->call->n_out) {
    return npu_validation_fails(
        v,
        "operand '%s' is flagged as alias of output %u; there are %u",
        name,
        (unsigned)t->alias_of,
        (unsigned)v->call->n_out);
  }
  return npu_validate_extent(v, t, name);
}

/* May this operand be absent, and must it be, in this call? */
static inline npu_status npu_validate_presence(
    const npu_validation* v, const npu_operand_info* info, int present) {
  const int counting = (v->call->flags & NPU_CALL_COUNT) != 0;
  if (info->mode == NPU_MODE_COUNT && present != counting) {
    return npu_validation_fails(
        v,
        "output '%s' belongs to the count call%s",
        info->name,
        present ? " only" : ", which needs it");
  }
  if (info->mode == NPU_MODE_COUNT)
    return NPU_OK;
  if (info->mode == NPU_MODE_FILL && counting) {
    if (!present)
      return NPU_OK;
    return npu_validation_fails(
        v, "output '%s' belongs to the fill call, not to count", info->name);
  }
  if (!present && !info->optional) {
    return npu_validation_fails(v, "operand '%s' is missing", info->name);
  }
  return NPU_OK;
}

static inline npu_status npu_validate_operands(
    const npu_validation* v, const npu_kind_info* kind) {
  const npu_call* call = v->call;
  uint32_t i;
  npu_status status;
  if (call->n_out != kind->n_out || call->n_in > kind->n_in) {
    return npu_validation_fails(
        v,
        "%u outputs and %u inputs given, the kind has %u and %u",
        (unsigned)call->n_out,
        (unsigned)call->n_in,
        (unsigned)kind->n_out,
        (unsigned)kind->n_in);
  }
  if (call->n_out + call->n_in > 0 && call->tensors == NULL) {
    return npu_validation_fails(v, "operands are NULL");
  }
  for (i = 0; i < kind->n_out + kind->n_in; ++i) {
    const npu_operand_info* info = &kind->operands[i];
    const npu_tensor* t = i < kind->n_out ? npu_call_out(call, i)
                                          : npu_call_in(call, i - kind->n_out);
    status = npu_validate_presence(v, info, t != NULL);
    if (status != NPU_OK)
      return status;
    if (t == NULL)
      continue;
    status = npu_validate_tensor(v, t, info->name, info->dtypes);
    if (status != NPU_OK)
      return status;
    if (info->mode != NPU_MODE_IN && t->numel == 0) {
      return npu_validation_fails(v, "output '%s' is empty", info->name);
    }
    if (info->mode != NPU_MODE_IN && (t->flags & NPU_TENSOR_HOST_SCALAR) != 0) {
      return npu_validation_fails(
          v, "output '%s' is a host scalar", info->name);
    }
  }
  return NPU_OK;
}

static inline npu_status npu_validate_lists(
    const npu_validation* v, const npu_kind_info* kind) {
  const npu_call* call = v->call;
  const npu_operand_info* infos = kind->operands + kind->n_out + kind->n_in;
  uint32_t i, j;
  npu_status status;
  if (call->n_lists > kind->n_lists) {
    return npu_validation_fails(
        v,
        "%u lists given, the kind has %u",
        (unsigned)call->n_lists,
        (unsigned)kind->n_lists);
  }
  if (call->n_lists > 0 && call->lists == NULL) {
    return npu_validation_fails(v, "lists are NULL");
  }
  for (i = 0; i < kind->n_lists; ++i) {
    const npu_list* list = npu_call_list(call, i);
    status = npu_validate_presence(v, &infos[i], list != NULL);
    if (status != NPU_OK)
      return status;
    if (list == NULL)
      continue;
    if (list->tensors == NULL && (list->data == NULL || list->numel == NULL)) {
      return npu_validation_fails(
          v, "list '%s' has no data or numel", infos[i].name);
    }
    if (list->dtype == NPU_ABSENT || list->dtype >= NPU_DTYPE_COUNT) {
      return npu_validation_fails(
          v,
          "list '%s' has unknown dtype %u",
          infos[i].name,
          (unsigned)list->dtype);
    }
    if (infos[i].dtypes != 0 &&
        (infos[i].dtypes & NPU_DTYPE_BIT(list->dtype)) == 0) {
      return npu_validation_fails(
          v,
          "list '%s' is %s, which this kind does not allow there",
          infos[i].name,
          npu_dtype_name(list->dtype));
    }
    for (j = 0; list->tensors != NULL && j < list->n; ++j) {
      if (list->tensors[j].dtype == NPU_ABSENT)
        continue;
      status = npu_validate_tensor(v, &list->tensors[j], infos[i].name, 0);
      if (status != NPU_OK)
        return status;
    }
  }
  return NPU_OK;
}

static inline npu_status npu_validate_attrs(
    const npu_validation* v, const npu_kind_info* kind) {
  const npu_call* call = v->call;
  uint32_t i, given = 0;
  if (kind->attr_bytes == 0)
    return NPU_OK;
  if (call->attrs != NULL && call->attr_bytes >= sizeof(given)) {
    memcpy(&given, call->attrs, sizeof(given));
  }
  if (given == 0 || given != call->attr_bytes) {
    return npu_validation_fails(
        v,
        "attributes say size %u, the call says %u; the kind has %u",
        (unsigned)given,
        (unsigned)call->attr_bytes,
        (unsigned)kind->attr_bytes);
  }
  for (i = 0; i < kind->n_attrs; ++i) {
    const npu_attr_info* attr = &kind->attrs[i];
    uint32_t value;
    if (attr->limit == 0 || attr->offset + sizeof(value) > given)
      continue;
    memcpy(&value, (const char*)call->attrs + attr->offset, sizeof(value));
    if (value >= attr->limit) {
      return npu_validation_fails(
          v,
          "attribute '%s' is %u, allowed are 0 to %u",
          attr->name,
          (unsigned)value,
          (unsigned)attr->limit - 1);
    }
  }
  return NPU_OK;
}

/* The operand of a program whose sizes are the program's: the first output, and
 * with code rows the first input that is no host scalar. NULL: there is none.
 */
static inline const npu_tensor* npu_program_shape(const npu_call* call) {
  uint32_t i;
  if (call->code != NPU_PROGRAM_ROWS)
    return npu_call_out(call, 0);
  for (i = 0; i < call->n_in; ++i) {
    const npu_tensor* t = npu_call_in(call, i);
    if (t != NULL && (t->flags & NPU_TENSOR_HOST_SCALAR) == 0)
      return t;
  }
  return NULL;
}

/* How many of the last dimensions a program with code rows reduces, as its
 * outputs say: the most that an output of a reduction has of size 1 at the end
 * and the program has not. */
static inline uint32_t npu_program_reduced_dims(
    const npu_call* call, const uint32_t* outs, const uint64_t* ops) {
  const npu_tensor* shape = npu_program_shape(call);
  uint32_t i, d, most = 0;
  for (i = 0; i < NPU_PROGRAM_OUTPUTS && shape != NULL; ++i) {
    const npu_tensor* t = npu_call_out(call, i);
    if (t == NULL || t->ndim != shape->ndim ||
        !npu_program_reduces(ops, outs[i]))
      continue;
    for (d = 0; d < shape->ndim; ++d) {
      if (t->sizes[d] != shape->sizes[d]) {
        most = shape->ndim - d > most ? shape->ndim - d : most;
        break;
      }
    }
  }
  return most;
}

/* Every operand of a program has the program's sizes, but for outputs of
 * reductions; host scalars aside. */
static inline npu_status npu_validate_equal_sizes(
    const npu_validation* v, const uint32_t* outs, const uint64_t* ops) {
  const npu_call* call = v->call;
  const npu_tensor* shape = npu_program_shape(call);
  const uint32_t reduced = npu_program_reduced_dims(call, outs, ops);
  uint32_t i, d;
  if (shape == NULL)
    return npu_validation_fails(v, "no input gives the program its sizes");
  for (i = 0; i < call->n_out + call->n_in; ++i) {
    const npu_tensor* t = &call->tensors[i];
    const int is_row = i < call->n_out && i < NPU_PROGRAM_OUTPUTS &&
                       npu_program_reduces(ops, outs[i]);
    if (t->dtype == NPU_ABSENT || (t->flags & NPU_TENSOR_HOST_SCALAR) != 0)
      continue;
    for (d = 0; t->ndim == shape->ndim && d < t->ndim; ++d) {
      const int is_one = is_row && d + reduced >= t->ndim;
      if (t->sizes[d] != (is_one ? 1 : shape->sizes[d]))
        break;
    }
    if (t->ndim != shape->ndim || d < t->ndim) {
      return npu_validation_fails(
          v,
          is_row ? "output %u has other sizes than the program's with 1 in the "
                   "dimensions that are reduced"
                 : "operand %u has other sizes than the program",
          (unsigned)i);
    }
  }
  return NPU_OK;
}

/* The same for lists: as many entries, of as many elements or of one. */
static inline npu_status npu_validate_equal_lists(const npu_validation* v) {
  const npu_list* out = npu_call_list(v->call, 0);
  uint32_t i, j;
  for (i = 0; i < v->call->n_lists; ++i) {
    const npu_list* list = npu_call_list(v->call, i);
    if (list == NULL)
      continue;
    if (list->n != out->n || list->tensors != NULL || out->tensors != NULL) {
      return npu_validation_fails(
          v, "list %u does not fit the first, or is not dense", (unsigned)i);
    }
    for (j = 0; j < list->n; ++j) {
      if (list->numel[j] != out->numel[j] &&
          (list->numel[j] != 1 || i < NPU_PROGRAM_OUTPUTS)) {
        return npu_validation_fails(
            v,
            "entry %u of list %u has %lld elements, the output's has %lld",
            (unsigned)j,
            (unsigned)i,
            (long long)list->numel[j],
            (long long)out->numel[j]);
      }
    }
  }
  return NPU_OK;
}

/* Kinds program and multi_program; operands and attributes are there. */
static inline npu_status npu_validate_program(const npu_validation* v) {
  const npu_call* call = v->call;
  const int lists = call->slot == NPU_KIND_MULTI_PROGRAM;
  npu_dtype outputs[NPU_PROGRAM_OUTPUTS] = {0};
  npu_dtype inputs[NPU_PROGRAM_INPUTS] = {0};
  npu_program_attrs attrs;
  const char* wrong;
  uint32_t i, where;
  for (i = 0; i < NPU_PROGRAM_OUTPUTS + NPU_PROGRAM_INPUTS; ++i) {
    const uint32_t in = i - NPU_PROGRAM_OUTPUTS;
    const npu_list* list = lists ? npu_call_list(call, i) : NULL;
    const npu_tensor* t = lists                     ? NULL
                          : i < NPU_PROGRAM_OUTPUTS ? npu_call_out(call, i)
                                                    : npu_call_in(call, in);
    const npu_dtype dtype = list != NULL ? list->dtype
                            : t != NULL  ? t->dtype
                                         : (npu_dtype)NPU_ABSENT;
    *(i < NPU_PROGRAM_OUTPUTS ? &outputs[i] : &inputs[in]) = dtype;
  }
  npu_call_attrs(call, &attrs, sizeof(attrs));
  wrong = npu_program_wrong(
      attrs.n_ops, attrs.outs, attrs.ops, outputs, inputs, &where);
  if (wrong != NULL && where < attrs.n_ops)
    return npu_validation_fails(v, "operation %u: %s", (unsigned)where, wrong);
  if (wrong == NULL) {
    wrong = npu_program_wrong_rows(
        !lists && call->code == NPU_PROGRAM_ROWS,
        attrs.n_ops,
        attrs.outs,
        attrs.ops);
  }
  if (wrong != NULL)
    return npu_validation_fails(v, "%s", wrong);
  return lists ? npu_validate_equal_lists(v)
               : npu_validate_equal_sizes(v, attrs.outs, attrs.ops);
}

/* NPU_OK, or NPU_E_INVALID with one line in `text` (n bytes, may be NULL) that
 * says what is wrong. A vendor's own slots are checked for shape only. */
static inline npu_status npu_call_validate(
    const npu_call* call, char* text, size_t n) {
  const npu_kind_info* kind;
  npu_validation v;
  npu_status status;
  v.call = call;
  v.text = text;
  v.n = n;
  if (text != NULL && n > 0)
    text[0] = '\0';
  if (call->size < NPU_CALL_BYTES_1_0) {
    return npu_validation_fails(
        &v,
        "frame size is %u, at least %u is needed",
        (unsigned)call->size,
        (unsigned)NPU_CALL_BYTES_1_0);
  }
  if (call->slot >= NPU_FIRST_VENDOR_SLOT)
    return NPU_OK;
  kind = npu_kind_of(call->slot);
  if (kind == NULL) {
    return npu_validation_fails(&v, "slot %u is unknown", (unsigned)call->slot);
  }
  if (call->code >= kind->n_codes) {
    return npu_validation_fails(
        &v,
        "code %u is unknown, the kind has %u",
        (unsigned)call->code,
        (unsigned)kind->n_codes);
  }
  if ((call->flags & NPU_CALL_COUNT) != 0 &&
      (kind->flags & NPU_KIND_TWO_STEP) == 0) {
    return npu_validation_fails(
        &v, "flagged as count, but it is not a count kind");
  }
  if (call->math_mode > NPU_MATH_HALF_PARTIALS ||
      call->compute_dtype >= NPU_DTYPE_COUNT) {
    return npu_validation_fails(
        &v,
        "math mode %u or compute dtype %u is unknown",
        (unsigned)call->math_mode,
        (unsigned)call->compute_dtype);
  }
  if ((call->rng.offset & 3u) != 0) {
    return npu_validation_fails(
        &v,
        "random offset %llu is not a multiple of 4",
        (unsigned long long)call->rng.offset);
  }
  status = npu_validate_operands(&v, kind);
  if (status == NPU_OK)
    status = npu_validate_lists(&v, kind);
  if (status == NPU_OK)
    status = npu_validate_attrs(&v, kind);
  if (status == NPU_OK &&
      (call->slot == NPU_KIND_PROGRAM || call->slot == NPU_KIND_MULTI_PROGRAM))
    status = npu_validate_program(&v);
  return status;
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_VALIDATE_H */
