# SPDX-License-Identifier: Apache-2.0
"""Tokens dispatched to experts on 2 and 4 ranks and combined, against one process that computes all."""

import dataclasses

import oracle_experts as oracle
import pytest
import torch
from ranks import ranks
from shapes import checked

HIDDEN, CHOICES = 32, 3


def numbers(seed, *size):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-64, 65, size, generator=generator).float() / 32


@dataclasses.dataclass
class Setting:
    layout: oracle.Layout
    tokens: tuple  # of each rank
    rest: dict = dataclasses.field(default_factory=dict)
    masked: str = ""
    same_expert: bool = False  # all tokens go to one rank

    def ids(self, rank):
        layout = self.layout
        total = layout.experts + layout.zero + layout.copy + layout.const
        if self.same_expert:
            rows = [[2, 0, 1]] * self.tokens[rank]
            return torch.tensor(rows, dtype=torch.int32).reshape(-1, CHOICES)
        generator = torch.Generator().manual_seed(rank + 1)
        rows = [
            torch.randperm(total, generator=generator)[:CHOICES] for _ in range(self.tokens[rank])
        ]
        return torch.stack(rows).int() if rows else torch.empty(0, CHOICES, dtype=torch.int32)

    def x(self, rank):
        return numbers(100 + rank, self.tokens[rank], HIDDEN)

    def weights(self, rank):
        return numbers(200 + rank, self.tokens[rank], CHOICES).abs()

    def mask(self, rank):
        tokens = self.tokens[rank]
        if self.masked == "tokens":
            return torch.arange(tokens) < tokens - 1
        if self.masked == "pairs":
            return (torch.arange(tokens * CHOICES) % 4 != 1).view(tokens, CHOICES)
        return None

    def all(self, what):
        found = [getattr(self, what)(r) for r in range(self.layout.ranks)]
        return None if found[0] is None else found


def name_of():
    import torch.distributed as dist

    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("npu"))
    return backend.get_hccl_comm_name(dist.get_rank())


def on_npu(value):
    return value.npu() if isinstance(value, torch.Tensor) else value


def common(setting, rank):
    layout = setting.layout
    return (name_of(), layout.ranks, rank, layout.experts), {
        "shared_expert_num": layout.shared_experts,
        "shared_expert_rank_num": layout.shared_ranks,
    }


def dispatched(rank, size, setting, operator, dtype, options):
    """The results of an operator of dispatch."""
    call, shared = common(setting, rank)
    mask = setting.mask(rank)
    rest = {} if mask is None else {"x_active_mask": mask.npu()}
    rest |= {k: on_npu(v) for k, v in {**setting.rest, **options}.items()} | shared
    if operator.endswith("v2"):
        layout = setting.layout
        rest |= {
            "zero_expert_num": layout.zero,
            "copy_expert_num": layout.copy,
            "const_expert_num": layout.const,
        }
    x, ids = setting.x(rank).to(dtype).npu(), setting.ids(rank).npu()
    rest["expert_scales"] = setting.weights(rank).npu()
    found = checked(getattr(torch.ops.npu, operator), x, ids, *call, **rest)
    return [t.cpu() for t in found]


