# SPDX-License-Identifier: Apache-2.0
"""Wrong dtypes, sizes and combinations: the documented code and a sentence with argument and value."""

import pytest
import torch
import torch_npu


def rand(*size, dtype=torch.float32):
    return torch.rand(size).to(dtype).npu()


def ints(*size, dtype=torch.int32):
    return torch.zeros(size, dtype=dtype).npu()


def mask(*size):
    return torch.zeros(size, dtype=torch.bool).npu()


def groups(*numbers):
    return torch.tensor(numbers).npu()


def attend(q=None, k=None, v=None, heads=4, layout="BNSD", **rest):
    q = rand(2, 4, 5, 8) if q is None else q
    k = q if k is None else k
    return torch_npu.npu_fusion_attention(q, k, k if v is None else v, heads, layout, **rest)


def packed(q_ends, k_ends):
    x = rand(5, 4, 8)
    return attend(x, layout="TND", actual_seq_qlen=q_ends, actual_seq_kvlen=k_ends)


def grouped(x, w, ends, **rest):
    rest = {"split_item": 3, "group_type": 0, **rest}
    return torch_npu.npu_grouped_matmul([x], [w], group_list=ends, **rest)


def infer(q=None, **rest):
    q = rand(1, 4, 16) if q is None else q
    return torch_npu.npu_fused_infer_attention_score(q, q, q, num_heads=2, **rest)


def adam(grad, *state):
    return torch_npu.npu_apply_adam_w(
        0.9, 0.9, 0.1, 0.0, 0.9, 0.9, 1e-8, grad, None, False, False, out=state
    )


def store(cache, slots, mode="Norm"):
    return torch_npu.npu_scatter_pa_kv_cache(
        rand(2, 1, 8), rand(2, 1, 8), cache, cache.clone(), slots, cache_mode=mode
    )


def fetch(rows, lengths, tables=((0,),), **more):
    caches, out = (rand(2, 4, 1, 8) for _ in range(2)), (rand(rows, 1, 8) for _ in range(2))
    return torch_npu.npu_gather_pa_kv_cache(
        *caches, torch.tensor(tables, dtype=torch.int32).npu(), groups(*lengths), *out, **more
    )


