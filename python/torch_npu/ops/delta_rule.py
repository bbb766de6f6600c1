# SPDX-License-Identifier: Apache-2.0
"""The gated delta rule: linear attention whose state forgets, and corrects what it holds for a key.

Per value head, with the state S (Dv, Dk): S decays by e^g and column by column by e^gk; then
S += β (v - S k) kᵀ, and the result is scale · S q.
"""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import floating, require, shapes, wide

_CHUNK = 64


def _check(name, query, key, value, beta, state, scale, lengths, g, gk=None, what="state") -> None:
    for argument, t in (("query", query), ("key", key), ("value", value)):
        require(t.dim() == 3, f"{name}: {argument} dim should be 3, but got {t.dim()}.")
    require(state.dim() == 4, f"{name}: {what} dim should be 4, but got {state.dim()}.")
    require(scale is not None, f"{name}: scale cannot be empty. Give 1 / sqrt(head size), or 1.")
    floating(name, query=query, key=key, value=value, beta=beta, g=g, gk=gk)
    floating(name, **{what: state})
    tokens, heads, size = value.shape
    keys, key_size = key.size(1), key.size(2)
    require(
        keys > 0 and heads % keys == 0,
        f"{name}: value has {heads} heads and key {keys}; the first must be a multiple of the second.",
    )
    of_keys, of_heads = (tokens, keys, key_size), (tokens, heads)
    shapes(
        name, query=(query, of_keys), key=(key, of_keys), beta=(beta, of_heads), g=(g, of_heads),
        gk=(gk, (*of_heads, key_size)), **{what: (state, (state.size(0), heads, size, key_size))},
    )  # fmt: skip
    require(
        lengths is None or lengths.dim() == 1,
        f"{name}: actual_seq_lengths has {None if lengths is None else lengths.dim()} dimensions; allowed: 1.",
    )


def _lengths(name, lengths, tokens: int) -> list[int]:
    """Tokens of each sequence; not cumulative."""
    found = [tokens] if lengths is None else lengths.tolist()
    require(
        all(n >= 0 for n in found) and sum(found) <= tokens,
        f"{name}: actual_seq_lengths is {found}; allowed: lengths that add up to at most {tokens}, the tokens of query.",
        "VALUE",
    )
    return found


def _starts(lengths: list[int], device):
    ends = torch.tensor(lengths, device=device).cumsum(0)
    return ends - torch.tensor(lengths, device=device)


def _slots(name, indices, accepted, starts, lengths, tokens: int, slots: int):
    """(slot of each token, slot each sequence begins from)"""
    if indices is None:
        indices = torch.zeros(tokens, dtype=torch.int64, device=starts.device)
    shapes(
        name, ssm_state_indices=(indices, (tokens,)), num_accepted_tokens=(accepted, starts.shape)
    )
    used = indices[: sum(lengths)].to(torch.int64)
    require(
        bool(((used >= 0) & (used < slots)).all()),
        f"{name}: ssm_state_indices is {used.tolist()}; allowed: 0 to {slots - 1}, the slots of state.",
        "VALUE",
    )
    back = torch.zeros_like(starts) if accepted is None else accepted.to(torch.int64) - 1
    sizes = torch.tensor(lengths, device=starts.device)
    require(
        bool(((back >= 0) & (back < sizes) | (sizes == 0)).all()),
        f"{name}: num_accepted_tokens is {(back + 1).tolist()}; allowed: 1 to the sequence's length, {lengths}.",
        "VALUE",
    )
    return used, used[(starts + back).clamp(0, max(len(used) - 1, 0))] if len(used) else starts