def combined(rank, size, setting, version, dtype):
    """Dispatch, experts that multiply by their number, combine."""
    layout = setting.layout
    call, shared = common(setting, rank)
    name = "npu_moe_distribute_dispatch" + ("_v2" if version == 2 else "")
    extra = {
        "zero_expert_num": layout.zero,
        "copy_expert_num": layout.copy,
        "const_expert_num": layout.const,
    }
    extra = extra if version == 2 else {}
    mask = setting.mask(rank)
    rest = {**shared, **extra, **setting.rest} | (
        {} if mask is None else {"x_active_mask": mask.npu()}
    )
    x, ids, weights = (
        setting.x(rank).to(dtype).npu(),
        setting.ids(rank).npu(),
        setting.weights(rank).npu(),
    )
    sent = checked(getattr(torch.ops.npu, name), x, ids, *call, **rest)
    y = served(rank, layout, sent[0].float(), sent[3]).to(dtype)
    if layout.copy or layout.const:
        rest |= {k: on_npu(v) for k, v in consts(layout).items()} | {"ori_x": x}
    combine = getattr(torch.ops.npu, name.replace("dispatch", "combine"))
    shared_x = numbers(300 + rank, setting.tokens[rank], HIDDEN).to(dtype).npu()
    out = checked(
        combine, y, ids, sent[2], sent[4], weights, *call, shared_expert_x=shared_x, **rest
    )
    residual, gamma = (
        numbers(400 + rank, x.size(0), 1, HIDDEN).to(dtype).npu(),
        numbers(500, HIDDEN).to(dtype).npu(),
    )
    fused = checked(
        torch.ops.npu.npu_moe_distribute_combine_add_rms_norm,
        y,
        ids,
        sent[2],
        sent[4],
        weights,
        residual,
        gamma,
        *call,
        **rest,
    )
    return [t.cpu() for t in (*out, *fused)]


def consts(layout):
    return {
        "const_expert_alpha_1": numbers(600, layout.const, HIDDEN),
        "const_expert_alpha_2": numbers(601, layout.const, HIDDEN),
        "const_expert_v": numbers(602, layout.const, HIDDEN),
    }


def served(rank, layout, rows, counts):
    """Expert e of all multiplies its rows by e + 1, a shared one by 10."""
    first = 10 if rank < layout.shared_ranks else (rank - layout.shared_ranks) * layout.local + 1
    factors = torch.arange(counts.numel()) + first
    each = torch.repeat_interleave(factors, counts.cpu())
    padded = torch.zeros(rows.size(0))
    padded[: each.numel()] = each.float()
    return rows * padded.to(rows.device).unsqueeze(1)


L = oracle.Layout
SETTINGS = {
    "one": Setting(L(1, 4), (5,)),
    "two": Setting(L(2, 4), (5, 5)),
    "uneven": Setting(L(2, 4), (5, 2), {"global_bs": 10}),
    "no-tokens": Setting(L(2, 4), (3, 0), {"global_bs": 6}),
    "one-rank-serves-all": Setting(L(2, 6), (4, 4), same_expert=True),
    "masked": Setting(L(2, 4), (5, 5), masked="tokens"),
    "masked-pairs": Setting(L(2, 4), (5, 5), masked="pairs"),
    "four": Setting(L(4, 8), (3, 3, 3, 3)),
    "four-uneven": Setting(L(4, 4), (4, 1, 0, 2), {"global_bs": 16}),
    "shared": Setting(L(4, 6, 2, 1), (4, 4, 4, 4)),
    "two-shared": Setting(L(4, 4, 2, 2), (3, 3, 3, 3), masked="tokens"),
}
HOMELESS = Setting(L(2, 4, 0, 0, 1, 1, 2), (5, 5))


@pytest.fixture(scope="module")
def groups():
    made = {}
    with ranks(1) as one, ranks(2) as two, ranks(4) as four:
        made.update({1: one, 2: two, 4: four})
        yield made


def places(names):
    return [pytest.param(SETTINGS[k], id=k) for k in names]


# Version 1 has one shared expert: its documented buffer does not hold the rows of more.
BOTH_VERSIONS = [
    pytest.param(v, s, id=f"{v}-{k}")
    for v in (1, 2)
    for k, s in SETTINGS.items()
    if v == 2 or s.layout.shared_experts < 2
]


def check_dispatch(setting, found, version, dtype=torch.float32):
    wanted = oracle.dispatch(
        setting.layout, setting.all("x"), setting.all("ids"), version=version, masks=setting.all("mask"),
        expert_scales=setting.all("weights"), global_bs=setting.rest.get("global_bs", 0),
    )  # fmt: skip
    for got, want in zip(found, wanted, strict=True):
        expand_x, dynamic, index, nums, received, tp, weights = got
        assert expand_x.dtype == dtype and torch.equal(expand_x.double(), want.expand_x)
        assert dynamic.numel() == 0 and tp.numel() == 0
        if version == 1:
            assert torch.equal(index, want.expand_idx)
        assert torch.equal(nums, want.token_nums)
        assert torch.equal(received, want.recv_counts)
        assert torch.equal(weights.double(), want.expand_scales)


