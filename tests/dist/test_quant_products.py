# SPDX-License-Identifier: Apache-2.0
"""Products with exchanges of rows on 2 and 4 ranks, plain and quantised, against one process."""

import oracle_products as oracle
import pytest
import torch
from ranks import ranks
from shapes import checked

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
MATRIX = (8, 6, 4)  # rows of each rank, columns, columns of the weight


def numbers(seed, *size):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-32, 33, size, generator=generator).float() / 32


def bytes_(seed, *size):
    """Exponents near 2^0."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(125, 130, size, generator=generator).to(torch.uint8)


def name_of():
    import torch.distributed as dist

    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("npu"))
    return backend.get_hccl_comm_name(dist.get_rank())


def on_npu(value):
    return value.npu() if isinstance(value, torch.Tensor) else value


def called(rank, size, operator, args, kwargs):
    """The operator with this rank's arguments; "hcom" stands for the group's name."""
    args = [name_of() if a == "hcom" else on_npu(a) for a in args[rank]]
    kwargs = {k: on_npu(v) for k, v in kwargs[rank].items()}
    found = checked(getattr(torch.ops.npu, operator), *args, **kwargs)
    return [None if t is None else t.cpu() for t in found]


@pytest.fixture(scope="module")
def groups():
    with ranks(1) as one, ranks(2) as two, ranks(4) as four:
        yield {1: one, 2: two, 4: four}


def run(groups, size, operator, args, kwargs=None):
    return groups[size].run(called, operator, args, kwargs or [{}] * size)


def close(found, wanted, tolerance):
    for got, want in zip(found, wanted, strict=True):
        want = want if isinstance(want, tuple) else (want,)
        for one, other in zip(got, want, strict=True):
            if other is None:
                continue
            torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance)


def plain(size, dtype, rows=MATRIX[0], depth=MATRIX[1], columns=MATRIX[2], gathered=1):
    x = [numbers(r, rows, depth).to(dtype) for r in range(size)]
    w = [numbers(50 + r, depth * gathered, columns).to(dtype) for r in range(size)]
    bias = [numbers(90 + r, columns).to(dtype) for r in range(size)]
    return x, w, bias


# ---- gathered, scattered
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_and_scatter_without_scales(size, dtype, groups):
    x, w, bias = plain(size, dtype)
    args = [(a, b, "hcom", size) for a, b in zip(x, w, strict=True)]
    rest = [{"bias": b} for b in bias]
    tolerance = TOLERANCE[dtype]
    found = run(groups, size, "npu_all_gather_quant_mm", args, rest)
    close([f[:2] for f in found], oracle.all_gather_mm(x, w, bias), tolerance)
    assert all(f[0].dtype == dtype and f[2].numel() == 0 for f in found)
    found = run(groups, size, "npu_quant_mm_reduce_scatter", args, rest)
    close([f[:1] for f in found], oracle.mm_reduce_scatter(x, w, bias), tolerance)


@pytest.mark.parametrize("kind", [E4M3, E5M2, torch.int8])
def test_gather_and_scatter_with_one_scale(kind, groups):
    x, w, bias = plain(2, torch.float32)
    x, w = ([(t * (100 if kind == torch.int8 else 1)).to(kind) for t in each] for each in (x, w))
    scales = {"x1_scale": torch.tensor([0.5]), "x2_scale": torch.tensor([0.25]), "y_dtype": 6}
    args = [(a, b, "hcom", 2) for a, b in zip(x, w, strict=True)]
    rest = [{"bias": b, **scales} for b in bias]
    found = run(groups, 2, "npu_all_gather_quant_mm", args, rest)
    for got, (y, rows) in zip(found, oracle.all_gather_mm(x, w, bias, 0.125), strict=True):
        torch.testing.assert_close(got[0].double(), y, rtol=2e-5, atol=2e-5)
        assert got[1].dtype == kind and torch.equal(got[1].double(), rows)
    found = run(groups, 2, "npu_quant_mm_reduce_scatter", args, rest)
    close([f[:1] for f in found], oracle.mm_reduce_scatter(x, w, bias, 0.125), 2e-5)


def test_gather_and_scatter_by_blocks(groups):
    x, w, _ = plain(2, torch.float32, rows=130, depth=140, columns=20)
    x, w = ([t.to(E4M3) for t in each] for each in (x, w))
    s1 = [numbers(r, 2, 2).abs() + 0.5 for r in (1, 2)]
    s2 = [numbers(r, 2, 1).abs() + 0.5 for r in (3, 4)]
    args = [(a, b, "hcom", 2) for a, b in zip(x, w, strict=True)]
    rest = [
        {"x1_scale": a, "x2_scale": b, "group_sizes": [128] * 3, "y_dtype": 6}
        for a, b in zip(s1, s2, strict=True)
    ]
    plain_x = [oracle.blocks(a, s) for a, s in zip(x, s1, strict=True)]
    plain_w = [oracle.blocks(a, s) for a, s in zip(w, s2, strict=True)]
    found = run(groups, 2, "npu_all_gather_quant_mm", args, rest)
    close([f[:1] for f in found], [y for y, _ in oracle.all_gather_mm(plain_x, plain_w)], 2e-4)
    found = run(groups, 2, "npu_quant_mm_reduce_scatter", args, rest)
    close([f[:1] for f in found], oracle.mm_reduce_scatter(plain_x, plain_w), 2e-4)


@pytest.mark.parametrize("turned", [False, True])
def test_gather_and_scatter_of_mx(turned, groups):
    x, w, _ = plain(2, torch.float32, depth=80, columns=20)
    x, w = ([t.to(E4M3) for t in each] for each in (x, w))
    s1 = [bytes_(r, 8, 2, 2) for r in (1, 2)]
    s2 = [bytes_(r, 2, 20, 2) for r in (3, 4)]
    plain_x = [oracle.mx_rows(a, s) for a, s in zip(x, s1, strict=True)]
    plain_w = [oracle.mx_columns(a, s) for a, s in zip(w, s2, strict=True)]
    if turned:
        w, s2 = (
            [t.view(torch.uint8).t().contiguous().view(E4M3) for t in w],
            [s.transpose(0, 1).contiguous() for s in s2],
        )
    args = [(a, b, "hcom", 2) for a, b in zip(x, w, strict=True)]
    rest = [{"x1_scale": a, "x2_scale": b, "y_dtype": 6} for a, b in zip(s1, s2, strict=True)]
    found = run(groups, 2, "npu_all_gather_quant_mm", args, rest)
    close([f[:1] for f in found], [y for y, _ in oracle.all_gather_mm(plain_x, plain_w)], 2e-4)
    found = run(groups, 2, "npu_quant_mm_reduce_scatter", args, rest)
    close([f[:1] for f in found], oracle.mm_reduce_scatter(plain_x, plain_w), 2e-4)


# ---- all to all
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_to_all(size, dtype, groups):
    x, w, bias = plain(size, dtype, gathered=size)
    args = [(a, b, "hcom", size) for a, b in zip(x, w, strict=True)]
    found = run(groups, size, "npu_all_to_all_matmul", args, [{"bias": b} for b in bias])
    close(found, oracle.all_to_all_mm(x, w, bias), TOLERANCE[dtype])
    found = run(groups, size, "npu_all_to_all_matmul", args, [{"all2all_out_flag": False}] * size)
    close([f[:1] for f in found], [y for y, _ in oracle.all_to_all_mm(x, w)], TOLERANCE[dtype])
    assert all(f[0].dtype == dtype and f[1].shape == (0,) for f in found)
    x, w, bias = plain(size, dtype)
    args = [(a, b, "hcom", size) for a, b in zip(x, w, strict=True)]
    found = run(groups, size, "npu_matmul_all_to_all", args, [{"bias": b} for b in bias])
    close(found, oracle.mm_all_to_all(x, w, bias), TOLERANCE[dtype])


@pytest.mark.parametrize("number, kind", [(None, E5M2), (24, E4M3)])
def test_all_to_all_of_rows_quantised_after_it(number, kind, groups):
    x, w, bias = plain(2, torch.float32, gathered=2)
    w, scale = [t.to(E4M3) for t in w], [numbers(r, 4).abs() + 0.5 for r in (1, 2)]
    smooth = [numbers(r, 12).abs() + 0.5 for r in (3, 4)]
    args = [(a, b, "hcom", 2) for a, b in zip(x, w, strict=True)]
    rest = [
        {
            "bias": b,
            "x1_scale": m,
            "x2_scale": s,
            "x1_quant_mode": 7,
            "x2_quant_mode": 2,
            "x1_quant_dtype": number,
        }
        for b, m, s in zip(bias, smooth, scale, strict=True)
    ]
    found = run(groups, 2, "npu_all_to_all_quant_matmul", args, rest)
    wanted = [
        oracle.all_to_all_dynamic_mm(x, w, scale, kind, m, bias)[r] for r, m in enumerate(smooth)
    ]
    close(found, wanted, 2e-5)


@pytest.mark.parametrize("kind", [E4M3, torch.int8, "int4"])
def test_all_to_all_of_rows_with_scales(kind, groups):
    x, w, bias = plain(2, torch.float32, columns=8, gathered=2)
    stored = torch.int8 if kind == "int4" else kind
    x = [(t * 50).to(stored) for t in x]
    w = [(t * 7).round().to(torch.int8) if kind == "int4" else (t * 50).to(stored) for t in w]
    rows, columns = (
        [numbers(r, 8).abs() + 0.5 for r in (1, 2)],
        [numbers(r, 8).abs() for r in (3, 4)],
    )
    given = [packed(t) for t in w] if kind == "int4" else w
    modes = {"x1_quant_mode": 3, "x2_quant_mode": 2}
    args = [(a, b, "hcom", 2) for a, b in zip(x, given, strict=True)]
    rest = [
        {"bias": b, "x1_scale": m, "x2_scale": s, **modes}
        for b, m, s in zip(bias, rows, columns, strict=True)
    ]
    found = run(groups, 2, "npu_all_to_all_quant_matmul", args, rest)
    close(found, oracle.all_to_all_row_scale_mm(x, rows, w, columns, bias), 2e-4)
    assert all(f[0].dtype == torch.float32 and f[1].dtype == stored for f in found)
    half = [t.double()[:6] for t in w]
    scaled = [a.double() * s.double()[:, None] for a, s in zip(x, rows, strict=True)]
    args = [(a, b[:6], "hcom", 2) for a, b in zip(x, given, strict=True)]
    found = run(groups, 2, "npu_quant_matmul_all_to_all", args, rest)
    wanted = oracle.mm_all_to_all(
        scaled, [h * s.double() for h, s in zip(half, columns, strict=True)], bias
    )
    close(found, wanted, 2e-4)


def packed(w):
    """int4: eight values in an int32, the first in the lowest bits."""
    nibbles = (w.long() & 15).unflatten(-1, (-1, 8))
    whole = sum(nibbles[..., i] << (4 * i) for i in range(8))
    return torch.where(whole >= 2**31, whole - 2**32, whole).to(torch.int32)


def test_all_to_all_of_mx(groups):
    x, w, bias = plain(2, torch.float32, depth=80, columns=20, gathered=2)
    x, w = ([t.to(E4M3) for t in each] for each in (x, w))
    s1, s2 = [bytes_(r, 8, 2, 2) for r in (1, 2)], [bytes_(r, 3, 20, 2) for r in (3, 4)]
    plain_x = [oracle.mx_rows(a, s) for a, s in zip(x, s1, strict=True)]
    modes = {"x1_quant_mode": 6, "x2_quant_mode": 6, "y_dtype": 6}
    args = [(a, b, "hcom", 2) for a, b in zip(x, w, strict=True)]
    rest = [
        {"bias": b, "x1_scale": m, "x2_scale": s, **modes}
        for b, m, s in zip(bias, s1, s2, strict=True)
    ]
    found = run(groups, 2, "npu_all_to_all_quant_matmul", args, rest)
    plain_w = [oracle.mx_columns(a, s) for a, s in zip(w, s2, strict=True)]
    close(
        [f[:1] for f in found], [y for y, _ in oracle.all_to_all_mm(plain_x, plain_w, bias)], 2e-4
    )
    w, s2 = [t.view(torch.uint8)[:80].view(E4M3) for t in w], [s[:2] for s in s2]
    plain_w = [oracle.mx_columns(a, s) for a, s in zip(w, s2, strict=True)]
    args = [(a, b, "hcom", 2) for a, b in zip(x, w, strict=True)]
    rest = [{**r, "x2_scale": s} for r, s in zip(rest, s2, strict=True)]
    found = run(groups, 2, "npu_quant_matmul_all_to_all", args, rest)
    close(found, oracle.mm_all_to_all(plain_x, plain_w, bias), 2e-4)


# ---- experts
# Rows of each rank for (rank, expert), rank-major; some experts get none.
SENDS = {
    1: ([[2, 0, 3]], 3),
    2: ([[2, 0, 1, 3], [0, 1, 4, 0]], 2),
    4: ([[1, 2, 0, 1], [0, 0, 0, 3], [2, 1, 1, 1], [0, 0, 0, 0]], 1),
}


def experts(size, dtype, back=False, hidden=6, columns=4):
    send, count = SENDS[size]
    receive = oracle.receive_counts(send, count)
    rows = receive if back else send
    x = [numbers(r, sum(rows[r]), hidden).to(dtype) for r in range(size)]
    w = [numbers(50 + r, count, hidden, columns).to(dtype) for r in range(size)]
    return send, receive, count, x, w


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_sent_to_their_experts(size, dtype, groups):
    send, receive, count, x, w = experts(size, dtype)
    mm_x, mm_w = (
        [numbers(r, 3, 6).to(dtype) for r in range(size)],
        [numbers(r, 6, 5).to(dtype) for r in range(size)],
    )
    args = [(x[r], w[r], "hcom", size, send[r], receive[r]) for r in range(size)]
    rest = [{"mm_x": mm_x[r], "mm_weight": mm_w[r], "permute_out_flag": True} for r in range(size)]
    found = run(groups, size, "npu_alltoallv_gmm", args, rest)
    close(found, oracle.alltoallv_gmm(x, w, send, count, mm_x, mm_w), TOLERANCE[dtype])
    found = run(groups, size, "npu_alltoallv_gmm", args)
    assert all(f[0].dtype == dtype and f[1] is None and f[2] is None for f in found)
    turned = [
        (x[r], w[r].transpose(1, 2).contiguous(), "hcom", size, send[r], receive[r])
        for r in range(size)
    ]
    again = run(groups, size, "npu_alltoallv_gmm", turned, [{"trans_gmm_weight": True}] * size)
    close([a[:1] for a in again], [f[0] for f in found], TOLERANCE[dtype])


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_sent_back_from_their_experts(size, dtype, groups):
    send, receive, count, x, w = experts(size, dtype, back=True)
    mm_x, mm_w = (
        [numbers(r, 3, 6).to(dtype) for r in range(size)],
        [numbers(r, 6, 5).to(dtype) for r in range(size)],
    )
    args = [(x[r], w[r], "hcom", size, receive[r], send[r]) for r in range(size)]
    rest = [
        {"mm_x": mm_x[r], "mm_weight": mm_w[r].t().contiguous(), "trans_mm_weight": True}
        for r in range(size)
    ]
    found = run(groups, size, "npu_gmm_alltoallv", args, rest)
    close(found, oracle.gmm_alltoallv(x, w, send, count, mm_x, mm_w), TOLERANCE[dtype])


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("mx", [False, True])
def test_quantised_rows_of_experts(back, mx, groups):
    send, receive, count, x, w = experts(2, torch.float32, back, hidden=80, columns=12)
    x, w = ([t.to(E4M3) for t in each] for each in (x, w))
    if mx:
        s1 = [bytes_(r, t.size(0), 2, 2) for r, t in enumerate(x)]
        s2 = [bytes_(r, count, 2, 12, 2) for r in (3, 4)]
        plain_x = [oracle.mx_rows(a, s) for a, s in zip(x, s1, strict=True)]
        plain_w = [
            torch.stack([oracle.mx_columns(a, s) for a, s in zip(*pair, strict=True)])
            for pair in zip(w, s2, strict=True)
        ]
    else:
        s1, s2 = [torch.tensor([0.5])] * 2, [torch.tensor([0.25])] * 2
        plain_x, plain_w = [t.double() * 0.5 for t in x], [t.double() * 0.25 for t in w]
    counts = (receive, send) if back else (send, receive)
    args = [(x[r], w[r], s1[r], s2[r], "hcom", 2, counts[0][r], counts[1][r], 6) for r in range(2)]
    mm = {
        "mm_x": x[0],
        "mm_weight": w[0][0],
        "mm_x_scale": s1[0],
        "mm_weight_scale": s2[0][0] if mx else s2[0],
        "mm_y_dtype": 15,
    }
    mm_y = plain_x[0] @ plain_w[0][0]
    if back:
        found = run(groups, 2, "npu_quant_gmm_alltoallv", args, [mm] * 2)
        wanted = [y for y, _ in oracle.gmm_alltoallv(plain_x, plain_w, send, count)]
    else:
        found = run(
            groups, 2, "npu_alltoallv_quant_gmm", args, [{**mm, "permute_out_flag": True}] * 2
        )
        wanted = [y for y, _, _ in oracle.alltoallv_gmm(plain_x, plain_w, send, count)]
        for got, rows in zip(
            found, oracle.alltoallv([t.double() for t in x], send, count), strict=True
        ):
            assert got[2].dtype == E4M3 and torch.equal(got[2].double(), rows)
    close([f[:1] for f in found], wanted, 2e-4)
    for got in found:
        assert got[0].dtype == torch.float32 and got[1].dtype == torch.bfloat16
        torch.testing.assert_close(got[1].double(), mm_y, rtol=1e-2, atol=1e-2)


def refused(rank, size):
    x, w = torch.ones(4, 3).npu(), torch.ones(6, 4).npu()
    rows, weight = torch.ones(3, 3).npu(), torch.ones(1, 3, 2).npu()
    q, s = x.to(E4M3), torch.ones(1).npu()
    ops, hcom, said = torch.ops.npu, name_of(), []
    for call in (
        lambda: ops.npu_all_to_all_matmul(x[0], w, hcom, 2),
        lambda: ops.npu_all_to_all_matmul(x[:3], w, hcom, 2),
        lambda: ops.npu_all_to_all_matmul(x, w, hcom, 0),
        lambda: ops.npu_all_to_all_matmul(x, w, "nobody", 2),
        lambda: ops.npu_all_to_all_matmul(x, w, hcom, 2, all2all_axes=[0, 1]),
        lambda: ops.npu_matmul_all_to_all(x, w[:3, :3], hcom, 2),
        lambda: ops.npu_all_gather_quant_mm(q, q.t(), hcom, 2, x1_scale=s),
        lambda: ops.npu_all_gather_quant_mm(
            q, q.t(), hcom, 2, x1_scale=s, x2_scale=s, amax_output=True
        ),
        lambda: ops.npu_quant_mm_reduce_scatter(
            q[:3], q.t(), hcom, 2, x1_scale=s, x2_scale=s, y_dtype=6
        ),
        lambda: ops.npu_all_to_all_quant_matmul(
            q, w, hcom, 2, x1_quant_mode=5, x2_quant_mode=2, x2_scale=s
        ),
        lambda: ops.npu_alltoallv_gmm(rows, weight, hcom, 2, [1, 1], [1, 1]),
        lambda: ops.npu_alltoallv_gmm(rows, weight, hcom, 2, [1, 2, 0], [1, 1]),
        lambda: ops.npu_alltoallv_gmm(rows, weight, hcom, 2, [1, 2], [1, 1]),
    ):
        try:
            call()
        except (RuntimeError, NotImplementedError) as error:
            said.append(str(error))
    return said


def test_what_is_wrong_is_said_before_anything_is_sent(groups):
    for said in groups[2].run(refused):
        assert len(said) == 13, said
        assert "x1_dim should be 2, but now it is 1" in said[0] and "ERR01003" in said[0]
        assert "The x1 first-axis should be divisible by world_size." in said[1]
        assert "world_size should not be 0." in said[2]
        assert "hcom is 'nobody', which names no process group here" in said[3]
        assert "all2all_axes is [0, 1]; allowed: None, [-2, -1]" in said[4]
        assert "x2 has 3 columns; they must be a multiple of world_size 2" in said[5]
        assert "x1_scale and x2_scale are given together" in said[6]
        assert "amax_output True is not supported" in said[7] and "ERR01007" in said[7]
        assert "The x1 first-axis should be divisible by world_size." in said[8]
        assert "x1_quant_mode is 5; allowed: 3, 6, 7" in said[9]
        assert "gmm_x has 3 rows; send_counts add up to 2" in said[10]
        assert "send_counts is [1, 2, 0]; allowed: 2 counts" in said[11]
        assert "rank 0 sends [2] rows to the experts of rank 1, which expects [1]" in said[12]
    x, w, _ = plain(2, torch.float32, gathered=2)  # the group goes on
    args = [(a, b, "hcom", 2) for a, b in zip(x, w, strict=True)]
    close(run(groups, 2, "npu_all_to_all_matmul", args), oracle.all_to_all_mm(x, w), 2e-5)