def _recurrent(name, query, key, value, state, beta, scale, lengths, indices, accepted, g, gk):
    """The result. Wrong arguments raise before `state` is written."""
    _check(name, query, key, value, beta, state, scale, lengths, g, gk)
    tokens, heads, _ = value.shape
    lengths = _lengths(name, lengths, tokens)
    starts = _starts(lengths, query.device)
    slots, first = _slots(name, indices, accepted, starts, lengths, tokens, state.size(0))
    out = torch.zeros(value.shape, dtype=torch.bfloat16, device=value.device)
    group = heads // key.size(1)
    q, k = (wide(t).repeat_interleave(group, 1).unsqueeze(-1) for t in (query, key))
    v = wide(value).unsqueeze(-1)
    beta = None if beta is None else wide(beta)[..., None, None]
    # What a token's state is multiplied by, for whole states or for their columns.
    decay = None if g is None else torch.exp(wide(g))[..., None, None]
    columns = None if gk is None else torch.exp(wide(gk)).unsqueeze(-2)
    # Sequences of one length or more take their step together; the longest go on last.
    order = sorted(range(len(lengths)), key=lambda b: -lengths[b])
    order = torch.tensor(order, dtype=torch.int64, device=starts.device)
    S, starts = wide(state)[first[order]], starts[order]
    for step in range(max(lengths, default=0)):
        left = sum(n > step for n in lengths)
        rows, S = starts[:left] + step, S[:left]
        S = S if decay is None else S * decay[rows]
        S = S if columns is None else S * columns[rows]
        found = v[rows] - S @ k[rows]
        found = found if beta is None else found * beta[rows]
        S = S + found * k[rows].transpose(-1, -2)
        out[rows] = (S @ q[rows]).squeeze(-1).mul(scale).to(out.dtype)
        state[slots[rows]] = S.to(state.dtype)
    return out


def _recurrent_meta(query, key, value, state, *, beta=None, scale=None, actual_seq_lengths=None, g=None, gk=None,
                    **rest):  # fmt: skip
    name = "npu_recurrent_gated_delta_rule"
    _check(name, query, key, value, beta, state, scale, actual_seq_lengths, g, gk)
    return value.new_empty(value.shape, dtype=torch.bfloat16)


@implements("npu_recurrent_gated_delta_rule", meta=_recurrent_meta)
def npu_recurrent_gated_delta_rule(
    query, key, value, state, *, beta=None, scale=None, actual_seq_lengths=None, ssm_state_indices=None,
    num_accepted_tokens=None, g=None, gk=None,
):  # fmt: skip
    """After each token its slot of `state` holds the state."""
    return _recurrent(
        "npu_recurrent_gated_delta_rule", query, key, value, state, beta, scale, actual_seq_lengths,
        ssm_state_indices, num_accepted_tokens, g, gk,
    )  # fmt: skip


def _functional_meta(query, key, value, state, **rest):
    return _recurrent_meta(query, key, value, state, **rest), torch.empty_like(state)


@implements("npu_recurrent_gated_delta_rule_functional", meta=_functional_meta)
def npu_recurrent_gated_delta_rule_functional(query, key, value, state, **rest):
    state = state.clone()
    return npu_recurrent_gated_delta_rule(query, key, value, state, **rest), state


def _chunk_meta(
    query, key, value, *, beta=None, initial_state=None, actual_seq_lengths=None, scale=None, g=None
):
    _check_chunk(query, key, value, beta, initial_state, actual_seq_lengths, scale, g)
    return value.new_empty(value.shape, dtype=torch.bfloat16), torch.empty_like(initial_state)


def _check_chunk(query, key, value, beta, initial_state, lengths, scale, g) -> None:
    name = "npu_chunk_gated_delta_rule"
    for what, given in (
        ("beta", beta),
        ("initial_state", initial_state),
        ("actual_seq_lengths", lengths),
    ):
        require(given is not None, f"{name}: {what} cannot be empty.")
    _check(name, query, key, value, beta, initial_state, scale, lengths, g, what="initial_state")
    require(
        lengths.size(0) == initial_state.size(0),
        f"{name}: actual_seq_lengths has {lengths.size(0)} elements and initial_state {initial_state.size(0)} states; "
        "they must be as many.",
    )


