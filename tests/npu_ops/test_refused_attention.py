# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments of sparse, NSA, 8-bit and MLA attention and the indexer: code, argument, value."""

import pytest
import torch
import torch_npu
from test_refused_arguments import ints, rand

BF16 = torch.bfloat16


def listed(q=(1, 2, 2, 8), k=(1, 4, 1, 8), ids=(1, 2, 1, 3), **rest):
    key = rand(*k)
    return torch_npu.npu_sparse_flash_attention(rand(*q), key, key, ints(*ids), 1.0, **rest)


def kv8(width=656, key_mode=2, value_mode=2, attention_mode=2, **rest):
    key = ints(1, 4, 1, width, dtype=torch.int8)
    return torch_npu.npu_kv_quant_sparse_flash_attention(
        rand(1, 2, 2, 576, dtype=BF16), key, key, ints(1, 2, 1, 3), 1.0, key_mode, value_mode,
        attention_mode=attention_mode, **rest,
    )  # fmt: skip


def blocks(shape=(1, 2, 4, 8), key=None, mask=(1, 2, 1, 1), block=(128, 128), dtype=BF16, **rest):
    q = rand(*shape, dtype=dtype)
    k = q if key is None else key
    rest = {"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "num_key_value_heads": 2, "inner_precise": 0,
            **rest}  # fmt: skip
    return torch_npu.npu_block_sparse_attention(
        q, k, k, ints(*mask, dtype=torch.int8), list(block), **rest
    )


def index(q=(1, 2, 2, 8), k=(1, 4, 1, 8), w=(1, 2, 2), **rest):
    return torch_npu.npu_lightning_indexer(rand(*q), rand(*k), rand(*w), **rest)


def quant_index(query_mode=0):
    q, k = ints(1, 2, 2, 8, dtype=torch.int8), ints(1, 4, 1, 8, dtype=torch.int8)
    return torch_npu.npu_quant_lightning_indexer(
        q, k, rand(1, 2, 2), rand(1, 2, 2), rand(1, 4, 1), query_mode, 0
    )


def floyd(key=(1, 1, 2, 4, 8)):
    return torch_npu.npu_fused_floyd_attention(
        rand(1, 1, 2, 3, 8), rand(*key), rand(*key), rand(1, 1, 4, 3, 8), rand(1, 1, 4, 3, 8)
    )


def quant_fusion(layout="BNSD", dtype=torch.float8_e4m3fn, scale=(1, 2, 1, 1), **rest):
    x = rand(1, 2, 4, 8).to(dtype)
    return torch_npu.npu_quant_fusion_attention(
        x, x, x, 2, layout, d_scale_q=rand(*scale), d_scale_k=rand(1, 2, 1, 1),
        d_scale_v=rand(1, 2, 1, 1), **rest,
    )  # fmt: skip


def compress(x=(8, 2, 4), w=(4, 2), stride=2, ends=None):
    return torch_npu.npu_nsa_compress(rand(*x), rand(*w), 4, stride, actual_seq_len=ends)


def compressed(stride=2, select=4, heads=2, **rest):
    k = rand(4, 1, 8)
    return torch_npu.npu_nsa_compress_attention(
        rand(6, 2, 8), k, k, 1.0, heads, 4, stride, select, 2, **rest
    )


def select(topk=(6, 1, 2), **rest):
    k = rand(8, 1, 8)
    return torch_npu.npu_nsa_select_attention(
        rand(6, 2, 8), k, k, ints(*topk), 1.0, 2, 4, 2, **rest
    )


def select_paged(layout="BSND", table=(1, 2), lengths=(6,)):
    k = rand(2, 4, 8)
    return torch_npu.npu_nsa_select_attention_infer(
        rand(1, 1, 2, 8), k, k, ints(1, 1, 1, 2), 1.0, 2, 1, 4, 2, 4, layout=layout,
        block_table=None if table is None else ints(*table), actual_seq_kvlen=list(lengths),
    )  # fmt: skip


def prolog(
    x=(2, 8), uk=(2, 4, 16), sin=(2, 4), cache=(2, 4, 1, 16), slots=2, dtype=torch.float32, **rest
):
    return torch_npu.npu_mla_prolog_v3(
        rand(*x), rand(8, 8), rand(8, 16), rand(*uk), rand(8, 20), rand(8), rand(16), rand(*sin),
        rand(*sin), rand(*cache).to(dtype), rand(2, 4, 1, 4), cache_index=ints(slots), **rest,
    )  # fmt: skip


