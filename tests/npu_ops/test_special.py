# SPDX-License-Identifier: Apache-2.0
"""What the table cannot say: results in arguments, random numbers, bad arguments, tracing."""

import cases_attention as training
import cases_inference as attention
import cases_places as places
import pytest
import torch
import torch_npu
from table import DEVICE, rand

NARROW = torch.float32


def dev(x):
    return x.to(NARROW).to(DEVICE, copy=True) if x.is_floating_point() else x.to(DEVICE, copy=True)


def near(got, want, tolerance=1e-5):
    torch.testing.assert_close(got.cpu().double(), want.double(), rtol=tolerance, atol=tolerance)


def test_paged_attention():
    q, kc, vc, kv, n, scale, table, lens = attention.ATB
    want = torch.zeros_like(q)
    attention.atb_paged(q, kc, vc, kv, n, scale, table, lens, want)
    out = dev(torch.zeros_like(q))
    assert (
        torch_npu._npu_paged_attention(
            dev(q), dev(kc), dev(vc), kv, n, scale, dev(table), lens, out
        )
        is None
    )
    near(out, want)


def test_flash_attention_unpad():
    q, k, v, lens, scale, n, kv = attention.UNPAD
    ends = lens.cumsum(0).tolist()
    split = [x.reshape(x.shape[0], h, -1) for x, h in ((q, n), (k, kv), (v, kv))]
    want = training.fusion(
        *split, n, "TND", scale=scale, actual_seq_qlen=ends, actual_seq_kvlen=ends
    )[0]
    out = dev(torch.zeros_like(q))
    torch.ops.atb._npu_flash_attention_unpad(dev(q), dev(k), dev(v), lens, scale, n, kv, out)
    near(out, want.reshape(q.shape))


def test_caches_are_written():
    key, value, kc, vc = places.norm
    want = places.stored(key, value, kc.clone(), vc.clone(), places.SLOTS)
    for call in (
        torch_npu._npu_reshape_and_cache,
        lambda *a: torch_npu.npu_scatter_pa_kv_cache(*a, cache_mode="Norm"),
    ):
        caches = dev(kc), dev(vc)
        call(dev(key), dev(value), *caches, dev(places.SLOTS))
        for got, expected in zip(caches, want, strict=True):
            near(got, expected)
    only = dev(kc)
    torch.ops.atb._npu_reshape_and_cache_siso(dev(key), only, dev(places.SLOTS))
    near(only, want[0])


def test_caches_are_read():
    lens = torch.tensor([5, 6])
    want = places.fetched(*places.pages, lens, torch.zeros(11, 2, 8), torch.zeros(11, 2, 8))
    outs = dev(torch.zeros(11, 2, 8)), dev(torch.zeros(11, 2, 8))
    torch_npu.npu_gather_pa_kv_cache(*[dev(x) for x in places.pages], dev(lens), *outs)
    for got, expected in zip(outs, want, strict=True):
        near(got, expected)


def test_rotary_changes_its_inputs():
    q, k, cos, sin = (dev(rand(2, 5, n, 8)) for n in (3, 1, 1, 1))
    before = q.clone()
    out = torch_npu.npu_apply_rotary_pos_emb(q, k, cos, sin)
    assert torch.equal(out[0], q) and torch.equal(out[1], k) and not torch.equal(before, q)