@pytest.mark.parametrize("version, setting", BOTH_VERSIONS)
def test_dispatch(setting, version, groups):
    name = "npu_moe_distribute_dispatch" + ("_v2" if version == 2 else "")
    group = groups[setting.layout.ranks]
    check_dispatch(setting, group.run(dispatched, setting, name, torch.float32, {}), version)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dispatch_keeps_sixteen_bits(dtype, groups):
    setting = SETTINGS["two"]
    found = groups[2].run(dispatched, setting, "npu_moe_distribute_dispatch_v2", dtype, {})
    check_dispatch(setting, found, 2, dtype)


def test_cumulative_counts_of_experts(groups):
    setting, kind = SETTINGS["two"], {"expert_token_nums_type": 0}
    found = groups[2].run(
        dispatched, setting, "npu_moe_distribute_dispatch_v2", torch.float32, kind
    )
    counts = groups[2].run(dispatched, setting, "npu_moe_distribute_dispatch_v2", torch.float32, {})
    for got, plain in zip(found, counts, strict=True):
        assert torch.equal(got[3], plain[3].cumsum(0))


@pytest.mark.parametrize("setting", places(("two", "shared", "masked")))
@pytest.mark.parametrize("mode", [1, 2])
def test_quantised_rows(setting, mode, groups):
    layout = setting.layout
    shared = layout.shared_experts if layout.shared_ranks else 0
    scales = (
        numbers(7, HIDDEN) if mode == 1 else numbers(8, shared + layout.experts, HIDDEN).abs() + 0.5
    )
    scales = scales * 20 if mode == 1 else scales
    options = {"quant_mode": mode, "scales": scales}
    found = groups[layout.ranks].run(
        dispatched, setting, "npu_moe_distribute_dispatch_v2", torch.float32, options
    )
    wanted = oracle.dispatch(
        layout, setting.all("x"), setting.all("ids"), masks=setting.all("mask"), quant_mode=mode,
        scales=[scales] * layout.ranks,
    )  # fmt: skip
    for (expand_x, dynamic, *_), want in zip(found, wanted, strict=True):
        assert expand_x.dtype == torch.int8
        exact = want.expand_x.clamp(-128, 127)
        assert ((expand_x.double() - exact).abs() <= 0.5 + 1e-4).all()
        if mode == 2:
            torch.testing.assert_close(dynamic.double(), want.scales, rtol=1e-6, atol=0)


@pytest.mark.parametrize("mode", [3, 4])
def test_rows_in_blocks(mode, groups):
    """Each element is its block's scale times a number that fp8 rounds by at most 1/16.

    A block's exponent of mode 4 lets numbers up to 512 be, of which fp8 holds 448.
    """
    setting = SETTINGS["two"]
    options = {"quant_mode": mode}
    found = groups[2].run(
        dispatched, setting, "npu_moe_distribute_dispatch_v2", torch.float32, options
    )
    wanted = oracle.dispatch(setting.layout, setting.all("x"), setting.all("ids"))
    for (expand_x, dynamic, *_), want in zip(found, wanted, strict=True):
        assert expand_x.dtype == torch.float8_e4m3fn
        assert dynamic.shape == (expand_x.size(0), 1 if mode == 3 else 2)
        factor = dynamic[:, :1].double() if mode == 3 else 2.0 ** (dynamic[:, :1].double() - 127)
        used = len(want.order)
        got = (expand_x.double() * factor)[:used]
        low = factor[:used] * 2.0**-9
        assert (
            (got - want.expand_x[:used]).abs()
            <= want.expand_x[:used].abs() / (16 if mode == 3 else 8) + low
        ).all()


