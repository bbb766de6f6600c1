# SPDX-License-Identifier: Apache-2.0
"""The fused kinds: on a driver that lacks them the compositions give the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
FUSED = (
    "rotary,rotary_grad,swiglu,swiglu_grad,geglu,geglu_grad,add_rms_norm,add_rms_norm_grad,moe_gating,moe_route,"
    "paged_attention,quantise,dequantise"
)
OPERATORS = (
    "npu_rotary_mul or npu_swiglu or npu_geglu or npu_add_rms_norm or npu_rms_norm or npu_moe_token or "
    "npu_moe_gating_top_k_softmax or npu_dynamic_quant or npu_quant_matmul or npu_grouped_matmul or "
    "npu_fused_infer_attention_score"
)


def run(*arguments, **variables):
    env = {**os.environ, "NPU_FALLBACK": "silent", **variables}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=FOLDER, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    "variables",
    [{"NPU_DISABLE_KIND": FUSED, "NPU_HOST_KERNELS": "all"}, {"NPU_HOST_ACCESS": "none"}],
    ids=["lacking", "far"],
)
def test_values_are_those_of_the_references(variables):
    told = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_values.py", "-k",
        f"({OPERATORS}) and (test_values or test_gradients) and not bfloat16", **variables,
    )  # fmt: skip
    assert " passed" in told


COUNTED = """
import torch, torch_npu
def r(*size): return torch.rand(size).npu()
torch_npu.npu_swiglu(r(4, 8))
torch_npu.npu_geglu_grad(r(4, 4), r(4, 8), torch_npu.npu_geglu(r(4, 8))[1])
torch_npu.npu_rotary_mul(r(1, 4, 2, 8), r(1, 4, 1, 8), r(1, 4, 1, 8))
torch_npu.npu_add_rms_norm(r(4, 8), r(4, 8), r(8))
torch_npu.npu_dynamic_quant(r(4, 8))
rows, places = torch_npu.npu_moe_token_permute(r(4, 8), torch.zeros(4, 2, dtype=torch.int32).npu())
torch_npu.npu_moe_token_unpermute(rows, places, r(4, 2))
torch_npu.npu_moe_gating_top_k_softmax(r(4, 8), None, 2)
whole = torch.ones(4, 8, dtype=torch.int8).npu()
torch_npu.npu_quant_matmul(whole, whole.t(), r(4), output_dtype=torch.float16)
torch_npu.npu_fused_infer_attention_score(
    r(2, 1, 16), r(6, 4, 16), r(6, 4, 16), num_heads=2, input_layout="BSH", block_size=4,
    block_table=torch.arange(6, dtype=torch.int32).view(2, 3).npu(), actual_seq_lengths_kv=[5, 12])
names = ("swiglu geglu geglu_grad rotary_mul add_rms_norm dynamic_quant moe_token_permute moe_token_unpermute "
         "moe_gating_top_k_softmax quant_matmul fused_infer_attention_score").split()
counts = torch_npu._C._native_calls()
for name in names:
    calls = counts.get("npu::npu_" + name, [])
    assert sum(row[1] + row[2] + row[3] for row in calls) == EXPECTED, (name, calls)
"""


@pytest.mark.parametrize(("lacking", "calls"), [(False, 1), (True, 0)])
def test_each_kind_is_reached(lacking, calls):
    variables = {"NPU_DISABLE_KIND": FUSED, "NPU_HOST_KERNELS": "all"} if lacking else {}
    run("-c", COUNTED.replace("EXPECTED", str(calls)), **variables)
