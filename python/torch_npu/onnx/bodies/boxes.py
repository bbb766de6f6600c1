# SPDX-License-Identifier: Apache-2.0
"""Boxes: overlaps and coding."""

from torch_npu.onnx.bodies import Body, body_of


@body_of("npu_iou", "npu_ptiou")
def iou(mode=0, **arguments):
    text = """
a = Cast <to = 1> (bboxes)
b = Cast <to = 1> (gtboxes)
first = Constant <value_ints = [0]> ()
second = Constant <value_ints = [1]> ()
none = Constant <value = float {0.0}> ()
"""
    for name, axis in (("a", "first"), ("b", "second")):
        parts = ", ".join(f"{name}{i}_" for i in range(4))
        text += f"{parts} = Split <axis = 1, num_outputs = 4> ({name})\n"
        for i in range(4):
            text += f"{name}{i}s = Squeeze ({name}{i}_, second)\n"
            text += f"{name}{i} = Unsqueeze ({name}{i}s, {axis})\n"
        text += f"{name}_wide = Sub ({name}2, {name}0)\n{name}_high = Sub ({name}3, {name}1)\n"
        text += f"{name}_area = Mul ({name}_wide, {name}_high)\n"
    text += """
right = Min (a2, b2)
left = Max (a0, b0)
low = Min (a3, b3)
high = Max (a1, b1)
across = Sub (right, left)
down = Sub (low, high)
across_cut = Max (across, none)
down_cut = Max (down, none)
inner = Mul (across_cut, down_cut)
"""
    if mode == 1:
        text += "nothing = Mul (inner, none)\nwhole = Add (nothing, b_area)\n"
    else:
        text += "both = Add (a_area, b_area)\nwhole = Sub (both, inner)\n"
    text += """
real = Greater (whole, none)
unit = Constant <value = float {1.0}> ()
safe = Where (real, whole, unit)
ratio = Div (inner, safe)
zeros = Mul (inner, none)
wide_out = Where (real, ratio, zeros)
output = CastLike (wide_out, bboxes)
"""
    return Body("bboxes, gtboxes", "output", text, "OfTruth" if mode == 1 else "")


def _numbers(name: str) -> str:
    text = "flat = Constant <value_ints = [-1]> ()\n" if name == "means" else ""
    for i in range(4):
        text += f"{name}_{i}_ = Constant <value_float: float = @{name}{i}> ()\n"
        text += f"{name}_{i} = Reshape ({name}_{i}_, flat)\n"
    return text + f"{name} = Concat <axis = 0> ({', '.join(f'{name}_{i}' for i in range(4))})\n"


def _centres(source: str, name: str) -> str:
    """Centre and size with both ends counted."""
    parts = ", ".join(f"{name}{c}" for c in ("x1", "y1", "x2", "y2"))
    text = f"{name}_wide = Cast <to = 1> ({source})\n"
    text += f"{parts} = Split <axis = -1, num_outputs = 4> ({name}_wide)\n"
    for c, size in (("x", "w"), ("y", "h")):
        text += f"{name}{c}s = Add ({name}{c}1, {name}{c}2)\n{name}{c} = Mul ({name}{c}s, half)\n"
        text += f"{name}{size}0 = Sub ({name}{c}2, {name}{c}1)\n"
        text += f"{name}{size} = Add ({name}{size}0, unit)\n"
    return text


_CODING = "half = Constant <value = float {0.5}> ()\nunit = Constant <value = float {1.0}> ()\n"
_ATTRIBUTES = ", ".join(f"{name}{i}" for name in ("means", "stds") for i in range(4))


@body_of("npu_bounding_box_encode")
def bounding_box_encode(**arguments):
    text = _CODING + _numbers("means") + _numbers("stds")
    text += _centres("anchor_box", "p") + _centres("ground_truth_box", "g")
    for c, size in (("x", "w"), ("y", "h")):
        text += f"d{c}0 = Sub (g{c}, p{c})\nd{c} = Div (d{c}0, p{size})\n"
        text += f"r{size} = Div (g{size}, p{size})\nd{size} = Log (r{size})\n"
    text += """
deltas = Concat <axis = -1> (dx, dy, dw, dh)
moved = Sub (deltas, means)
wide_out = Div (moved, stds)
output = CastLike (wide_out, anchor_box)
"""
    return Body("anchor_box, ground_truth_box", "output", text, "", _ATTRIBUTES)


@body_of("npu_bounding_box_decode")
def bounding_box_decode(max_shape=(), **arguments):
    text = _CODING + _numbers("means") + _numbers("stds") + _centres("rois", "p")
    text += """
d = Cast <to = 1> (deltas)
d_scaled = Mul (d, stds)
d_moved = Add (d_scaled, means)
dx, dy, dw, dh = Split <axis = -1, num_outputs = 4> (d_moved)
clip = Constant <value_float: float = @wh_ratio_clip> ()
clip_log = Log (clip)
limit = Abs (clip_log)
least = Neg (limit)
none = Constant <value = float {0.0}> ()
"""
    sides = list(max_shape)[::-1] if len(max_shape) == 2 else None
    ends = []
    for i, (c, size) in enumerate((("x", "w"), ("y", "h"))):
        text += f"""
c{size} = Clip (d{size}, least, limit)
e{size} = Exp (c{size})
g{size} = Mul (p{size}, e{size})
m{c} = Mul (p{size}, d{c})
g{c} = Add (p{c}, m{c})
l{size} = Sub (g{size}, unit)
h{size} = Mul (l{size}, half)
s{c} = Sub (g{c}, h{size})
t{c} = Add (g{c}, h{size})
"""
        if sides:
            text += f"end{c} = Constant <value = float {{{float(sides[i] - 1)!r}}}> ()\n"
            text += f"s{c}c = Clip (s{c}, none, end{c})\nt{c}c = Clip (t{c}, none, end{c})\n"
        ends.append(("c" if sides else "", c))
    names = [f"{edge}{c}{cut}" for edge in "st" for cut, c in ends]
    text += f"wide_out = Concat <axis = -1> ({', '.join(names)})\n"
    text += "output = CastLike (wide_out, rois)"
    suffix = "Within" + "x".join(map(str, max_shape)) if sides else ""
    return Body("rois, deltas", "output", text, suffix, _ATTRIBUTES + ", wh_ratio_clip")