def projections(tgt_len):
    x = rand(4, 32)
    w = rand(32, 32)
    heads = rand(1, 2, 4, 16)
    return torch_npu.npu_multi_head_attention_backward(
        x, x, x, w, w, w, w, None, None, None, None, heads, heads, heads, rand(1, 2, 4, 4),
        rand(1, 2, 4, 4), x, x, ints(0, dtype=torch.uint8), 2, 16, 4, tgt_len, 0.0, False,
    )  # fmt: skip


CASES = {
    "no query": (lambda: listed(q=(1, 0, 2, 8), ids=(1, 0, 1, 3)), "ERR01003", "Input query should not be empty."),
    "layout": (lambda: listed(layout_query="BNSD"), "ERR01003", "The layout of query only support BSND and TND, but got BNSD"),
    "mode": (lambda: listed(sparse_mode=2), "ERR01003", "sparse_mode is 2; allowed: 0, 3"),
    "pre_tokens": (lambda: listed(pre_tokens=4), "ERR01003", "pre_tokens is 4"),
    "sizes": (lambda: listed(k=(1, 4, 1, 4)), "ERR01001", "heads have size 8 and key's 4"),
    "lists": (lambda: listed(ids=(1, 3, 1, 3)), "ERR01001", "sparse_indices has shape [1, 3, 1, 3]"),
    "lengths": (lambda: listed(actual_seq_lengths_kv=ints(2)), "ERR01001", "actual_seq_lengths_kv has 2 numbers"),
    "pages": (lambda: listed(layout_kv="PA_BSND"), "ERR01001", "block_table is None"),
    "block size": (lambda: listed(sparse_block_size=0), "ERR01003", "sparse_block_size is 0"),
    "sinks": (lambda: listed(sinks=rand(3)), "ERR01001", "sinks has shape [3]; allowed: [2]"),
    "one rope": (lambda: listed(query_rope=rand(1, 2, 2, 4)), "ERR01001", "give both or none"),
    "key rows": (lambda: kv8(width=640), "ERR01001", "rows of 640; allowed: rows of 656 bytes"),
    "key mode": (lambda: kv8(key_mode=1), "ERR01003", "key_quant_mode is 1; allowed: 2"),
    "attention mode": (lambda: kv8(attention_mode=1), "ERR01003", "attention_mode is 1; allowed: 2"),
    "block rank": (lambda: blocks(shape=(4, 8), key=rand(1, 2, 4, 8, dtype=BF16)), "ERR01001", "query should be 3 or 4 dimensional, but got 2"),
    "blocks": (lambda: blocks(block=(128, 64)), "ERR01001", "block_shape[1] (blockShapeY) must be a multiple of 128, got 64"),
    "precise": (lambda: blocks(inner_precise=1), "ERR01001", "inner_precise must be 0, got 1"),
    "block dtypes": (lambda: blocks(key=rand(1, 2, 4, 8)), "ERR01001", "query, key, value must have the same dtype, got query=torch.bfloat16"),
    "block mask": (lambda: blocks(mask=(1, 1, 1, 1)), "ERR01001", "block_sparse_mask has shape [1, 1, 1, 1]"),
    "index count": (lambda: index(sparse_count=0), "ERR01003", "sparse_count should be greater than 0, but got 0"),
    "index empty": (lambda: index(q=(1, 0, 2, 8), w=(1, 0, 2)), "ERR01003", "Input query should not be empty."),
    "index heads": (lambda: index(k=(1, 4, 2, 8)), "ERR01001", "allowed: 1 head of size 8"),
    "index weights": (lambda: index(w=(1, 2, 3)), "ERR01001", "weights has shape [1, 2, 3]; allowed: [1, 2, 2]"),
    "quant index": (lambda: quant_index(1), "ERR01003", "No support of query"),
    "floyd": (lambda: floyd(key=(1, 1, 3, 4, 8)), "ERR01001", "key_ij has shape [1, 1, 3, 4, 8]"),
    "8-bit layout": (lambda: quant_fusion("TND"), "ERR01001", "but got TND"),
    "8-bit dtype": (lambda: quant_fusion(dtype=torch.float32), "ERR01002", "query is torch.float32"),
    "8-bit scale": (lambda: quant_fusion(scale=(1, 2, 3, 1)), "ERR01001", "d_scale_q has shape [1, 2, 3, 1]"),
    "compress weight": (lambda: compress(w=(3, 2)), "ERR01001", "weight [3, 2]"),
    "compress stride": (lambda: compress(stride=0), "ERR01003", "compress_stride is 0"),
    "compress ends": (lambda: compress(ends=[4, 9]), "ERR01001", "actual_seq_len is [4, 9], but the tensor has 8 rows"),
    "nsa stride": (lambda: compressed(stride=3), "ERR01003", "multiples of compress_stride 3"),
    "nsa heads": (lambda: compressed(heads=4), "ERR01001", "head_num is 4, query has 2 heads"),
    "nsa mask": (lambda: compressed(atten_mask=ints(5, 4, dtype=torch.bool)), "ERR01001", "atten_mask has shape [5, 4]; it needs at least [6, 4]"),
    "nsa sequences": (lambda: compressed(actual_seq_qlen=[3, 6]), "ERR01001", "they must have as many"),
    "select indices": (lambda: select(topk=(6, 1, 3)), "ERR01001", "topk_indices is torch.int32 [6, 1, 3]"),
    "select layout": (lambda: select_paged("SBH"), "ERR01003", "layout only support BSH or BSND or TND now. But got SBH"),
    "select table": (lambda: select_paged(table=None), "ERR01001", "block_table is None"),
    "select lengths": (lambda: select_paged(lengths=(6, 1)), "ERR01001", "actual_seq_kvlen has 2 numbers"),
    "token_x": (lambda: prolog(x=(1, 1, 2, 8)), "ERR01003", "token_x dim num should be 2 or 3, but the actual value is 4"),
    "weight_uk": (lambda: prolog(uk=(2, 4)), "ERR01003", "weight_uk dim num should be 3, but the actual value is 2"),
    "rope_sin": (lambda: prolog(sin=(4,)), "ERR01003", "rope_sin dim num should be 2 or 3, but the actual value is 1"),
    "cache mode": (lambda: prolog(cache_mode="PA"), "ERR01003", "cache_mode is PA; allowed: PA_BSND"),
    "cache width": (lambda: prolog(cache=(2, 4, 1, 8)), "ERR01001", "kv_cache has shape [2, 4, 1, 8]"),
    "cache dtype": (lambda: prolog(dtype=torch.int8), "ERR01002", "kv_cache is torch.int8 and the keys are not quantised"),
    "slots": (lambda: prolog(slots=3), "ERR01001", "cache_index has shape [3]"),
    "weight mode": (lambda: prolog(weight_quant_mode=6), "ERR01003", "weight_quant_mode is 6; allowed: 0, 1, 2, 3, 4, 5"),
    "query mode": (lambda: prolog(query_quant_mode=1), "ERR01003", "query_quant_mode is 1 and kv_cache_quant_mode 0"),
    "no scale": (lambda: prolog(weight_quant_mode=2), "ERR01002", "token_x is torch.float32; allowed: int8"),
    "heads backward": (lambda: projections(0), "ERR01001", "tgt_len, src_len, attn_head_num, attn_dim_per_head should not equal zero."),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    call, code, sentence = CASES[name]
    with pytest.raises((RuntimeError, NotImplementedError)) as error:
        call()
    text = str(error.value)
    assert sentence in text
    assert code in text.splitlines()[-1]
    assert text.startswith("npu_"), "the operator is named first"


def test_a_wrong_cache_of_two_leaves_the_other_alone():
    """Both caches are looked at before one is written."""
    kv = torch.zeros(2, 4, 1, 16).npu()
    with pytest.raises(RuntimeError, match="kr_cache has shape"):
        torch_npu.npu_mla_prolog_v3(
            rand(2, 8), rand(8, 8), rand(8, 16), rand(2, 4, 16), rand(8, 20), rand(8), rand(16),
            rand(2, 4), rand(2, 4), kv, rand(2, 4, 1, 8), cache_index=ints(2),
        )  # fmt: skip
    assert not kv.any()