@implements("npu_chunk_gated_delta_rule", meta=_chunk_meta)
def npu_chunk_gated_delta_rule(
    query, key, value, *, beta=None, initial_state=None, actual_seq_lengths=None, scale=None, g=None
):
    _check_chunk(query, key, value, beta, initial_state, actual_seq_lengths, scale, g)
    tokens, heads, _ = value.shape
    lengths = _lengths("npu_chunk_gated_delta_rule", actual_seq_lengths, tokens)
    longest = max(lengths, default=0)
    if not longest:
        return torch.zeros_like(value, dtype=torch.bfloat16), initial_state.clone()
    size = min(_CHUNK, longest)
    padded = -(-longest // size) * size
    # Sequences of whole chunks, one after another, are a view of the tokens.
    whole = padded * len(lengths) == tokens
    if not whole:
        places = torch.arange(padded, device=value.device)
        inside = places < torch.tensor(lengths, device=value.device)[:, None]
        rows = (_starts(lengths, value.device)[:, None] + places).clamp(max=tokens - 1)

    given = [t for t in (query, key, value, beta, g, initial_state) if t is not None]
    kind = torch.float64 if any(t.dtype == torch.float64 for t in given) else torch.float32

    def chunks(t):
        """(chunk, B · heads, size, …); tokens behind the end are zeros, which leave the state as it is.
        Contiguous: matmul and the solver would copy anything else, each time."""
        if whole:
            t = t.unflatten(0, (-1, padded))
        else:
            t = t[rows] * inside.view(*inside.shape, *[1] * (t.dim() - 1))
        t = t.unflatten(1, (-1, size)).transpose(2, 3).transpose(0, 1)
        return t.to(kind, memory_format=torch.contiguous_format).contiguous().flatten(1, 2)

    group = heads // key.size(1)
    q, k = chunks(query), chunks(key)
    if group > 1:
        q, k = q.repeat_interleave(group, 1), k.repeat_interleave(group, 1)
    g = g if g is not None else torch.zeros_like(wide(beta))
    found, state = _chunks(
        q * scale, k, chunks(value), chunks(beta), chunks(g), initial_state.to(kind).flatten(0, 1)
    )
    found = found.unflatten(1, (len(lengths), heads)).permute(1, 0, 3, 2, 4)
    found = found.to(torch.bfloat16, memory_format=torch.contiguous_format).flatten(1, 2)
    if whole:
        out = found.flatten(0, 1)
    else:
        out = torch.zeros(value.shape, dtype=torch.bfloat16, device=value.device)
        out[rows[inside]] = found[inside]
    return out, state.view(initial_state.shape).to(initial_state.dtype)


def _chunks(q, k, v, beta, g, state):
    """The recurrence by chunks: inside one, the corrections solve a triangular system.

    Everything has the batch and the heads in one dimension: bmm takes it without views of its own."""
    decay = g.cumsum(-1)
    # Above the diagonal exp may overflow; tril_ writes zeros there.
    between = torch.exp(decay.unsqueeze(-1) - decay.unsqueeze(-2)).tril_()
    beta = beta.unsqueeze(-1)
    kt = k.transpose(-1, -2)
    system = (k @ kt).mul_(beta).mul_(between)  # what lies below its diagonal of ones
    since = torch.exp(decay).unsqueeze(-1)
    right = torch.cat((v, k * since), -1).mul_(beta)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    parts = (
        *solved.split((v.size(-1), k.size(-1)), -1),
        q * since,
        (q @ kt).mul_(between),
        torch.exp(decay[..., -1:] - decay).unsqueeze(-1) * k,
        torch.exp(decay[..., -1])[..., None, None],
    )
    out = []
    for fresh, stale, query, scores, rest, whole in zip(*(part.unbind(0) for part in parts)):
        before = state.transpose(-1, -2)
        corrections = fresh - torch.bmm(stale, before)
        out.append(torch.bmm(query, before) + torch.bmm(scores, corrections))
        state = whole * state + torch.bmm(corrections.transpose(-1, -2), rest)
    return torch.stack(out), state
