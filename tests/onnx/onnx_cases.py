# SPDX-License-Identifier: Apache-2.0
"""Calls of npu operators whose nodes have bodies: operator, tensors, other arguments."""

import torch


def rand(*size, seed=0):
    return torch.rand(*size, generator=torch.Generator().manual_seed(seed)) * 4 - 2


def boxes(n, seed=0):
    corner = rand(n, 2, seed=seed).abs() * 8
    return torch.cat((corner, corner + 1 + rand(n, 2, seed=seed + 50).abs() * 6), 1)


X = rand(2, 6, 16)
Y = rand(2, 6, 16, seed=1)
G, B = rand(16, seed=2), rand(16, seed=3)
IMAGE = rand(2, 8, 5, 5, seed=4)
C, D = rand(8, seed=5), rand(8, seed=6)
Q, K, V = (rand(2, 4, 6, 8, seed=s) for s in (7, 8, 9))
COS, SIN = rand(1, 1, 6, 8, seed=10), rand(1, 1, 6, 8, seed=11)
MASK = rand(2, 4, 6, 6, seed=12) > 0.9
SMALL_MASK = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
BOXES, TRUTH = boxes(5), boxes(3, 20)
NUMBERS = (0.1, 0.2, 0.3, 0.4, 1.0, 2.0, 0.5, 0.25)

# (operator, tensors, other arguments by name)
CASES = [
    ("npu_rms_norm", (X, G), {"epsilon": 1e-5}),
    ("npu_rms_norm", (X, rand(6, 16, seed=13)), {}),
    ("npu_gemma_rms_norm", (X, G), {}),
    ("npu_add_rms_norm", (X, Y, G), {}),
    ("npu_add_rms_norm_cast", (X, Y, G), {}),
    ("npu_add_layer_norm", (X, Y, G, B), {"additional_output": True}),
    ("npu_deep_norm", (X, Y, B, G), {"alpha": 0.7}),
    ("npu_layer_norm_eval", (X,), {"normalized_shape": [16], "weight": G, "bias": B}),
    ("npu_group_norm_silu", (IMAGE, C, D), {"group": 4}),
    ("npu_group_norm_swish", (IMAGE,), {"num_groups": 2, "weight": C, "bias": D, "swish_scale": 0.5}),
    ("npu_swiglu", (X,), {"dim": -1}),
    ("npu_swiglu", (X,), {"dim": 1}),
    ("npu_clipped_swiglu", (X,), {"limit": 1.0}),
    ("npu_clipped_swiglu", (X,), {"interleaved": False, "dim": 1}),
    ("npu_geglu", (X,), {}),
    ("npu_geglu", (X,), {"approximate": 0, "activate_left": True}),
    ("npu_gelu", (X,), {"approximate": "tanh"}),
    ("npu_gelu", (X,), {}),
    ("npu_gelu_mul", (X,), {}),
    ("npu_fast_gelu", (X,), {}),
    ("fast_gelu", (X,), {}),
    ("npu_silu", (X,), {}),
    ("npu_mish", (X,), {}),
    ("npu_scaled_masked_softmax", (Q @ K.mT, MASK), {"scale": 0.5}),
    ("npu_rotary_mul", (Q, COS, SIN), {}),
    ("npu_rotary_mul", (Q, COS, SIN), {"rotary_mode": "interleave"}),
    ("npu_rotary_mul", (Q, COS, SIN), {"rotary_mode": "quarter"}),
    ("npu_interleave_rope", (Q, COS, SIN), {}),
    ("npu_transpose", (X,), {"perm": [2, 0, 1]}),
    ("npu_confusion_transpose", (X,), {"perm": [0, 2, 1], "shape": [2, 96], "transpose_first": True}),
    ("npu_confusion_transpose", (X,), {"perm": [1, 0], "shape": [12, 16], "transpose_first": False}),
    ("npu_reshape", (X,), {"shape": [4, -1]}),
    ("npu_broadcast", (G,), {"size": [3, 16]}),
    ("npu_slice", (X,), {"offsets": [0, 1, 2], "size": [2, 3, 4]}),
    ("npu_pad", (X,), {"paddings": [0, 1, 2, 0, 1, 1]}),
    ("npu_one_hot", (torch.tensor([0, 3, 1], dtype=torch.int32),),
     {"depth": 5, "on_value": 2, "off_value": -1}),
    ("npu_sort_v2", (X,), {"dim": 1, "descending": True}),
    ("npu_max.dim", (X,), {"dim": 1, "keepdim": True}),
    ("npu_min.dim", (X,), {"dim": -1}),
    ("npu_dtype_cast", (X,), {"dtype": 5}),
    ("reverse", (X,), {"axis": [0, 2]}),
    ("npu_linear", (X, rand(5, 16, seed=14), rand(5, seed=15)), {}),
    ("npu_linear", (X, rand(5, 16, seed=14)), {}),
    ("npu_bmmV2", (X, rand(2, 16, 3, seed=16)), {"output_sizes": []}),
    ("npu_transpose_batchmatmul", (X, rand(2, 16, 3, seed=16)), {}),
    ("npu_scatter_nd_update", (X, torch.tensor([[1], [0]]), rand(2, 6, 16, seed=17)), {}),
    ("npu_iou", (BOXES, TRUTH), {}),
    ("npu_ptiou", (BOXES, TRUTH), {"mode": 1}),
    ("npu_bounding_box_encode", (BOXES, boxes(5, 30)), dict(
        zip([f"{n}{i}" for n in ("means", "stds") for i in range(4)], NUMBERS))),
    ("npu_bounding_box_decode", (BOXES, rand(5, 4, seed=18)), {
        **dict(zip([f"{n}{i}" for n in ("means", "stds") for i in range(4)], NUMBERS)),
        "max_shape": [9, 12], "wh_ratio_clip": 0.01}),
    ("npu_prompt_flash_attention", (X, Y, X), {"num_heads": 2, "input_layout": "BSH"}),
    ("npu_moe_gating_top_k_softmax", (rand(6, 16, seed=19),), {"k": 3}),
    ("npu_softmax_cross_entropy_with_logits", (X[0], Y[0].abs()), {}),
    ("npu_dynamic_quant", (X,), {}),
    ("npu_dynamic_quant", (X,), {"smooth_scales": G.abs() + 1}),
    ("npu_anti_quant", ((X * 50).to(torch.int8), G), {"offset": B}),
]  # fmt: skip