PREFIX_MASK = (3072, 2048)
CASES = {
    "fetch, a negative offset": (
        lambda: fetch(4, [4], seq_offset=groups(-8)),
        "ERR01003",
        "seq_offset is [-8]",
    ),
    "fetch, too many offsets": (
        lambda: fetch(4, [4], seq_offset=groups(0, 4)),
        "ERR01003",
        "seq_offset is [0, 4]",
    ),
    "attention of integers": (lambda: attend(ints(2, 4, 5, 8)), "ERR01002", "query is torch.int32"),
    "attention of two dtypes": (
        lambda: attend(k=rand(2, 4, 5, 8, dtype=torch.float16)),
        "ERR01002",
        "key is torch.float16",
    ),
    "attention, head sizes": (lambda: attend(k=rand(2, 4, 5, 16)), "ERR01001", "8 and key's 16"),
    "attention, batches": (lambda: attend(k=rand(3, 4, 5, 8)), "ERR01001", "one batch"),
    "attention, rows of value": (
        lambda: attend(k=rand(2, 4, 5, 8), v=rand(2, 4, 6, 8)),
        "ERR01001",
        "[2, 4, 6, 8]",
    ),
    "attention, heads": (lambda: attend(k=rand(2, 3, 5, 8)), "ERR01001", "(4) must be a multiple"),
    "attention, mask's sizes": (lambda: attend(atten_mask=mask(3, 5)), "ERR01001", "[3, 5]"),
    "attention, mask of a band": (
        lambda: attend(atten_mask=mask(5, 5), sparse_mode=2),
        "ERR01001",
        "atten_mask has shape [5, 5]; sparse_mode 2 takes [2048, 2048]",
    ),
    "inference, mask of a band": (
        lambda: infer(atten_mask=mask(4, 4), sparse_mode=3),
        "ERR01001",
        "atten_mask has shape [4, 4]; sparse_mode 3 takes [2048, 2048]",
    ),
    "attention, mask's dtype": (
        lambda: attend(atten_mask=rand(5, 5)),
        "ERR01002",
        "atten_mask is torch.float32",
    ),
    "attention, pse": (lambda: attend(pse=rand(2, 4, 5, 7)), "ERR01001", "[2, 4, 5, 7]"),
    "attention, sink": (lambda: attend(sink=rand(3)), "ERR01001", "sink has shape [3]"),
    "attention, prefix": (
        lambda: attend(atten_mask=mask(*PREFIX_MASK), sparse_mode=6, prefix=[1]),
        "ERR01001",
        "prefix is [1]",
    ),
    "attention, no prefix": (
        lambda: attend(atten_mask=mask(*PREFIX_MASK), sparse_mode=6),
        "ERR01001",
        "prefix is None",
    ),
    "attention, lengths": (lambda: packed([9], [5]), "ERR01001", "add up to 9"),
    "attention, falling lengths": (lambda: packed([3, 2], [3, 5]), "ERR01001", "[3, 2]"),
    "attention, keep_prob": (lambda: attend(keep_prob=0.0), "ERR01001", "keep_prob"),
    "attention, sparse_mode": (lambda: attend(sparse_mode=7), "ERR01001", "but got 7"),
    "attention, layout": (lambda: attend(layout="BNDS"), "ERR01001", "BNDS"),
    "rms_norm of integers": (
        lambda: torch_npu.npu_rms_norm(ints(2, 8), rand(8)),
        "ERR01002",
        "x is torch.int32",
    ),
    "rotary, sizes": (
        lambda: torch_npu.npu_rotary_mul(rand(1, 2, 1, 8), rand(1, 3, 1, 8), rand(1, 3, 1, 8)),
        "ERR01001",
        "[1, 3, 1, 8]",
    ),
    "rotary of integers": (
        lambda: torch_npu.npu_rotary_mul(ints(1, 8), rand(1, 8), rand(1, 8)),
        "ERR01002",
        "input is torch.int32",
    ),
    "swiglu of integers": (lambda: torch_npu.npu_swiglu(ints(2, 8)), "ERR01002", "torch.int32"),
    "geglu of integers": (lambda: torch_npu.npu_geglu(ints(2, 8)), "ERR01002", "torch.int32"),
    "grouped, columns": (
        lambda: grouped(rand(2, 3), rand(1, 5, 4), groups(2)),
        "ERR01001",
        "3 columns and weight 0 5 rows",
    ),
    "grouped, falling": (
        lambda: grouped(rand(4, 3), rand(2, 3, 4), groups(3, 2)),
        "ERR01003",
        "[3, 2]",
    ),
    "grouped, negative": (
        lambda: grouped(rand(4, 3), rand(2, 3, 4), groups(3, -1), group_list_type=1),
        "ERR01003",
        "[3, -1]",
    ),
    "grouped, too many groups": (
        lambda: grouped(rand(4, 3), rand(2, 3, 4), groups(1, 2, 4)),
        "ERR01001",
        "group 2 has no weight: there are 2",
    ),
    "grouped, too many rows": (
        lambda: grouped(rand(4, 3), rand(2, 3, 4), groups(1, 9)),
        "ERR01003",
        "holds 9 rows, but x has 4",
    ),
    "grouped, dtypes": (
        lambda: grouped(rand(4, 3), rand(2, 3, 4, dtype=torch.float16), groups(1, 4)),
        "ERR01002",
        "weight 0 is torch.float16",
    ),
    "grouped, list of floats": (
        lambda: grouped(rand(4, 3), rand(1, 3, 4), groups(4.0)),
        "ERR01002",
        "group_list is torch.float32; allowed: int64, int32",
    ),
    "grouped, list of two dimensions": (
        lambda: grouped(rand(4, 3), rand(1, 3, 4), groups([4])),
        "ERR01001",
        "group_list has shape [1, 1]; group_list_type 0 takes [groups]",
    ),
    "grouped, numbers that overflow": (
        lambda: grouped(rand(4, 3), rand(2, 3, 4), groups(2**62, 2**62), group_list_type=1),
        "ERR01003",
        f"holds {2**63} rows, but x has 4",
    ),
    "grouped, too many columns": (
        lambda: grouped(rand(4, 3), rand(3, 5), groups(9), group_type=2),
        "ERR01003",
        "holds 9 columns, but x has 3",
    ),
    "grouped, bias": (
        lambda: grouped(rand(4, 3), rand(1, 3, 4), groups(4), bias=[rand(1, 5)]),
        "ERR01001",
        "bias 0 has 5 elements; the product has 4 columns",
    ),
    "grouped, weight elsewhere": (
        lambda: grouped(rand(4, 3), torch.rand(1, 3, 4), groups(4)),
        "ERR01001",
        "x is on npu:0 and weight is on cpu; all tensors must be on one device",
    ),
    "added, too many rows": (
        lambda: torch_npu.npu_grouped_matmul_add_(
            rand(2, 3, 5), rand(4, 3), rand(4, 5), groups(2, 9)
        ),
        "ERR01003",
        "holds 9 rows, but x has 4",
    ),
    "added, another size": (
        lambda: torch_npu.npu_grouped_matmul_add_(
            rand(1, 3, 5), rand(4, 3), rand(4, 5), groups(2, 4)
        ),
        "ERR01001",
        "2 groups of 3 x 5 need 30",
    ),
    "rms_norm, gamma elsewhere": (
        lambda: torch_npu.npu_rms_norm(rand(2, 8), torch.rand(8)),
        "ERR01001",
        "npu_rms_norm: input is on npu:0 and gamma is on cpu; all tensors must be on one device",
    ),
    "attention, mask elsewhere": (
        lambda: attend(atten_mask=torch.zeros(5, 5, dtype=torch.bool)),
        "ERR01001",
        "atten_mask is on cpu",
    ),
    "gradient of other sizes": (
        lambda: torch.ops.npu.npu_swiglu_backward(rand(2, 5), rand(2, 8)),
        "ERR01001",
        "The arguments' shapes: grad_output [2, 5]; input [2, 8].",
    ),
    "gate of integers": (
        lambda: torch_npu.npu_moe_gating_top_k_softmax(ints(4, 3), None, 1),
        "ERR01002",
        "x is torch.int32",
    ),
    "gate, finished": (
        lambda: torch_npu.npu_moe_gating_top_k_softmax(rand(4, 3), mask(3), 1),
        "ERR01001",
        "finished has shape [3]; it must be x's without the last, [4]",
    ),
    "inference of integers": (lambda: infer(ints(1, 4, 16)), "ERR01002", "query is torch.int32"),
    "inference, length": (
        lambda: infer(actual_seq_lengths_kv=[9]),
        "ERR01003",
        "actual_seq_lengths_kv holds 9, but there are 4 rows",
    ),
    "inference, negative length": (
        lambda: infer(actual_seq_lengths_kv=[-3]),
        "ERR01003",
        "actual_seq_lengths_kv holds -3",
    ),
    "packed rows": (
        lambda: torch.ops.atb._npu_flash_attention_unpad(
            rand(4, 2, 8), rand(4, 2, 8), rand(4, 2, 8), torch.tensor([9]), 1.0, 2, 2, rand(4, 2, 8)
        ),
        "ERR01003",
        "holds 9, but there are 4 rows",
    ),
    "adam_w, sizes": (
        lambda: adam(rand(3), rand(4), rand(3), rand(3)),
        "ERR01001",
        "var has shape [4]; it must be grad's [3]",
    ),
    "adam_w of integers": (
        lambda: adam(ints(3), rand(3), rand(3), rand(3)),
        "ERR01002",
        "grad is torch.int32",
    ),
    "cache of another dtype": (
        lambda: store(rand(2, 4, 1, 8, dtype=torch.float16), ints(2)),
        "ERR01002",
        "a cache is torch.float16; it must be the torch.float32 of what is written",
    ),
    "cache, mode": (
        lambda: store(rand(2, 4, 1, 8), ints(2), "Foo"),
        "ERR01001",
        "cache_mode is Foo",
    ),
    "cache, rows asked for": (
        lambda: fetch(2, [3]),
        "ERR01003",
        "asks for 3 rows, but a result has 2",
    ),
    "cache, tables": (
        lambda: fetch(3, [3], ((0,), (1,))),
        "ERR01001",
        "block_tables has shape [2, 1]; 1 sequences need as many rows",
    ),
    "permute, rows": (
        lambda: torch_npu.npu_moe_token_permute(rand(4, 3), ints(5, 2)),
        "ERR01001",
        "5 rows and tokens 4",
    ),
    "permute, dtype": (
        lambda: torch_npu.npu_moe_token_permute(rand(4, 3), rand(4, 2)),
        "ERR01002",
        "indices is torch.float32",
    ),
    "unpermute, places": (
        lambda: torch_npu.npu_moe_token_unpermute(rand(4, 3), ints(5), rand(2, 2)),
        "ERR01001",
        "5 elements",
    ),
    "dynamic_quant, smooth": (
        lambda: torch_npu.npu_dynamic_quant(rand(4, 8), smooth_scales=rand(7)),
        "ERR01001",
        "[7]; allowed: [8]",
    ),
    "dynamic_quant of integers": (
        lambda: torch_npu.npu_dynamic_quant(ints(4, 8)),
        "ERR01002",
        "input is torch.int32",
    ),
    "quant_matmul, scale": (
        lambda: torch_npu.npu_quant_matmul(
            ints(4, 8, dtype=torch.int8), ints(8, 4, dtype=torch.int8), rand(3)
        ),
        "ERR01001",
        "scale has shape [3]; allowed: [1] or [4]",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    call, code, sentence = CASES[name]
    with pytest.raises(RuntimeError) as error:
        call()
    text = str(error.value)
    assert sentence in text
    assert code in text.splitlines()[-1]


def test_indices_that_are_not_there():
    """The operator is named, with what it was given; nothing is written."""
    cache = rand(2, 4, 1, 8)
    before = cache.clone()
    with pytest.raises(
        IndexError, match=r"npu_scatter_pa_kv_cache: index 24 is out of bounds[\s\S]*ERR01001"
    ):
        store(cache, groups(0, 99))
    assert torch.equal(cache, before)