@pytest.mark.parametrize("mode", ["half", "interleave", "quarter"])
def test_rotary_turns_back(mode):
    """Without gradients of cos and sin, backward is a turn the other way."""
    x, grad = rand(2, 5, 3, 8), rand(2, 5, 3, 8)
    cos, sin = rand(1, 5, 1, 8), rand(1, 5, 1, 8)
    place = {
        "half": [4, 5, 6, 7, 0, 1, 2, 3],
        "interleave": [1, 0, 3, 2, 5, 4, 7, 6],
        "quarter": [2, 3, 0, 1, 6, 7, 4, 5],
    }[mode]
    sign = torch.tensor([-1.0 if place[k] > k else 1.0 for k in range(8)], dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    out = leaf * cos + leaf[..., place] * sign * sin
    want = torch.autograd.grad(out, leaf, grad)[0]
    mine = dev(x).requires_grad_()
    got = torch_npu.npu_rotary_mul(mine, dev(cos), dev(sin), mode)
    near(got.detach(), out.detach())
    near(torch.autograd.grad(got, mine, dev(grad))[0], want)


def test_gradients_of_gradients():
    """The gradient's own kernel is left for a composition that autograd sees through."""
    x, gamma = rand(3, 8), rand(8)

    def double(x, gamma, norm):
        leaf = x.requires_grad_()
        first = torch.autograd.grad(norm(leaf, gamma).pow(3).sum(), leaf, create_graph=True)[0]
        return torch.autograd.grad(first.pow(2).sum(), leaf)[0]

    want = double(
        x.clone(), gamma, lambda x, g: x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6) * g
    )
    zero = dev(torch.zeros_like(x))
    for norm in (
        lambda x, g: torch_npu.npu_rms_norm(x, g)[0],
        lambda x, g: torch_npu.npu_add_rms_norm(x, zero, g)[0],
    ):
        near(double(dev(x), dev(gamma), norm), want, 1e-3)
    q = rand(1, 1, 4, 8)
    want = double(
        q.clone(), None, lambda q, _: torch.softmax(q @ q.transpose(-1, -2) * 0.25, -1) @ q
    )
    attend = lambda q, _: torch_npu.npu_fusion_attention(q, q, q, 1, "BNSD", scale=0.25)[0]  # noqa: E731
    near(double(dev(q), None, attend), want, 1e-3)


def test_add_rms_norm_v2_changes_its_inputs():
    a, b, gamma = rand(3, 8), rand(3, 8), rand(8)
    rstd = (((a + b) ** 2).mean(-1, keepdim=True) + 1e-6) ** -0.5
    x1, x2 = dev(a), dev(b)
    near(torch_npu.npu_add_rms_norm_v2(x1, x2, dev(gamma)), rstd)
    near(x1, (a + b) * rstd * gamma)
    near(x2, a + b)


@pytest.mark.parametrize("size", [8, 7])
def test_gradients_of_spectra(size):
    x = rand(3, size).requires_grad_()
    spectrum = torch.fft.rfft(x)
    grad = torch.complex(rand(*spectrum.shape), rand(*spectrum.shape))
    want = torch.autograd.grad(spectrum, x, grad)[0]
    got = torch.ops.npu.fft_r2c_backward(grad.to(DEVICE), [1], 0, True, size)
    near(got, want)
    half = torch.complex(rand(*spectrum.shape), rand(*spectrum.shape)).requires_grad_()
    back = torch.fft.irfft(half, size, norm="forward")
    grad = rand(*back.shape)
    want = torch.autograd.grad(back, half, grad)[0]
    got = torch.ops.npu.fft_c2r_backward(grad.to(DEVICE), [1], 0)
    torch.testing.assert_close(got.cpu(), want)


def bits(mask, count):
    return torch.tensor([b >> k & 1 for b in mask.cpu().tolist() for k in range(8)])[:count]


def test_dropout_mask_says_what_was_kept():
    x = dev(torch.rand(300) + 1)
    y, mask = torch_npu._npu_dropout(x, 0.25)
    kept = bits(mask, 300)
    assert mask.dtype == torch.uint8 and mask.numel() == (300 + 127) // 128 * 16
    near(y, x.cpu() * kept / 0.75)
    assert 0.6 < kept.double().mean() < 0.9
    near(torch.ops.npu.npu_dropout_do_mask(x, mask, 0.25)[0], y.cpu())
    near(torch.ops.npu.npu_dropout_backward(x, mask, 0.25), y.cpu())


def test_dropout_with_add_softmax():
    x, x1 = dev(rand(4, 64)), dev(rand(4, 64))
    mask, s, d = torch_npu.npu_dropout_with_add_softmax(x, x1, 0.5, 0.25, -1)
    want = torch.softmax(x1.cpu().double() + 0.5 * x.cpu().double(), -1)
    near(s, want)
    near(d, want * bits(mask, 256).reshape(4, 64) / 0.75)


def test_dropout_with_bytes():
    x = dev(torch.rand(300) + 1)
    y, mask = torch.ops.npu._dropout_with_byte_mask(x, 0.25)
    assert mask.dtype == torch.uint8 and 0.6 < mask.double().mean() < 0.9
    near(y, x.cpu() * mask.cpu() / 0.75)
    near(torch.ops.npu._dropout_with_byte_mask_backward(x, mask, 0.25), y.cpu())
    assert torch.equal(torch_npu.dropout_with_byte_mask(x, 0.25, False), x)
    assert (torch_npu.dropout_with_byte_mask(x, 0.25, True) == 0).any()


