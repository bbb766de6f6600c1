# SPDX-License-Identifier: Apache-2.0
"""Attention, choice of experts, losses, quantised numbers."""

import torch

from torch_npu.onnx.bodies import Body, body_of
from torch_npu.onnx.bodies.places import ONNX_DTYPE
from torch_npu.ops._check import dtype_of

_FAR = 2147483647

# Attention works on (batch, heads, rows, columns). "{n}" is the tensor, "{heads}" its heads.
_TO_HEADS = {
    "BNSD": "{n}4 = Cast <to = 1> ({n})\n",
    "BSND": "{n}w = Cast <to = 1> ({n})\n{n}4 = Transpose <perm = [0, 2, 1, 3]> ({n}w)\n",
    "BSH": """
{n}w = Cast <to = 1> ({n})
{n}shape = Constant <value_ints = [0, 0, {heads}, -1]> ()
{n}split = Reshape ({n}w, {n}shape)
{n}4 = Transpose <perm = [0, 2, 1, 3]> ({n}split)
""",
    "SBH": """
{n}w = Cast <to = 1> ({n})
{n}shape = Constant <value_ints = [0, 0, {heads}, -1]> ()
{n}split = Reshape ({n}w, {n}shape)
{n}4 = Transpose <perm = [1, 2, 0, 3]> ({n}split)
""",
}
_FROM_HEADS = {
    "BNSD": "wide_out = Identity (out4)\n",
    "BSND": "wide_out = Transpose <perm = [0, 2, 1, 3]> (out4)\n",
    "BSH": """
turned = Transpose <perm = [0, 2, 1, 3]> (out4)
joined = Constant <value_ints = [0, 0, -1]> ()
wide_out = Reshape (turned, joined)
""",
    "SBH": """
turned = Transpose <perm = [2, 0, 1, 3]> (out4)
joined = Constant <value_ints = [0, 0, -1]> ()
wide_out = Reshape (turned, joined)
""",
}

_ATTEND = """
k_turned = Transpose <perm = [0, 1, 3, 2]> (key4)
products = MatMul (query4, k_turned)
factor = Constant <value_float: float = @{scale}> ()
scores = Mul (products, factor)
{masked}
last = Constant <value_ints = [-1]> ()
top = ReduceMax (kept, last)
moved = Sub (kept, top)
powers = Exp (moved)
total = ReduceSum (powers, last)
weights = Div (powers, total)
out4 = MatMul (weights, value4)
"""
_MASK = """
low = Constant <value = float {-3.4028234663852886e+38}> ()
dropped = Cast <to = 9> (atten_mask)
kept = Where (dropped, low, scores)
"""


def _attention(layout: str, heads: int, masked: bool, scale: str) -> str:
    text = "".join(
        _TO_HEADS[layout].replace("{n}", n).replace("{heads}", str(heads))
        for n in ("query", "key", "value")
    )
    mask = _MASK if masked else "kept = Identity (scores)"
    text += _ATTEND.replace("{masked}", mask).replace("{scale}", scale)
    return text + _FROM_HEADS[layout] + "output = CastLike (wide_out, query)\n"


def _suffix(layout: str, heads: int, masked: bool) -> str:
    split = f"{heads}Heads" if layout in ("BSH", "SBH") else ""
    return layout + split + ("Masked" if masked else "")


@body_of("npu_fusion_attention")
def fusion_attention(
    head_num=1, input_layout="BSH", atten_mask=None, keep_prob=1.0, pre_tockens=_FAR,
    next_tockens=_FAR, sparse_mode=0, softmax_layout="", kv_heads=None, **arguments,
):  # fmt: skip
    refused = ("pse", "padding_mask", "prefix", "actual_seq_qlen", "actual_seq_kvlen", "sink")
    if any(arguments.get(name) is not None for name in refused) or softmax_layout:
        return None
    # Modes 0 and 1 with wide bands are the mask as it is given; without a mask all are full.
    plain = sparse_mode == 1 or (sparse_mode == 0 and min(pre_tockens, next_tockens) >= _FAR)
    if keep_prob != 1 or input_layout not in _TO_HEADS or (atten_mask is not None and not plain):
        return None
    masked = atten_mask is not None
    text = _attention(input_layout, head_num, masked, "scale")
    text += """
eight = Constant <value_ints = [1, 1, 1, 8]> ()
softmax_max = Tile (top, eight)
softmax_sum = Tile (total, eight)
none = Constant <value_ints = [0]> ()
empty = ConstantOfShape (none)
softmax_out = CastLike (empty, query)
seed = Constant <value_int = 0> ()
offset = Constant <value_int = 0> ()
numels = Constant <value_int = 0> ()
"""
    inputs = "query, key, value" + (", atten_mask" if masked else "")
    outputs = "output, softmax_max, softmax_sum, softmax_out, seed, offset, numels"
    return Body(inputs, outputs, text, _suffix(input_layout, head_num, masked), "scale")


