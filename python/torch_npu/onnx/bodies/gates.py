# SPDX-License-Identifier: Apache-2.0
"""Activations, gated units, masked softmax, rotary embeddings."""

import math

from torch_npu.onnx.bodies import Body, body_of


def _number(name: str, value: float) -> str:
    return f"{name} = Constant <value = float {{{value!r}}}> ()\n"


def _halves(axis: str = "axis: int = @dim") -> str:
    return f"""
wide = Cast <to = 1> (input)
a, b = Split <{axis}, num_outputs = 2> (wide)
"""


def _gelu(source: str, result: str, tanh: bool) -> str:
    """Statements for gelu of a float32 value; opset 18 has no Gelu."""
    text = _number("half", 0.5) + _number("unit", 1.0)
    if tanh:
        text += _number("cubic", 0.044715) + _number("slope", math.sqrt(2 / math.pi))
        text += f"""
g_square = Mul ({source}, {source})
g_cube = Mul (g_square, {source})
g_bent = Mul (g_cube, cubic)
g_sum = Add ({source}, g_bent)
g_arg = Mul (g_sum, slope)
g_bound = Tanh (g_arg)
"""
    else:
        text += _number("slope", math.sqrt(0.5))
        text += f"g_arg = Mul ({source}, slope)\ng_bound = Erf (g_arg)\n"
    return (
        text
        + f"""
g_level = Add (g_bound, unit)
g_half = Mul ({source}, half)
{result} = Mul (g_half, g_level)
"""
    )


_OUT = "output = CastLike (wide_out, input)"


@body_of("npu_swiglu")
def swiglu(**arguments):
    text = _halves() + "s = Sigmoid (a)\nsilu = Mul (a, s)\nwide_out = Mul (silu, b)\n" + _OUT
    return Body("input", "output", text, "", "dim")


@body_of("npu_clipped_swiglu")
def clipped_swiglu(group_index=None, interleaved=True, dim=-1, **arguments):
    if group_index is not None or (interleaved and dim != -1):
        return None
    text = _halves()
    if interleaved:
        text = """
wide = Cast <to = 1> (input)
sizes = Shape (input)
start = Constant <value_ints = [0]> ()
stop = Constant <value_ints = [-1]> ()
front = Slice (sizes, start, stop)
pairs = Constant <value_ints = [-1, 2]> ()
paired_sizes = Concat <axis = 0> (front, pairs)
paired = Reshape (wide, paired_sizes)
a2, b2 = Split <axis = -1, num_outputs = 2> (paired)
a = Squeeze (a2, stop)
b = Squeeze (b2, stop)
"""
    text += """
top = Constant <value_float: float = @limit> ()
bottom = Neg (top)
slope = Constant <value_float: float = @alpha> ()
more = Constant <value_float: float = @bias> ()
a_cut = Min (a, top)
sloped = Mul (a_cut, slope)
gate = Sigmoid (sloped)
gated = Mul (a_cut, gate)
b_cut = Clip (b, bottom, top)
b_more = Add (b_cut, more)
wide_out = Mul (gated, b_more)
"""
    suffix = "Interleaved" if interleaved else ""
    attributes = "alpha, limit, bias" + ("" if interleaved else ", dim")
    return Body("input", "output", text + _OUT, suffix, attributes)


@body_of("npu_geglu")
def geglu(approximate=1, activate_left=False, **arguments):
    # As implemented: with activate_left the left half is the one that gelu is taken of.
    text = _halves() + _gelu("a" if activate_left else "b", "wide_gelu", approximate == 1)
    text += f"wide_out = Mul ({'b' if activate_left else 'a'}, wide_gelu)\n" + _OUT
    text += "\ngelu = CastLike (wide_gelu, input)"
    suffix = ("" if approximate == 1 else "Erf") + ("Left" if activate_left else "")
    return Body("input", "output, gelu", text, suffix, "dim")