def test_gradient_of_dropout_with_add_softmax():
    x, x1, grad = rand(4, 64), rand(4, 64), rand(4, 64)
    mask, s, _ = torch_npu.npu_dropout_with_add_softmax(dev(x), dev(x1), 0.5, 0.25, -1)
    got = torch.ops.npu.npu_dropout_with_add_softmax_backward(dev(grad), mask, s, 0.5, 0.25, -1)
    leaves = x.requires_grad_(), x1.requires_grad_()
    soft = torch.softmax(leaves[1] + 0.5 * leaves[0], -1)
    want = torch.autograd.grad(soft * bits(mask, 256).reshape(4, 64) / 0.75, leaves, grad)
    for a, b in zip(got, want, strict=True):
        near(a, b)


def test_lists_are_written():
    tensors, updates = [rand(2, 6, 4), rand(2, 5, 4)], rand(2, 2, 2, 4)
    want = [x.clone() for x in tensors]
    for x, start, new in zip(want, (1, 3), updates):
        x[:, start : start + 2] = new
    given = [dev(x) for x in tensors]
    torch_npu.npu_scatter_list_(given, dev(torch.tensor([1, 3])), dev(updates))
    for got, expected in zip(given, want, strict=True):
        near(got, expected)


def test_outputs_of_attention_are_foreseen():
    """The shapes promised before the call are those of its results."""
    for layout, size in (("BNSD", (2, 2, 5, 8)), ("BSH", (2, 5, 16)), ("SBH", (5, 2, 16))):
        q = dev(rand(*size))
        real = torch_npu.npu_fusion_attention_v3(q, q, q, 2, layout)
        empty = torch.ops.npu._npu_fusion_attention_v3_infer_output(q, q, q, 2, layout)
        assert [(x.shape, x.dtype) for x in empty] == [(x.shape, x.dtype) for x in real[:3]]
        # value's heads are narrower, and there are fewer
        k, v = (q[..., :8], q[..., :4]) if q.dim() == 3 else (q[:, :1], q[:, :1, :, :4])
        real = torch_npu.npu_fusion_attention_v3(q, k, v, 2, layout)
        empty = torch.ops.npu._npu_fusion_attention_v3_infer_output(q, k, v, 2, layout)
        assert [x.shape for x in empty] == [x.shape for x in real[:3]]
        grads = torch.ops.npu._npu_fusion_attention_grad_v3_infer_output(q, q, q)
        assert [x.shape for x in grads] == [q.shape, q.shape, q.shape, (0,), (0,)]
        for name in (
            "fusion_attention_v3",
            "fused_infer_attention_score",
            "fused_infer_attention_score_v2",
        ):
            ask = getattr(torch.ops.npu, f"_npu_{name}_get_max_workspace")
            assert ask(q, q, q, *((2, layout) if "v3" in name else ())).numel() == 0
        assert (
            torch.ops.npu._npu_fusion_attention_grad_v3_get_max_workspace(
                q, q, q, q, 2, layout
            ).numel()
            == 0
        )


@pytest.mark.parametrize(
    "layout",
    [
        "BSH",
        "BSND",
        "BNSD",
        "BNSD_BSND",
        "BSH_BNSD",
        "BNSD_NBSD",
        "TND",
        "TND_NTD",
        "NTD_TND",
        "NSD",
    ],
)
@pytest.mark.parametrize("lse", [False, True])
def test_outputs_of_inference_are_foreseen(layout, lse):
    """4 heads of 8 over 2 of value's 4."""
    first = layout.split("_")[0]
    sizes = {"B": 2, "S": 5, "T": 6}
    q, k, v = (
        dev(rand(*[{**sizes, "N": n, "D": d, "H": n * d}[letter] for letter in first]))
        for n, d in ((4, 8), (2, 8), (2, 4))
    )
    ends = {"actual_seq_lengths": [2, 6], "actual_seq_lengths_kv": [2, 6]} if "T" in first else {}
    common = {"input_layout": layout, "num_key_value_heads": 2}
    real = torch_npu.npu_fused_infer_attention_score(
        q, k, v, num_heads=4, softmax_lse_flag=lse, **common, **ends
    )
    for empty in (
        torch.ops.npu._npu_fused_infer_attention_score_infer_output(
            q, v, num_heads=4, softmax_lse_flag=lse, **common
        ),
        torch.ops.npu._npu_fused_infer_attention_score_v2_infer_output(
            q, v, num_query_heads=4, return_softmax_lse=lse, **common
        ),
    ):
        assert [(x.shape, x.dtype) for x in empty] == [(x.shape, x.dtype) for x in real]