# Operators that return numbers, which TorchScript's tracer refuses.
DYNAMO_CASES = [
    ("npu_fusion_attention", (Q, K, V), {"head_num": 4, "input_layout": "BNSD", "scale": 0.3}),
    ("npu_fusion_attention", (X, Y, X), {"head_num": 2, "input_layout": "SBH", "scale": 0.3}),
    ("npu_fusion_attention", (X, Y, X),
     {"head_num": 2, "input_layout": "BSH", "atten_mask": SMALL_MASK, "scale": 0.25}),
]  # fmt: skip


def operator(name: str):
    bare, _, overload = name.partition(".")
    packet = getattr(torch.ops.npu, bare)
    return getattr(packet, overload) if overload else packet


class Calls(torch.nn.Module):
    """Calls of operators with the tensors given; other tensors are constants of the model."""

    def __init__(self, cases):
        super().__init__()
        self.cases = [(operator(n), len(t), to_npu(k)) for n, t, k in cases]

    def forward(self, *tensors):
        results, at = [], 0
        for call, count, others in self.cases:
            found = call(*tensors[at : at + count], **others)
            at += count
            found = found if isinstance(found, (tuple, list)) else (found,)
            # Numbers and empty tensors are not outputs of a graph.
            results += [r for r in found if isinstance(r, torch.Tensor) and r.numel()]
        return tuple(results)


def to_npu(arguments: dict) -> dict:
    return {k: v.npu() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}


def tensors_of(cases) -> tuple:
    return tuple(t.npu() for _, tensors, _ in cases for t in tensors)
