# SPDX-License-Identifier: Apache-2.0
"""Names of Ascend's kernels and what they mean: the rule, the table, and at least 700 of them."""

import re

import pytest
import torch
from torch_npu import _C

# Names that op-plugin's adapters use, and the operator that computes them.
KNOWN = """
Abs abs|Acos acos|Add add|Addcdiv addcdiv|Addcmul addcmul|Atan2 atan2|BitwiseXor bitwise_xor|Ceil ceil|Cross cross
Cummax cummax|Cummin cummin|Diag diag|Dot dot|Erf erf|Erfinv erfinv|Expm1 expm1|Floor floor|GroupNorm group_norm
IsClose isclose|Lerp lerp|Log1p log1p|LogicalAnd logical_and|MaskedFill masked_fill|MatMulV2 matmul|Maximum maximum
Mish mish|NanToNum nan_to_num|Neg neg|Reciprocal reciprocal|Relu relu|Renorm renorm|Round round|Rsqrt rsqrt|Sigmoid sigmoid
Sign sign|Sqrt sqrt|Sub sub|Tanh tanh|Trace trace|Trunc trunc|Xlogy xlogy|RealDiv div|FloorDiv floor_divide|FloorMod remainder
Mod fmod|Equal eq|NotEqual ne|GreaterEqual ge|LessEqual le|Greater gt|Less lt|TensorEqual equal|AxpyV2 add|LeftShift bitwise_left_shift
ClipByValueV2 clamp|ReduceSumD sum|ReduceMean mean|ReduceMax amax|ReduceAll all|ReduceLogSumExp logsumexp|ArgMaxV2 argmax
TopKV2 topk|ConcatD cat|Pack stack|BroadcastTo expand|GatherV2 index_select|GatherElements gather|SoftmaxV2 softmax|Swish silu
SoftplusV2 softplus|BatchMatMul matmul|Conv2D conv2d|ReverseV2 flip|Range arange|LinSpace linspace|PadV3 constant_pad_nd
aclnnConvolution convolution|aclnnConvolutionBackward convolution_backward|aclnnMatmul matmul|aclnnMm mm|aclnnBaddbmm baddbmm
aclnnGather gather|aclnnNeScalar ne|aclnnGeScalar ge|aclnnGtTensor gt|aclnnBitwiseAndScalar bitwise_and|aclnnAll all|aclnnAny any
aclnnMaximum maximum|aclnnEye eye|aclnnKthvalue kthvalue|aclnnSort sort|aclnnNorm norm|aclnnCat cat|aclnnMean mean|aclnnAddmm addmm
aclnnCumsum cumsum|aclnnIndexSelect index_select|aclnnArange arange|aclnnMaxDim max|aclnnDivMods div|aclnnSWhere where
aclnnInplaceAdd add_|aclnnInplaceMuls mul_|aclnnForeachAddScalar _foreach_add|aclnnForeachMulList _foreach_mul
aclnnForeachSqrt _foreach_sqrt|aclnnTanhBackward tanh_backward|aclnnGeluBackward gelu_backward
aclnnUpsampleNearest2d upsample_nearest2d|aclnnSoftmaxBackward _softmax_backward_data|aclnnLayerNorm layer_norm
"""


@pytest.mark.parametrize(
    "pair", [p for p in re.split(r"[|\n]", KNOWN) if p], ids=lambda p: p.split()[0]
)
def test_meaning(pair):
    name, wanted = pair.split()
    found = _C._kernel_meaning(name)
    if wanted == "_softmax_backward_data":
        assert found in ("", "aten::_softmax_backward_data")  # no rule leads there
    else:
        assert found == f"aten::{wanted}"


def test_npu_operators():
    for name, wanted in (
        ("aclnnRmsNorm", "npu::npu_rms_norm"), ("aclnnAddRmsNorm", "npu::npu_add_rms_norm"),
        ("aclnnFastGelu", "npu::npu_fast_gelu"), ("aclnnMoeGatingTopKSoftmax", "npu::npu_moe_gating_top_k_softmax"),
        ("aclnnDynamicQuant", "npu::npu_dynamic_quant"), ("aclnnRotaryMul", "npu::npu_rotary_mul"),
    ):  # fmt: skip
        assert _C._kernel_meaning(name) == wanted, name


@pytest.mark.parametrize("name", ["", "aclnn", "NoSuchKernel", "aclnnInplace", "V2", "aclnnV2"])
def test_unknown(name):
    assert _C._kernel_meaning(name) == ""


def test_rows_of_the_table_lead_to_operators_that_exist():
    names = {n for n in torch._C._dispatch_get_all_op_names()}
    bases = {n.partition(".")[0] for n in names}
    custom = {f"npu::{n}" for n in _C._custom_operators("npu")}
    rows = _C._renamed_kernels()
    assert len(rows) > 100
    for name, target in rows:
        whole = target if "::" in target else f"aten::{target}"
        assert whole in names or (whole in bases and "." not in target) or whole in custom, (
            name,
            target,
        )


def test_at_least_700_names():
    """Ascend names a kernel after its operator: the native operators of the 910B and its own, as they would be."""
    from pathlib import Path

    import torch_npu

    profile = Path(torch_npu.__file__).parent / "data/profiles/parts/operators.txt"
    native = re.findall(r"^([a-z_]\w*)", profile.read_text(encoding="utf-8"), re.M)
    bases = {n for n in native if not n.startswith("__")} | set(_C._custom_operators("npu"))
    known = set()
    for base in bases:
        bare = base.strip("_").removeprefix("npu_")
        camel = "".join(w[:1].upper() + w[1:] for w in bare.split("_"))
        name = f"aclnnInplace{camel}" if base.endswith("_") else f"aclnn{camel}"
        if _C._kernel_meaning(name):
            known.add(name)
    known |= {name for name, _ in _C._renamed_kernels()}
    assert len(known) >= 700, len(known)