def test_attention_dropout_and_its_gradient():
    """Seed and offset of the forward pass rebuild the mask in backward."""
    q, k, v = (dev(rand(1, 2, 16, 8)).requires_grad_() for _ in range(3))
    out, m, s, _, seed, offset, numels = torch_npu.npu_fusion_attention(
        q, k, v, 2, "BNSD", scale=0.3, keep_prob=0.5
    )
    assert numels == 2 * 16 * 16 and seed != 0
    dy = dev(rand(1, 2, 16, 8))
    want = torch.autograd.grad(out, (q, k, v), dy)
    with torch.no_grad():
        got = torch.ops.npu.npu_fusion_attention_grad(
            q, k, v, dy, 2, "BNSD", softmax_max=m, softmax_sum=s, attention_in=out, scale_value=0.3, keep_prob=0.5,
            seed=seed, offset=offset, numels=numels,
        )  # fmt: skip
    for a, b in zip(got[:3], want, strict=True):
        near(a, b.cpu().double(), 1e-4)
    torch.manual_seed(3)
    first = torch_npu.npu_fusion_attention(q, k, v, 2, "BNSD", keep_prob=0.5)[0]
    torch.manual_seed(3)
    assert torch.equal(first, torch_npu.npu_fusion_attention(q, k, v, 2, "BNSD", keep_prob=0.5)[0])


@pytest.mark.parametrize("layout", ["BNSD", "TND"])
def test_attention_drops_by_the_generated_mask(layout):
    packed = layout == "TND"
    q, k, v = (dev(rand(*((24, 2, 8) if packed else (1, 2, 24, 8)))) for _ in range(3))
    ends = {"actual_seq_qlen": [8, 24], "actual_seq_kvlen": [8, 24]} if packed else {}
    torch.npu.manual_seed(5)
    out, _, _, _, seed, offset, numels = torch_npu.npu_fusion_attention(
        q, k, v, 2, layout, keep_prob=0.75, **ends
    )
    torch.npu.manual_seed(5)
    again = torch_npu.npu_fusion_attention(q, k, v, 2, layout, keep_prob=0.75, **ends)
    assert torch.equal(out, again[0]), "the device's generator decides"
    for words in (seed, offset), (2**62 + 1, 8):
        mask = torch_npu._npu_dropout_gen_mask(q, [numels], 0.25, *words, parallel=True, sync=False)
        given = torch_npu.npu_fusion_attention(
            q, k, v, 2, layout, keep_prob=0.75, seed=words[0], offset=words[1], **ends
        )
        by_mask = torch_npu.npu_fusion_attention(
            q, k, v, 2, layout, keep_prob=0.75, dropout_mask=mask, **ends
        )
        near(given[0], by_mask[0].cpu().double(), 1e-6)
        assert torch.equal(given[0], out) == (words == (seed, offset))


def test_attention_with_a_given_mask():
    q = dev(rand(1, 1, 2, 8))
    keep = torch.tensor([0b0110], dtype=torch.uint8)
    out = torch_npu.npu_fusion_attention(q, q, q, 1, "BNSD", keep_prob=0.5, dropout_mask=dev(keep))[
        0
    ]
    x = q.cpu().double()[0, 0]
    p = torch.softmax(x @ x.T, -1) * torch.tensor([[0, 1], [1, 0]]) / 0.5
    near(out[0, 0], p @ x)


def test_prefetch_and_functional_adam():
    assert torch_npu.npu_prefetch(dev(rand(4)), None, 16) is None
    with pytest.raises(RuntimeError, match="npu_apply_adam is not implemented for Tensor"):
        torch_npu.npu_apply_adam(0.9, 0.9, 0.1, 0.9, 0.9, 1e-6, dev(rand(2)), False, False)