def check_combined(setting, found, tolerance, version):
    layout = setting.layout
    sent = oracle.dispatch(
        layout, setting.all("x"), setting.all("ids"), masks=setting.all("mask"), version=version,
        global_bs=setting.rest.get("global_bs", 0),
    )  # fmt: skip
    outputs = [
        served(r, layout, want.expand_x, oracle_counts(layout, want)) for r, want in enumerate(sent)
    ]
    extra = {}
    if layout.copy or layout.const:
        known = consts(layout)
        extra = {"alpha_1": known["const_expert_alpha_1"], "alpha_2": known["const_expert_alpha_2"]}
        extra |= {"const_v": known["const_expert_v"], "ori_x": setting.all("x")}
    masks, ids, weights = setting.all("mask"), setting.all("ids"), setting.all("weights")
    shared_x = [numbers(300 + r, n, HIDDEN) for r, n in enumerate(setting.tokens)]
    plain = oracle.combine(layout, sent, outputs, ids, weights, masks=masks, **extra)
    whole = oracle.combine(
        layout, sent, outputs, ids, weights, masks=masks, shared_x=shared_x, **extra
    )
    residual = [numbers(400 + r, n, 1, HIDDEN) for r, n in enumerate(setting.tokens)]
    normed = oracle.add_rms_norm(plain, residual, numbers(500, HIDDEN), 1e-6)
    for got, out, (y, rstd, x) in zip(found, whole, normed, strict=True):
        for one, want in zip(got, (out, y, rstd, x), strict=True):
            torch.testing.assert_close(one.double(), want, rtol=tolerance, atol=tolerance)


def oracle_counts(layout, want):
    counts = torch.diff(want.recv_counts, prepend=torch.zeros(1, dtype=torch.int32))
    return counts.view(-1, layout.ranks).sum(1)


@pytest.mark.parametrize("version, setting", BOTH_VERSIONS)
def test_combine(setting, version, groups):
    found = groups[setting.layout.ranks].run(combined, setting, version, torch.float32)
    check_combined(setting, found, 2e-5, version)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 2e-2), (torch.bfloat16, 1e-1)])
def test_combine_of_sixteen_bits(dtype, tolerance, groups):
    found = groups[2].run(combined, SETTINGS["two"], 2, dtype)
    check_combined(SETTINGS["two"], found, tolerance, 2)


def test_experts_without_weights(groups):
    """Zero, copy and const experts: nothing is sent for them."""
    check_combined(HOMELESS, groups[2].run(combined, HOMELESS, 2, torch.float32), 2e-5, 2)


def halves(rank, size, setting, options):
    """Both halves of dispatch and of combine, and the same by the whole operators."""
    call, shared = common(setting, rank)
    mask = setting.mask(rank)
    masked = {} if mask is None else {"x_active_mask": mask.npu()}
    x, ids, weights = setting.x(rank).npu(), setting.ids(rank).npu(), setting.weights(rank).npu()
    rest = {**shared, **setting.rest}
    options = {k: on_npu(v) for k, v in options.items()}
    mode = {"quant_mode": options.get("quant_mode", 0)}
    ops = torch.ops.npu
    y, index, info = checked(
        ops.npu_moe_distribute_dispatch_setup, x, ids, *call, **rest, **masked, **options
    )
    got = checked(ops.npu_moe_distribute_dispatch_teardown, x, y, ids, info, *call, **rest, **mode)
    want = ops.npu_moe_distribute_dispatch_v2(x, ids, *call, **rest, **masked, **options)
    plain = ops.npu_moe_distribute_dispatch_v2(x, ids, *call, **rest, **masked)
    quant, command = checked(
        ops.npu_moe_distribute_combine_setup, plain[0], ids, plain[2], *call, **rest
    )
    joined = checked(
        ops.npu_moe_distribute_combine_teardown,
        plain[0],
        quant,
        ids,
        index,
        weights,
        command,
        *call,
        **rest,
        **masked,
    )
    whole = ops.npu_moe_distribute_combine_v2(
        plain[0], ids, plain[2], plain[4], weights, *call, **rest, **masked
    )
    return (
        [t.cpu() for t in (*got, *joined)],
        [t.cpu() for t in (*want[:4], whole)],
        (y.shape, quant.shape),
    )


