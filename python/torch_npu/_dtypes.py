# SPDX-License-Identifier: Apache-2.0
"""Data types as the numbers that operators with an `int dtype` argument take.

A number is ACL's data type plus 256, so that it cannot be mistaken for one of
PyTorch's. Types PyTorch has no name for exist only in this form.
"""

_BASE = 256
_ACL = {
    "float32": 0,
    "float16": 1,
    "int8": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 6,
    "uint16": 7,
    "uint32": 8,
    "int64": 9,
    "uint64": 10,
    "float64": 11,
    "bool": 12,
    "complex64": 16,
    "complex128": 17,
    "bfloat16": 27,
    "int4": 29,
    "uint1": 30,
    "complex32": 33,
    "hifloat8": 34,
    "float8_e5m2": 35,
    "float8_e4m3fn": 36,
    "float8_e8m0fnu": 37,
    "float6_e3m2": 38,
    "float6_e2m3": 39,
    "float4_e2m1fn_x2": 40,
    "float4_e1m2fn_x2": 41,
}

globals().update({name: _BASE + number for name, number in _ACL.items()})
# `bool` would hide the builtin in `from torch_npu import *`.
__all__ = [name for name in _ACL if name != "bool"]