BAD = [
    ("npu_rms_norm", lambda: (rand(2, 8), rand(7)), "gamma has shape \\[7\\]", "ERR01001"),
    ("npu_rms_norm", lambda: (rand(2, 8), rand(8), -1.0), "epsilon is -1.0", "ERR01003"),
    (
        "npu_fusion_attention",
        lambda: (rand(2, 3, 8), rand(2, 3, 8), rand(2, 3, 8), 0, "BSH"),
        "head_num must > 0, but got 0",
        "ERR01001",
    ),
    (
        "npu_fusion_attention",
        lambda: (rand(2, 3, 8), rand(2, 3, 8), rand(2, 3, 8), 2, "BHS"),
        "should be BSH/SBH/BNSD/BSND/TND",
        "ERR01001",
    ),
    (
        "npu_fusion_attention",
        lambda: (rand(3, 8), rand(3, 8), rand(3, 8), 2, "BSH"),
        "query should be 3 or 4 dimensional",
        "ERR01001",
    ),
    ("npu_swiglu", lambda: (rand(2, 7),), "should be divisible by 2, but get \\[7\\]", "ERR01001"),
    ("npu_swiglu", lambda: (rand(2, 8), 5), "dim is 5", "ERR01003"),
    (
        "npu_rotary_mul",
        lambda: (rand(2, 8), rand(2, 8), rand(2, 8), "full"),
        "should be half or interleave, but got full",
        "ERR01001",
    ),
    (
        "npu_moe_token_permute",
        lambda: (rand(2, 2, 3), torch.tensor([0])),
        "tokens should be 2 dimensional",
        "ERR01001",
    ),
    ("npu_dynamic_quant", lambda: (rand(8),), "greater than 1", "ERR01001"),
    (
        "npu_quantize",
        lambda: (rand(2, 4), rand(4), None, 6),
        "must be Int8, UInt8, Int32",
        "ERR01002",
    ),
    (
        "npu_convert_weight_to_int4pack",
        lambda: (torch.zeros(2, 7, dtype=torch.int32),),
        "must be divded by 8",
        "ERR01001",
    ),
    ("npu_slice", lambda: (rand(2, 3), [0, 2], [2, 2]), "leave the input's size 3", "ERR01003"),
    (
        "npu_scaled_masked_softmax",
        lambda: (rand(2, 3), torch.zeros(2, 3)),
        "mask is torch.float32",
        "ERR01002",
    ),
    ("npu_iou", lambda: (rand(2, 3), rand(2, 4)), "bboxes has shape", "ERR01001"),
    (
        "npu_ffn",
        lambda: (rand(2, 4), rand(4, 4), rand(4, 4), "tanh"),
        "activation is tanh",
        "ERR01003",
    ),
    (
        "npu_scatter",
        lambda: (rand(2, 3), torch.tensor([0]), rand(1, 1), 0),
        "indices has shape",
        "ERR01001",
    ),
    ("npu_indexing", lambda: (rand(2, 3), [0], [1, 2], [1]), "give as many", "ERR01001"),
    ("npu_renorm_backward", lambda: (rand(2, 3), rand(2, 3), 2.0, 5, 1.0), "dim is 5", "ERR01003"),
    ("kl_div_backward", lambda: (rand(2), rand(2), rand(2), 7), "reduction is 7", "ERR01003"),
    (
        "npu_moe_token_permute_grad_v2",
        lambda: (rand(4, 2), torch.tensor([0, 1, 2]), 2, torch.float32, 2),
        "sorted_indices has 3",
        "ERR01001",
    ),
    (
        "npu_masked_fill_range",
        lambda: (rand(2, 3), torch.tensor([[0]]), torch.tensor([[1, 2]]), rand(1)),
        "start has shape",
        "ERR01001",
    ),
    ("img_to_tensor", lambda: (rand(2, 3),), "allowed: uint8", "ERR01001"),
]


@pytest.mark.parametrize(
    "name, make, text, code", BAD, ids=lambda v: v if isinstance(v, str) else ""
)
def test_bad_arguments(name, make, text, code):
    args = [dev(a) if isinstance(a, torch.Tensor) else a for a in make()]
    with pytest.raises(RuntimeError, match=text) as caught:
        getattr(torch_npu, name)(*args)
    assert code in str(caught.value)


