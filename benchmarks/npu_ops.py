# SPDX-License-Identifier: Apache-2.0
"""Ascend's own operators on npu against the same made of PyTorch's operators on the CPU.

python -m benchmarks.npu_ops [--clock cpu] [name ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks import measure

PAIRS = 15
LIMITS = {
    "attention": 1.0, "attention-causal": 1.0, "rms-norm": 0.7, "swiglu": 0.7, "rotary": 0.7,
    "grouped-matmul": 1.0, "moe-permute": 0.8, "mla-prolog": 1.0, "sparse-attention": 1.0,
    "delta-rule": 1.0, "geglu-small": 1.0,
}  # fmt: skip


def _rand(device: str, *size: int, seed: int = 0, grad: bool = True) -> torch.Tensor:
    x = torch.rand(size, generator=torch.Generator().manual_seed(seed)) - 0.5
    return x.to(device).requires_grad_(grad)


def _there_and_back(forward: Callable, *inputs: torch.Tensor) -> Callable[[], object]:
    with torch.no_grad():
        seed = torch.ones_like(forward(*inputs))
    wanted = [x for x in inputs if x.requires_grad]
    return lambda: torch.autograd.grad(forward(*inputs), wanted, seed)


def _attention(causal: bool):
    def make(device: str) -> Callable[[], object]:
        q, k, v = (_rand(device, 2, 8, 512, 64, seed=i) for i in range(3))
        if device == "cpu":
            return _there_and_back(
                lambda *x: F.scaled_dot_product_attention(*x, is_causal=causal), q, k, v
            )
        import torch_npu

        mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1).to(device) if causal else None
        return _there_and_back(
            lambda *x: torch_npu.npu_fusion_attention(
                *x, 8, "BNSD", scale=0.125, atten_mask=mask, sparse_mode=2 if causal else 0
            )[0],
            q, k, v,
        )  # fmt: skip

    return make


def _rms(device: str) -> Callable[[], object]:
    x, gamma = _rand(device, 2, 512, 1024), _rand(device, 1024, seed=1)
    if device == "cpu":
        return _there_and_back(
            lambda x, g: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g, x, gamma
        )
    import torch_npu

    return _there_and_back(lambda x, g: torch_npu.npu_rms_norm(x, g)[0], x, gamma)


def _swiglu(device: str) -> Callable[[], object]:
    def parts(x):
        a, b = x.chunk(2, -1)
        return F.silu(a) * b

    x = _rand(device, 2, 512, 4096)
    if device == "cpu":
        return _there_and_back(parts, x)
    import torch_npu

    return _there_and_back(torch_npu.npu_swiglu, x)


def _geglu_small(device: str) -> Callable[[], object]:
    """One call of 512 elements: what the host side costs."""
    x = _rand(device, 4, 128, grad=False)

    def parts():
        a, b = x.chunk(2, -1)
        gelu = F.gelu(b, approximate="tanh")
        return a * gelu, gelu

    if device == "cpu":
        return parts
    import torch_npu

    return lambda: torch_npu.npu_geglu(x)


def _rotary(device: str) -> Callable[[], object]:
    def parts(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    x = _rand(device, 2, 512, 16, 64)
    angles = [_rand(device, 1, 512, 1, 64, seed=i, grad=False) for i in (1, 2)]
    if device == "cpu":
        return _there_and_back(parts, x, *angles)
    import torch_npu

    return _there_and_back(torch_npu.npu_rotary_mul, x, *angles)


def _grouped(device: str) -> Callable[[], object]:
    x = _rand(device, 1024, 512, grad=False)
    weight = _rand(device, 8, 512, 1024, seed=1, grad=False)
    sizes = [128, 64, 192, 0, 256, 128, 100, 156]
    if device == "cpu":
        return lambda: torch.cat([a @ w for a, w in zip(x.split(sizes), weight)])
    import torch_npu

    counts = torch.tensor(sizes).to(device)
    return lambda: torch_npu.npu_grouped_matmul(
        [x], [weight], group_list=counts, split_item=3, group_type=0, group_list_type=1
    )


def _moe(device: str) -> Callable[[], object]:
    tokens, probs = _rand(device, 1024, 1024), _rand(device, 1024, 2, seed=1)
    chosen = torch.randint(0, 8, (1024, 2), generator=torch.Generator().manual_seed(2)).to(device)

    def parts(tokens, probs):
        order = torch.sort(chosen.flatten(), stable=True)[1]
        rows = tokens.index_select(0, order // 2)
        places = torch.argsort(order)
        back = rows.index_select(0, places).unflatten(0, (-1, 2))
        return (back * probs.unsqueeze(-1)).sum(1)

    if device == "cpu":
        return _there_and_back(parts, tokens, probs)
    import torch_npu

    def fused(tokens, probs):
        rows, places = torch_npu.npu_moe_token_permute(tokens, chosen)
        return torch_npu.npu_moe_token_unpermute(rows, places, probs)

    return _there_and_back(fused, tokens, probs)


def _mla_prolog(device: str) -> Callable[[], object]:
    """Queries and the latent key of 64 tokens, written into caches; inference only, as on Ascend.

    The sizes are those of DeepSeek-V2-Lite, with a query rank, which that model does not have.
    """
    hidden, rank, heads, head, latent, rope = 2048, 768, 16, 128, 512, 64
    x, down, up = (
        _rand(device, 1, 64, hidden, grad=False),
        _rand(device, hidden, rank, seed=1, grad=False),
        _rand(device, rank, heads * (head + rope), seed=2, grad=False),
    )
    key_up = _rand(device, heads, head, latent, seed=3, grad=False)
    both = _rand(device, hidden, latent + rope, seed=4, grad=False)
    gamma_q, gamma_k = (_rand(device, n, seed=5, grad=False) for n in (rank, latent))
    sin, cos = (_rand(device, 1, 64, rope, seed=i, grad=False) for i in (6, 7))
    slots = torch.arange(64).view(1, 64).to(device)
    cache = torch.zeros(4, 32, 1, latent, device=device)
    rope_cache = torch.zeros(4, 32, 1, rope, device=device)

    def turn(x):
        even, odd = x[..., 0::2], x[..., 1::2]
        x = torch.cat((even, odd), -1)
        a = sin if x.dim() == 3 else sin.unsqueeze(2)
        b = cos if x.dim() == 3 else cos.unsqueeze(2)
        return x * b + torch.cat((-odd, even), -1) * a

    def parts():
        q = F.rms_norm(x @ down, (rank,), gamma_q, 1e-5) @ up
        q, q_rope = q.view(1, 64, heads, head + rope).split((head, rope), -1)
        q = torch.einsum("btnd,ndc->btnc", q, key_up)
        key, key_rope = (x @ both).split((latent, rope), -1)
        cache.view(-1, latent).index_copy_(
            0, slots[0], F.rms_norm(key, (latent,), gamma_k, 1e-5)[0]
        )
        rope_cache.view(-1, rope).index_copy_(0, slots[0], turn(key_rope)[0])
        return q, turn(q_rope)

    if device == "cpu":
        return parts
    import torch_npu

    return lambda: torch_npu.npu_mla_prolog_v3(
        x, down, up, key_up, both, gamma_q, gamma_k, sin, cos, cache, rope_cache, cache_index=slots
    )


def _sparse_attention(device: str) -> Callable[[], object]:
    """Each of 128 queries sees 256 keys of 1,024, which a table names."""
    q = _rand(device, 1, 128, 16, 128)
    k, v = (_rand(device, 1, 1024, 1, 128, seed=i) for i in (1, 2))
    chosen = torch.stack([
        torch.randperm(1024, generator=torch.Generator().manual_seed(i))[:256] for i in range(128)
    ]).to(device)  # fmt: skip

    def parts(q, k, v):
        keys, values = k[0, :, 0][chosen], v[0, :, 0][chosen]
        weights = torch.softmax(q[0] @ keys.transpose(1, 2) * 0.1, -1)
        return (weights @ values).unsqueeze(0)

    if device == "cpu":
        return _there_and_back(parts, q, k, v)
    import torch_npu

    table = chosen.int().view(1, 128, 1, 256)

    def fused(q, k, v):
        return torch_npu.npu_sparse_flash_attention(
            q, k, v, table, 0.1, sparse_mode=0, return_softmax_lse=True
        )[0]

    return _there_and_back(fused, q, k, v)


def _delta_rule(device: str) -> Callable[[], object]:
    """The gated delta rule of 512 tokens, against the chunks that transformers' Qwen3-Next computes."""
    q, k, v = (_rand(device, 1, 512, 4, 64, seed=i, grad=False) for i in range(3))
    beta, decay = (_rand(device, 1, 512, 4, seed=i, grad=False) + 0.5 for i in (3, 4))
    state = torch.zeros(1, 4, 64, 64, device=device)
    if device == "cpu":
        from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

        return lambda: torch_chunk_gated_delta_rule(
            q, k, v, g=-decay, beta=beta, initial_state=state, output_final_state=True
        )
    import torch_npu

    length = torch.tensor([512], dtype=torch.int32).to(device)
    halves = [x[0].bfloat16() for x in (q, k, v, beta)]
    return lambda: torch_npu.npu_chunk_gated_delta_rule(
        *halves[:3], beta=halves[3], initial_state=state, actual_seq_lengths=length, scale=0.125,
        g=-decay[0],
    )  # fmt: skip


STEPS: dict[str, Callable[[str], Callable[[], object]]] = {
    "attention": _attention(False), "attention-causal": _attention(True), "rms-norm": _rms,
    "swiglu": _swiglu, "rotary": _rotary, "grouped-matmul": _grouped, "moe-permute": _moe,
    "geglu-small": _geglu_small, "mla-prolog": _mla_prolog, "sparse-attention": _sparse_attention, "delta-rule": _delta_rule,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clock", choices=measure.CLOCKS, default="wall")
    parser.add_argument("names", nargs="*", choices=[*STEPS, []])
    args = parser.parse_args()
    measure.use_clock(args.clock)
    torch.set_num_threads(2)
    import torch_npu  # noqa: F401

    missed = 0
    for name in args.names or STEPS:
        quiet, ratio = measure.against_cpu(STEPS[name], PAIRS)
        met = ratio.meets(LIMITS[name])
        missed += not met
        print(
            f"{name:18} {ratio}  bar {LIMITS[name]}x {'met' if met else 'MISSED'}  A/A {quiet.median:.3f}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