@body_of("npu_prompt_flash_attention")
def prompt_flash_attention(
    num_heads=1, input_layout="BSH", atten_mask=None, num_key_value_heads=0, sparse_mode=0,
    **arguments,
):  # fmt: skip
    tensors = ("padding_mask", "pse_shift", "quant_scale2", "actual_seq_lengths", "quant_offset2")
    if any(arguments.get(name) is not None for name in tensors):
        return None
    if num_key_value_heads not in (0, num_heads) or input_layout not in _TO_HEADS:
        return None
    if atten_mask is not None and sparse_mode != 1:
        return None
    masked = atten_mask is not None
    text = _attention(input_layout, num_heads, masked, "scale_value")
    inputs = "query, key, value" + (", atten_mask" if masked else "")
    return Body(inputs, "output", text, _suffix(input_layout, num_heads, masked), "scale_value")


@body_of("npu_moe_gating_top_k_softmax")
def moe_gating_top_k_softmax(finished=None, **arguments):
    if finished is not None:
        return None
    # Pair (row, choice) has the number choice * rows + row.
    text = """
wide = Cast <to = 1> (x)
shares = Softmax <axis = -1> (wide)
number = Constant <value_int: int = @k> ()
flat = Constant <value_ints = [-1]> ()
count = Reshape (number, flat)
wide_y, long = TopK <axis = -1> (shares, count)
y = CastLike (wide_y, x)
experts = Cast <to = 6> (long)
pairs = Size (long)
zero = Constant <value_int = 0> ()
one = Constant <value_int = 1> ()
numbers = Range (zero, pairs, one)
table_shape = Concat <axis = 0> (count, flat)
table = Reshape (numbers, table_shape)
turned = Transpose <perm = [1, 0]> (table)
sizes = Shape (long)
long_rows = Reshape (turned, sizes)
rows = Cast <to = 6> (long_rows)
"""
    return Body("x", "y, experts, rows", text, "", "k")


@body_of("npu_softmax_cross_entropy_with_logits")
def softmax_cross_entropy_with_logits(**arguments):
    text = """
wide = Cast <to = 1> (input)
wide_labels = Cast <to = 1> (labels)
logs = LogSoftmax <axis = -1> (wide)
parts = Mul (logs, wide_labels)
last = Constant <value_ints = [-1]> ()
sums = ReduceSum <keepdims = 0> (parts, last)
wide_out = Neg (sums)
output = CastLike (wide_out, input)
"""
    return Body("input, labels", "output", text)


_ROUNDED = """
rounded = Round (ready)
least = Constant <value = float {-128.0}> ()
most = Constant <value = float {127.0}> ()
cut = Clip (rounded, least, most)
output = Cast <to = 3> (cut)
"""


@body_of("npu_dynamic_quant")
def dynamic_quant(
    smooth_scales=None, group_index=None, dst_type=None, quant_mode="pertoken", **rest
):
    if group_index is not None or quant_mode != "pertoken":
        return None
    if dtype_of(dst_type, torch.int8, "npu_dynamic_quant") != torch.int8:
        return None
    text = "wide0 = Cast <to = 1> (input)\n"
    if smooth_scales is None:
        text += "wide = Identity (wide0)\n"
    else:
        text += "smooth = Cast <to = 1> (smooth_scales)\nwide = Mul (wide0, smooth)\n"
    text += """
sizes = Abs (wide)
last = Constant <value_ints = [-1]> ()
top = ReduceMax (sizes, last)
steps = Constant <value = float {127.0}> ()
scale_column = Div (top, steps)
none = Constant <value = float {0.0}> ()
unit = Constant <value = float {1.0}> ()
empty = Equal (scale_column, none)
safe = Where (empty, unit, scale_column)
ready = Div (wide, safe)
scale = Squeeze (scale_column, last)
"""
    inputs = "input" + ("" if smooth_scales is None else ", smooth_scales")
    suffix = "" if smooth_scales is None else "Smooth"
    return Body(inputs, "output, scale", text + _ROUNDED, suffix)


@body_of("npu_anti_quant")
def anti_quant(offset=None, dst_dtype=None, src_dtype=None, **arguments):
    kind = dtype_of(dst_dtype, torch.float16, "npu_anti_quant")
    if src_dtype not in (None, 1, 258) or kind not in ONNX_DTYPE:
        return None
    text = "wide = Cast <to = 1> (x)\nfactor = Cast <to = 1> (scale)\n"
    if offset is None:
        text += "moved = Identity (wide)\n"
    else:
        text += "shift = Cast <to = 1> (offset)\nmoved = Add (wide, shift)\n"
    number = ONNX_DTYPE[kind]
    text += f"wide_out = Mul (moved, factor)\noutput = Cast <to = {number}> (wide_out)"
    inputs = "x, scale" + ("" if offset is None else ", offset")
    return Body(inputs, "output", text, f"To{number}" + ("" if offset is None else "Offset"))
