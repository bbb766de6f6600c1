# SPDX-License-Identifier: Apache-2.0
"""Shapes, casts, order, and products of matrices."""

import torch

from torch_npu.onnx.bodies import Body, body_of
from torch_npu.ops._check import dtype_of

# ONNX's numbers of dtypes.
ONNX_DTYPE = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6,
    torch.int64: 7, torch.bool: 9, torch.float16: 10, torch.float64: 11, torch.bfloat16: 16,
}  # fmt: skip


@body_of("npu_transpose")
def transpose(**arguments):
    return Body("input", "output", "output = Transpose <perm: ints = @perm> (input)", "", "perm")


@body_of("npu_confusion_transpose")
def confusion_transpose(transpose_first=False, **arguments):
    shape = "sizes = Constant <value_ints: ints = @shape> ()\n"
    if transpose_first:
        text = "turned = Transpose <perm: ints = @perm> (input)\noutput = Reshape (turned, sizes)"
    else:
        text = "shaped = Reshape (input, sizes)\noutput = Transpose <perm: ints = @perm> (shaped)"
    return Body("input", "output", shape + text, "" if transpose_first else "Last", "perm, shape")


@body_of("npu_reshape")
def reshape(**arguments):
    text = "sizes = Constant <value_ints: ints = @shape> ()\noutput = Reshape (input, sizes)"
    return Body("input", "output", text, "", "shape")


@body_of("npu_broadcast")
def broadcast(**arguments):
    text = "sizes = Constant <value_ints: ints = @size> ()\noutput = Expand (input, sizes)"
    return Body("input", "output", text, "", "size")


@body_of("npu_slice")
def slice_(size=(), **arguments):
    if any(n < 0 for n in size):
        return None
    text = """
start = Constant <value_ints: ints = @offsets> ()
count = Constant <value_ints: ints = @size> ()
stop = Add (start, count)
output = Slice (input, start, stop)
"""
    return Body("input", "output", text, "", "offsets, size")


@body_of("npu_pad")
def pad(**arguments):
    # Pairs of (before, after) become all befores, then all afters.
    text = """
pairs = Constant <value_ints: ints = @paddings> ()
rows = Constant <value_ints = [-1, 2]> ()
table = Reshape (pairs, rows)
columns = Transpose <perm = [1, 0]> (table)
flat = Constant <value_ints = [-1]> ()
pads = Reshape (columns, flat)
output = Pad (input, pads)
"""
    return Body("input", "output", text, "", "paddings")


@body_of("npu_one_hot")
def one_hot(**arguments):
    text = """
depth = Constant <value_int: int = @depth> ()
zero = Constant <value_int = 0> ()
one = Constant <value_int = 1> ()
classes = Range (zero, depth, one)
last = Constant <value_ints = [-1]> ()
long = Cast <to = 7> (input)
column = Unsqueeze (long, last)
hit = Equal (column, classes)
on = Constant <value_float: float = @on_value> ()
off = Constant <value_float: float = @off_value> ()
output = Where (hit, on, off)
"""
    return Body("input", "output", text, "", "depth, on_value, off_value")


@body_of("npu_sort_v2")
def sort_v2(dim=-1, descending=False, **arguments):
    text = f"""
sizes = Shape (input)
axis = Constant <value_ints = [{dim}]> ()
count = Gather (sizes, axis)
output, places = TopK <axis = {dim}, largest = {int(bool(descending))}> (input, count)
"""
    suffix = f"Dim{dim}".replace("-", "Minus") + ("Descending" if descending else "")
    return Body("input", "output", text, suffix)


@body_of("npu_max.dim", "npu_min.dim")
def largest(operator, **arguments):
    name = operator[4:7]
    text = f"""
values = Reduce{name.title()} <keepdims: int = @keepdim> (input, axis)
long = Arg{name.title()} <axis: int = @dim, keepdims: int = @keepdim> (input)
indices = Cast <to = 6> (long)
"""
    axis = "number = Constant <value_int: int = @dim> ()\n"
    axis += "flat = Constant <value_ints = [-1]> ()\naxis = Reshape (number, flat)\n"
    return Body("input", "values, indices", axis + text, "", "dim, keepdim")


@body_of("npu_dtype_cast", "_npu_dtype_cast")
def dtype_cast(dtype=None, input_dtype=None, **arguments):
    kind = dtype if isinstance(dtype, torch.dtype) else dtype_of(dtype, None, "npu_dtype_cast")
    if input_dtype is not None or kind not in ONNX_DTYPE:
        return None
    number = ONNX_DTYPE[kind]
    return Body("input", "output", f"output = Cast <to = {number}> (input)", f"To{number}")


@body_of("reverse")
def reverse(axis=(), **arguments):
    text = """
axes = Constant <value_ints: ints = @axis> ()
count = Shape (axes)
start = ConstantOfShape <value = int64[1] {-1}> (count)
stop = ConstantOfShape <value = int64[1] {-9223372036854775807}> (count)
output = Slice (input, start, stop, axes, start)
"""
    return Body("input", "output", text, "", "axis")


@body_of("npu_linear")
def linear(bias=None, **arguments):
    text = "turned = Transpose <perm = [1, 0]> (weight)\n"
    if bias is None:
        return Body("input, weight", "output", text + "output = MatMul (input, turned)", "NoBias")
    text += "product = MatMul (input, turned)\noutput = Add (product, bias)"
    return Body("input, weight, bias", "output", text)


@body_of("npu_bmmV2")
def bmm_v2(output_sizes=(), **arguments):
    if not output_sizes:
        return Body("input, mat2", "output", "output = MatMul (input, mat2)")
    text = (
        "product = MatMul (input, mat2)\nsizes = Constant <value_ints: ints = @output_sizes> ()\n"
    )
    text += "output = Reshape (product, sizes)"
    return Body("input, mat2", "output", text, "Shaped", "output_sizes")


@body_of("npu_transpose_batchmatmul")
def transpose_batchmatmul(bias=None, scale=None, perm_x1=None, perm_x2=None, perm_y=None, **rest):
    if bias is not None or scale is not None:
        return None
    perms = [
        list(p or d) for p, d in ((perm_x1, (0, 1, 2)), (perm_x2, (0, 1, 2)), (perm_y, (1, 0, 2)))
    ]
    text = f"""
left = Transpose <perm = {perms[0]}> (input)
right = Transpose <perm = {perms[1]}> (weight)
product = MatMul (left, right)
output = Transpose <perm = {perms[2]}> (product)
"""
    suffix = "Perm" + "To".join("".join(map(str, p)) for p in perms)
    return Body("input, weight", "output", text, suffix)


@body_of("npu_scatter_nd_update")
def scatter_nd_update(**arguments):
    text = "long = Cast <to = 7> (indices)\noutput = ScatterND (input, long, updates)"
    return Body("input, indices, updates", "output", text)