def test_grouped_matmul_says_what_is_wrong():
    x, w = [dev(rand(4, 3))], [dev(rand(2, 3, 5))]
    ends = dev(torch.tensor([1, 4]))
    for kwargs, text in (
        ({"group_list": ends}, "Requires manual passing group_type"),
        (
            {"group_list": ends, "group_type": 1},
            "group type must be -1, 0 or 2, but now is \\[1\\]",
        ),
        (
            {"group_list": ends, "group_type": 0, "split_item": 4},
            "Invalid value of split_item \\[4\\]",
        ),
        (
            {"group_list": dev(torch.tensor([1, 9])), "group_type": 0, "split_item": 3},
            "holds 9 rows, but x has 4",
        ),
    ):
        with pytest.raises(RuntimeError, match=text):
            torch_npu.npu_grouped_matmul(x, w, **kwargs)


CAST = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
    torch.float64, torch.bool, torch.bfloat16, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("source", CAST, ids=str)
def test_dtype_cast_between_all_dtypes(source):
    """By torch.dtype, which arrives as PyTorch's number, and by torch_npu's own number."""
    x = torch.tensor([0, 1, 3], dtype=source, device=DEVICE)
    for target in CAST:
        own = getattr(torch_npu._dtypes, str(target).removeprefix("torch."))
        filled = torch.zeros(3, dtype=target, device=DEVICE)
        for y in (
            torch_npu.npu_dtype_cast(x, target),
            torch_npu.npu_dtype_cast(x, own),
            torch_npu._npu_dtype_cast(x, target),
            torch_npu.npu_dtype_cast_(filled, x),
        ):
            assert y.dtype == target
            assert torch.equal(y.cpu(), x.cpu().to(target))


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("cast", [torch_npu.npu_dtype_cast, torch_npu._npu_dtype_cast])
def test_dtype_cast_has_gradients_of_gradients(cast):
    x = dev(rand(3)).double().requires_grad_()
    z = torch.complex(rand(3), rand(3)).to(x.device, torch.complex128).requires_grad_()
    for leaf, target in ((x, torch.float64), (x, torch.complex128), (z, torch.complex128)):
        assert torch.autograd.gradcheck(lambda t, to=target: cast(t, to) ** 2, leaf)
        assert torch.autograd.gradgradcheck(lambda t, to=target: cast(t, to) ** 2, leaf)
    for leaf, target in ((x, torch.float16), (x, torch.complex64), (z, torch.float32)):
        (grad,) = torch.autograd.grad(cast(leaf, target).abs().sum(), leaf)
        assert grad.dtype == leaf.dtype


@pytest.mark.skipif(DEVICE != "npu", reason="formats are of npu storages")
@pytest.mark.skipif(DEVICE != "npu", reason="formats are of npu storages")
def test_format_cast():
    x = dev(rand(16, 16))
    assert torch.equal(torch.ops.npu._npu_format_cast(x, 29), x)


def test_autocast_stays_outside():
    x = dev(rand(4, 8))
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert torch_npu.npu_linear(x, x).dtype == torch.float32


def test_compiles():
    def model(q, x, gamma):
        out = torch_npu.npu_fusion_attention(q, q, q, 2, "BSH", scale=0.3)[0]
        y = torch_npu.npu_rms_norm(out + x, gamma)[0]
        return torch_npu.npu_swiglu(y).sum()

    inputs = [
        dev(rand(2, 5, 16)).requires_grad_(),
        dev(rand(2, 5, 16)).requires_grad_(),
        dev(rand(16)).requires_grad_(),
    ]
    want = torch.autograd.grad(model(*inputs), inputs)
    compiled = torch.compile(model, backend="aot_eager", dynamic=True, fullgraph=True)
    for got, expected in zip(torch.autograd.grad(compiled(*inputs), inputs), want, strict=True):
        near(got, expected.cpu().double(), 1e-5)


def test_group_quant_takes_the_quantised_dtypes_name():
    x, scale = dev(rand(6, 4)), dev(rand(2, 4))
    ends = torch.tensor([2, 6], dtype=torch.int32, device=DEVICE)
    named = torch_npu.npu_group_quant(x, scale, ends, dst_dtype=torch.qint8)
    assert named.dtype == torch.int8
    assert torch.equal(named, torch_npu.npu_group_quant(x, scale, ends, dst_dtype=torch.int8))
