# SPDX-License-Identifier: Apache-2.0
"""Norms."""

from torch_npu.onnx.bodies import Body, body_of

# The dimensions gamma has, counted from the end.
_AXES = """
count_shape = Shape (gamma)
count = Size (count_shape)
first = Neg (count)
zero = Constant <value_int = 0> ()
one = Constant <value_int = 1> ()
axes = Range (first, zero, one)
g = Cast <to = 1> (gamma)
eps = Constant <value_float: float = @epsilon> ()
"""

# From `x` in float32: `wide_y`, and `rstd`.
_RMS = (
    _AXES
    + """
square = Mul (x, x)
mean_square = ReduceMean (square, axes)
shifted = Add (mean_square, eps)
root = Sqrt (shifted)
rstd = Reciprocal (root)
normed = Mul (x, rstd)
wide_y = Mul (normed, factor)
"""
)

_SUM = """
wide1 = Cast <to = 1> (x1)
wide2 = Cast <to = 1> (x2)
wide_sum = Add (wide1, wide2)
"""

# From `x` in float32: `wide_y`, `mean`, `rstd`.
_LAYER = (
    _AXES
    + """
b = Cast <to = 1> (beta)
mean = ReduceMean (x, axes)
centred = Sub (x, mean)
square = Mul (centred, centred)
variance = ReduceMean (square, axes)
shifted = Add (variance, eps)
root = Sqrt (shifted)
rstd = Reciprocal (root)
normed = Mul (centred, rstd)
scaled = Mul (normed, g)
wide_y = Add (scaled, b)
"""
)


@body_of("npu_rms_norm", "npu_gemma_rms_norm")
def rms_norm(operator, **arguments):
    plain = operator == "npu_rms_norm"
    factor = (
        "factor = Identity (g)" if plain else "unit = CastLike (one, g)\nfactor = Add (g, unit)"
    )
    text = "x = Cast <to = 1> (input)" + _RMS.replace("square = Mul", f"{factor}\nsquare = Mul", 1)
    return Body("input, gamma", "y, rstd", text + "y = CastLike (wide_y, input)", "", "epsilon")


def _add_rms():
    text = _SUM + "total = CastLike (wide_sum, x1)\nx = Cast <to = 1> (total)" + _RMS
    return text.replace("square = Mul", "factor = Identity (g)\nsquare = Mul", 1)


@body_of("npu_add_rms_norm")
def add_rms_norm(**arguments):
    text = _add_rms() + "y = CastLike (wide_y, x1)"
    return Body("x1, x2, gamma", "y, rstd, total", text, "", "epsilon")


@body_of("npu_add_rms_norm_cast")
def add_rms_norm_cast(**arguments):
    text = _add_rms() + "y = CastLike (wide_y, x1)"
    return Body("x1, x2, gamma", "wide_y, y, rstd, total", text, "", "epsilon")


@body_of("npu_add_layer_norm")
def add_layer_norm(**arguments):
    text = _SUM + "x = Identity (wide_sum)" + _LAYER
    text += "y = CastLike (wide_y, x1)\ntotal = CastLike (wide_sum, x1)"
    return Body("x1, x2, gamma, beta", "y, mean, rstd, total", text, "", "epsilon")


@body_of("npu_deep_norm")
def deep_norm(**arguments):
    text = f"""
wide_x = Cast <to = 1> (x_in)
wide_gx = Cast <to = 1> (gx)
weight = Constant <value_float: float = @alpha> ()
part = Mul (wide_x, weight)
x = Add (part, wide_gx)
{_LAYER}
y = CastLike (wide_y, x_in)
"""
    return Body("x_in, gx, beta, gamma", "mean, rstd, y", text, "", "alpha, epsilon")


@body_of("npu_layer_norm_eval")
def layer_norm_eval(weight=None, bias=None, normalized_shape=(), **arguments):
    if weight is None:
        return None
    inputs = "input, weight" + (", bias" if bias is not None else "")
    axis = -len(normalized_shape)
    text = f"y = LayerNormalization <axis = {axis}, epsilon: float = @eps> ({inputs})"
    suffix = f"{len(normalized_shape)}D" + ("" if bias is not None else "NoBias")
    return Body(inputs, "y", text, suffix, "eps")


@body_of("npu_group_norm_silu", "npu_group_norm_swish")
def group_norm_silu(operator, weight=None, bias=None, **arguments):
    if weight is None or bias is None:
        return None
    silu = operator == "npu_group_norm_silu"
    groups, eps = ("group", "eps") if silu else ("num_groups", "eps")
    text = f"""
groups = Constant <value_int: int = @{groups}> ()
minus = Constant <value_ints = [-1]> ()
zero = Constant <value_ints = [0]> ()
one_axis = Constant <value_ints = [1]> ()
many = Reshape (groups, minus)
sizes = Shape (input)
batch = Gather (sizes, zero)
in_groups = Concat <axis = 0> (batch, many, minus)
x = Cast <to = 1> (input)
grouped = Reshape (x, in_groups)
two_axis = Constant <value_ints = [2]> ()
mean3 = ReduceMean (grouped, two_axis)
centred = Sub (grouped, mean3)
square = Mul (centred, centred)
variance = ReduceMean (square, two_axis)
eps = Constant <value_float: float = @{eps}> ()
shifted = Add (variance, eps)
root = Sqrt (shifted)
rstd3 = Reciprocal (root)
normed3 = Mul (centred, rstd3)
normed = Reshape (normed3, sizes)
rank = Size (sizes)
two = Constant <value_int = 2> ()
rest = Sub (rank, two)
rest_shape = Reshape (rest, minus)
ones = ConstantOfShape <value = int64[1] {{1}}> (rest_shape)
per_channel = Concat <axis = 0> (one_axis, minus, ones)
w = Cast <to = 1> (weight)
b = Cast <to = 1> (bias)
w_shaped = Reshape (w, per_channel)
b_shaped = Reshape (b, per_channel)
scaled = Mul (normed, w_shaped)
moved = Add (scaled, b_shaped)
"""
    if silu:
        text += "gate = Sigmoid (moved)\n"
    else:
        text += """
slope = Constant <value_float: float = @swish_scale> ()
sloped = Mul (moved, slope)
gate = Sigmoid (sloped)
"""
    text += "wide_y = Mul (moved, gate)\ny = CastLike (wide_y, input)\n"
    like = "CastLike ({0}2, input)" if silu else "Identity ({0}2)"
    for name in ("mean", "rstd"):
        text += f"{name}2 = Squeeze ({name}3, two_axis)\n{name} = {like.format(name)}\n"
    attributes = "group, eps" if silu else "num_groups, eps, swish_scale"
    return Body("input, weight, bias", "y, mean, rstd", text, "", attributes)