@body_of("npu_gelu")
def gelu(approximate="none", **arguments):
    tanh = approximate == "tanh"
    text = "x = Cast <to = 1> (input)\n" + _gelu("x", "wide_out", tanh) + _OUT
    return Body("input", "output", text, "Tanh" if tanh else "")


@body_of("npu_gelu_mul")
def gelu_mul(approximate="none", **arguments):
    tanh = approximate == "tanh"
    text = _halves("axis = -1") + _gelu("a", "left", tanh) + "wide_out = Mul (left, b)\n" + _OUT
    return Body("input", "output", text, "Tanh" if tanh else "")


@body_of("npu_fast_gelu", "fast_gelu")
def fast_gelu(**arguments):
    text = "x = Cast <to = 1> (input)\n" + _number("slope", 1.702)
    text += "sloped = Mul (x, slope)\ngate = Sigmoid (sloped)\nwide_out = Mul (x, gate)\n" + _OUT
    return Body("input", "output", text)


@body_of("npu_silu")
def silu(**arguments):
    return Body("input", "output", "gate = Sigmoid (input)\noutput = Mul (input, gate)")


@body_of("npu_mish")
def mish(**arguments):
    return Body("input", "output", "output = Mish (input)")


@body_of("npu_scaled_masked_softmax")
def scaled_masked_softmax(**arguments):
    text = """
wide = Cast <to = 1> (input)
factor = Constant <value_float: float = @scale> ()
scores = Mul (wide, factor)
"""
    text += _number("low", -10000.0)
    text += "kept = Where (mask, low, scores)\nwide_out = Softmax <axis = -1> (kept)\n" + _OUT
    return Body("input, mask", "output", text, "", "scale")


# ---- rotary ------------------------------------------------------------------

_EVERY_SECOND = """
step = Constant <value_ints = [2]> ()
last = Constant <value_ints = [-1]> ()
from0 = Constant <value_ints = [0]> ()
from1 = Constant <value_ints = [1]> ()
far = Constant <value_ints = [9223372036854775807]> ()
even = Slice (input, from0, far, last, step)
odd = Slice (input, from1, far, last, step)
"""

_TURNS = {
    "half": """
plain = Identity (input)
a, b = Split <axis = -1, num_outputs = 2> (input)
minus_b = Neg (b)
turned = Concat <axis = -1> (minus_b, a)
""",
    "quarter": """
plain = Identity (input)
a, b, c, d = Split <axis = -1, num_outputs = 4> (input)
minus_b = Neg (b)
minus_d = Neg (d)
turned = Concat <axis = -1> (minus_b, a, minus_d, c)
""",
    "interleave": _EVERY_SECOND
    + """
plain = Identity (input)
minus_odd = Neg (odd)
odd_tail = Unsqueeze (minus_odd, last)
even_tail = Unsqueeze (even, last)
paired = Concat <axis = -1> (odd_tail, even_tail)
sizes = Shape (input)
turned = Reshape (paired, sizes)
""",
    "interleave-half": _EVERY_SECOND
    + """
plain = Concat <axis = -1> (even, odd)
minus_odd = Neg (odd)
turned = Concat <axis = -1> (minus_odd, even)
""",
}


def _rotary(mode: str, names: str) -> str:
    cos, sin = names.split()
    return (
        _TURNS[mode]
        + f"""
cos_like = CastLike ({cos}, input)
sin_like = CastLike ({sin}, input)
straight = Mul (plain, cos_like)
across = Mul (turned, sin_like)
output = Add (straight, across)
"""
    )


@body_of("npu_rotary_mul")
def rotary_mul(rotary_mode="half", rotate=None, **arguments):
    if rotate is not None or rotary_mode not in _TURNS:
        return None
    suffix = "".join(w.title() for w in rotary_mode.split("-")) if rotary_mode != "half" else ""
    return Body("input, r1, r2", "output", _rotary(rotary_mode, "r1 r2"), suffix)


@body_of("npu_interleave_rope")
def interleave_rope(**arguments):
    return Body("input, cos, sin", "output", _rotary("interleave-half", "cos sin"))