@pytest.mark.parametrize("setting", places(("two", "uneven", "masked", "shared", "no-tokens")))
@pytest.mark.parametrize("mode", [0, 1, 2, 3, 4])
def test_halves_are_the_whole(setting, mode, groups):
    options = {"quant_mode": mode} | ({"scales": numbers(7, HIDDEN) * 20} if mode == 1 else {})
    for got, want, (y, quant) in groups[setting.layout.ranks].run(halves, setting, options):
        assert y[1] == {0: 256}.get(mode, 512) and quant[1] == 512
        for one, other in zip(got, want, strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one.view(torch.uint8) if one.element_size() == 1 else one,
                               other.view(torch.uint8) if other.element_size() == 1 else other)  # fmt: skip


def refused(rank, size):
    x, ids = torch.ones(2, 8).npu(), torch.tensor([[0, 1], [1, 9]]).npu()
    good, weights = torch.tensor([[0, 1], [1, 0]]).npu(), torch.ones(2, 2).npu()
    said = []
    for call in (
        lambda: dispatch(x, good, rank=7),
        lambda: dispatch(x, good, shared_expert_rank_num=2),
        lambda: dispatch(x, good, expert_token_nums_type=2),
        lambda: dispatch(x[0], good),
        lambda: dispatch(x, ids),
        lambda: dispatch(x, good, elastic_info=good),
        lambda: dispatch(x, good, tp_world_size=2),
        lambda: dispatch(x, good, quant_mode=1),
        lambda: combine(x, good, torch.tensor([3, 2]).npu(), weights),
        lambda: combine(x, good, torch.tensor([0, 9]).npu(), weights),
        # Every rank claims rows for rank 0 that it does not expect.
        lambda: combine(x, good, torch.tensor([2, 2]).npu(), weights),
    ):
        try:
            call()
        except (RuntimeError, NotImplementedError) as error:
            said.append(str(error))
    return said


def dispatch(x, ids, rank=None, **rest):
    import torch.distributed as dist

    rank = dist.get_rank() if rank is None else rank
    return torch.ops.npu.npu_moe_distribute_dispatch_v2(x, ids, name_of(), 2, rank, 2, **rest)


def combine(x, ids, totals, weights):
    import torch.distributed as dist

    return torch.ops.npu.npu_moe_distribute_combine_v2(
        x, ids, x.int(), totals.int(), weights, name_of(), 2, dist.get_rank(), 2
    )


def test_what_is_wrong_is_said_before_rows_are_sent(groups):
    for said in groups[2].run(refused):
        assert len(said) == 11, said
        assert (
            "ep_rank_id should be in [0, ep_world_size), but got ep_world_size: 2, ep_rank_id: 7"
            in said[0]
        )
        assert "shared_expert_rank_num should be in [0, ep_world_size), but got" in said[1]
        assert "The expert_token_nums_type should be 0 or 1." in said[2] and "ERR01001" in said[2]
        assert "The x and expert_ids should be 2D" in said[3]
        assert "allowed: 0 to 1" in said[4] and "ERR01003" in said[4]
        assert "elastic_info is not supported" in said[5] and "ERR01007" in said[5]
        assert "tp_world_size is 2" in said[6]
        assert "scales must be given with quant_mode 1" in said[7]
        assert (
            "npu_moe_distribute_combine_v2: ep_send_counts is [3, 2]" in said[8]
            and "ep_send_counts is [0, 9]" in said[9]
        )
        assert "rank 0 sends [0] rows to the experts of rank 1, which expects [2]" in said[10]
    setting = SETTINGS["two"]  # the group goes on
    check_combined(setting, groups[2].run(combined, setting, 2, torch.float32), 2e-5, 2)


def test_a_buffer_that_is_too_small_is_named(groups):
    setting = Setting(L(2, 6), (4, 2), same_expert=True)
    with pytest.raises(AssertionError, match="give the same global_bs on all ranks"):
        groups[2].run(
            dispatched, setting, "npu_moe_distribute_dispatch_v2", torch.float32, {"global_bs": 2}
        )
