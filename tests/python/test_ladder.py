# SPDX-License-Identifier: Apache-2.0
"""Rung 4: the traps of running CPU kernels on device memory, one test each.

test_ladder_rungs.py runs this file again with copies (rung 5) and with protected memory.
"""

import gc
import os

import pytest
import torch
from ladder import both_raise, npu, same

pytestmark = pytest.mark.modes


# --- memory ---------------------------------------------------------------------------------


def test_results_come_from_the_device_pool():
    a, b = npu(512, 512)[1], npu(512, 512, seed=1)[1]
    gc.collect()  # what earlier tests left in cycles must not go between the two counts
    before = torch.npu.memory_allocated()
    c = torch.linalg.solve_triangular(a, b, upper=True)
    assert torch.npu.memory_allocated() >= before + c.nbytes
    del c
    gc.collect()
    assert torch.npu.memory_allocated() == before


def test_cpu_allocations_outside_a_call_are_not_the_pools():
    before = torch.npu.memory_allocated()
    kept = torch.ones(1 << 20)
    assert torch.npu.memory_allocated() == before
    assert kept.sum() == 1 << 20


def test_out_of_device_memory_leaves_the_process_usable():
    a = npu(4, 4)[1]
    # More than any machine has: with copies a merely large result would fill the host's memory.
    big = torch.zeros(1, device="npu").expand(1 << 24, 1 << 24)
    # With copies it is the host that has no room for the result.
    kind = RuntimeError if os.environ.get("NPU_HOST_ACCESS") == "none" else torch.OutOfMemoryError
    with pytest.raises(kind):
        torch.fmax(big, big)
    same(torch.fmax(a.cpu(), a.cpu()), torch.fmax(a, a))


def test_onednn_scratch_memory():
    a, b = npu(64, 64, dtype=torch.bfloat16)[1], npu(64, 64, dtype=torch.bfloat16, seed=1)[1]
    for _ in range(3):
        same(a.cpu() @ b.cpu(), a @ b)
        same(torch.bmm(a.cpu()[None], b.cpu()[None]), torch.bmm(a[None], b[None]))
    out = torch.empty_like(a)
    torch.nn.functional.gelu(a)
    torch._C._nn.gelu(a, out=out)
    same(torch.nn.functional.gelu(a.cpu()), out)


def test_onednn_memory_freed_outside_the_call():
    a = npu(64, 64, dtype=torch.bfloat16)[1]
    _ = a @ a
    host = a.cpu()
    for _ in range(3):  # frees what the call before may have taken from the pool
        _ = host @ host
    same(host @ host, a @ a)


def test_convolution_through_onednn():
    x, w = npu(2, 8, 12, 12), npu(16, 8, 3, 3, seed=1)
    conv = torch.nn.functional.conv2d
    same(conv(x[0], w[0]), conv(x[1], w[1]))


def test_mkldnn_layout_is_refused():
    x = npu(4, 4)[1]
    with pytest.raises(RuntimeError, match=r"(?i)mkldnn"):
        x.to_mkldnn()
    same(x.cpu() + 1, x + 1)


# --- identity and aliasing ------------------------------------------------------------------


def test_overlapping_out_raises_as_on_the_cpu():
    def attempt(device):
        x = torch.arange(12.0, device=device)
        return lambda: torch.mul(x[:-1], 2.0, out=x[1:])

    both_raise(attempt("cpu"), attempt("npu"))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.cumsum(x[:-1], 0, out=x[1:]),
        lambda x: torch.gather(x[:-1], 0, torch.arange(11, device=x.device), out=x[1:]),
        lambda x: torch.cat((x[:6], x[6:]), out=x),
        lambda x: x[:9].view(3, 3).copy_(x[:9].view(3, 3).t()),
    ],
    ids=["cumsum", "gather", "cat", "copy_"],
)
def test_overlap_checks_see_shared_storage(call):
    both_raise(lambda: call(torch.arange(12.0)), lambda: call(torch.arange(12.0, device="npu")))


def test_the_same_tensor_twice_stays_one():
    def attempt(device):
        x = torch.ones(2, 2, device=device)
        return lambda: torch.cat((x, x), out=x)

    both_raise(attempt("cpu"), attempt("npu"))
    x = npu(3, 3)
    same(torch.fmax(x[0], x[0]), torch.fmax(x[1], x[1]))


def test_in_place_returns_the_same_object():
    x = npu(5)[1]
    assert torch.ops.aten.erfinv_.default(x) is x
    out = torch.empty(5, device="npu")
    assert torch.fmax(x, x, out=out) is out


def test_a_view_result_stays_a_view():
    x = torch.zeros(3, 4, device="npu")
    view = torch.ops.aten._reshape_alias(x, [4, 3], [3, 1])
    view.fill_(2)
    assert x.cpu().eq(2).all()
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_many_tensors_in_one_call():
    hosts = [torch.full((3,), float(i)) for i in range(60)]
    here = [h.to("npu") for h in hosts]
    here.append(here[0])
    hosts.append(hosts[0])
    same(torch.cat(hosts), torch.cat(here))
    torch._foreach_add_(here[:60], 1.0)
    torch._foreach_add_(hosts[:60], 1.0)
    same(torch.stack(hosts), torch.stack(here))


def test_tensor_lists_as_results():
    x = npu(7, 4)
    for cpu, here in zip(torch.unbind_copy(x[0], 1), torch.unbind_copy(x[1], 1), strict=True):
        same(cpu, here)
    parts = [torch.empty(0, device="npu") for _ in range(2)]
    torch.split_with_sizes_copy(x[1], [3, 4], out=parts)
    same(x[0][:3], parts[0])
    same(x[0][3:], parts[1])


def test_optional_lists_of_indices():
    x = npu(5, 6, 7)
    i, j = torch.tensor([0, 2, 4]), torch.tensor([1, 1, 0])
    same(x[0][i, :, j], x[1][i.to("npu"), :, j.to("npu")])
    same(x[0][i, :, j], x[1][i, :, j])  # indices may stay on the host
    y = [x[0].clone(), x[1].clone()]
    y[0][i, 1] = 3.0
    y[1][i.to("npu"), 1] = 3.0
    same(y[0], y[1])


# --- out= that grows ------------------------------------------------------------------------


def test_out_resizes_and_views_survive():
    a = npu(6, 6)
    out = torch.empty(0, device="npu")
    alias = out.view(0)
    torch.fmax(a[1], a[1], out=out)
    same(a[0], out)
    assert alias.untyped_storage().nbytes() == out.untyped_storage().nbytes()
    assert alias.untyped_storage().data_ptr() == out.untyped_storage().data_ptr()


def test_out_keeps_strides_when_the_size_is_right():
    a = npu(3, 4)
    wide = torch.zeros(3, 8, device="npu")
    out = wide[:, ::2]
    torch.fmax(a[1], a[1], out=out)
    assert out.stride() == (8, 2)
    same(a[0], out.contiguous())
    assert wide[:, 1::2].cpu().eq(0).all()


def test_out_is_left_resized_when_the_kernel_throws():
    def attempt(device):
        out = torch.empty(0, device=device)
        singular = torch.zeros(3, 3, device=device)
        info = torch.empty(0, dtype=torch.int32, device=device)
        with pytest.raises(RuntimeError):
            torch.linalg.inv_ex(singular, check_errors=True, out=(out, info))
        return out.shape

    assert attempt("npu") == attempt("cpu")


def test_out_of_a_wrong_dtype_raises_as_on_the_cpu():
    a = npu(3)
    both_raise(
        lambda: torch.fmax(a[0], a[0], out=torch.empty(3, dtype=torch.int64)),
        lambda: torch.fmax(a[1], a[1], out=torch.empty(3, dtype=torch.int64, device="npu")),
    )


# --- bits and flags -------------------------------------------------------------------------


def test_conj_and_neg_bits_both_ways():
    z = npu(4, 4, dtype=torch.complex64)
    same(z[0].conj() @ z[0].mH, z[1].conj() @ z[1].mH)
    same(z[0].conj().imag.clone(), z[1].conj().imag.clone())
    v = npu(4, dtype=torch.complex64)
    same(torch.vdot(v[0], v[0].conj()), torch.vdot(v[1], v[1].conj()))
    w = torch.empty(4, dtype=torch.complex64, device="npu").conj()
    w.copy_(v[1])
    same(v[0], w)


def test_a_tensor_without_dimensions_shows_no_size_of_an_earlier_argument():
    # PyTorch reads the first size of these, which no tensor has: 1 there is another formula.
    numbers = [complex(-8.4784, -1.7658), complex(0.3, 7.1), complex(2.5, -0.7)]
    for number in numbers:
        cpu = torch.tensor(number, dtype=torch.complex64)
        one = torch.ones(1).to("npu")
        torch.hypot(one, torch.fmax(one, one))  # arguments of one element before it
        got = torch.linalg.vector_norm(cpu.to("npu"), ord=6, dim=0)
        same(torch.linalg.vector_norm(cpu, ord=6, dim=0), got)


def test_cloning_a_conj_tensor_ends():
    z = npu(3, dtype=torch.complex64)
    same(z[0].conj().clone(), z[1].conj().clone())
    same(z[0].conj().resolve_conj(), z[1].conj().resolve_conj())


def test_python_numbers_do_not_promote():
    x = npu(3, dtype=torch.bfloat16)
    same(x[0] * 2.5, x[1] * 2.5)
    i = torch.tensor([1, 2, 3])
    same(torch.fmax(i, torch.tensor(2.0)), torch.fmax(i.to("npu"), torch.tensor(2.0)))
    same(torch.true_divide(i, 2), torch.true_divide(i.to("npu"), 2))


def test_cpu_scalars_mix_in():
    x = npu(3, 3)
    two = torch.tensor(2.0)
    same(torch.fmax(x[0], two), torch.fmax(x[1], two))
    same(torch.fmax(two, x[0]), torch.fmax(two, x[1]))
    assert two.device.type == "cpu"


def test_undefined_tensors_pass_both_ways():
    x, w = npu(2, 3, 4), npu(4, seed=1)
    outs = torch.ops.aten.native_layer_norm_backward(
        x[1], x[1], [4], *torch.ops.aten.native_layer_norm(x[1], [4], w[1], None, 1e-5)[1:],
        w[1], None, [True, False, False],
    )  # fmt: skip
    assert outs[1] is None and outs[2] is None
    assert outs[0].device.type == "npu"


def test_kernels_that_read_requires_grad():
    dense = torch.tensor([[1.0, 0, 2], [0, 3, 0]])

    def attempt(device):
        a = dense.to_sparse_csr().to(device).requires_grad_()
        b = torch.arange(6.0).reshape(3, 2).to(device).requires_grad_()
        torch.sparse.mm(a, b, "sum").sum().backward()
        return b.grad

    same(attempt("cpu"), attempt("npu"))


def test_complex_and_half_dtypes_go_down_too():
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex128, torch.bool):
        x = npu(9, dtype=dtype)
        same(torch.flip(x[0], [0]), torch.flip(x[1], [0]))


# --- what has more than one kernel ----------------------------------------------------------


def test_composites_do_not_shadow_the_cpu_kernel():
    def on_npu(name):
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")

    for name in (
        "aten::native_layer_norm",
        "aten::addr",
        "aten::silu_backward",
        "aten::add.Tensor",
    ):
        assert on_npu(name), name
    for name in ("aten::matmul", "aten::linear", "aten::reshape", "aten::layer_norm"):
        assert not on_npu(name), name  # implicit: autograd goes through them


def test_bitwise_where_a_composite_would_not_be():
    x, w = npu(4, 16, 33), npu(33, seed=1)
    norm = torch.nn.functional.layer_norm
    same(norm(x[0], (33,), w[0]), norm(x[1], (33,), w[1]))
    # Where copies would be needed PyTorch's composite kernel comes first: test_ladder_rung5.py.
    if os.environ.get("NPU_HOST_ACCESS") != "none":
        same(torch.addr(x[0][0], x[0][0, :, 0], w[0]), torch.addr(x[1][0], x[1][0, :, 0], w[1]))
    g = npu(4, 6, 5, 5, seed=2)
    group = torch.nn.functional.group_norm
    same(group(g[0], 3), group(g[1], 3))


def test_composites_that_ask_for_the_device():
    x = torch.tensor([[1, 1, 2], [3, 3, 1]])
    for cpu, here in zip(torch.mode(x), torch.mode(x.to("npu")), strict=True):
        same(cpu, here)
    out = (
        torch.empty(0, dtype=torch.int64, device="npu"),
        torch.empty(0, dtype=torch.int64, device="npu"),
    )
    torch.mode(x.to("npu"), out=out)
    same(torch.mode(x).values, out[0])
    same(torch.kaiser_window(7), torch.kaiser_window(7, device="npu"))
    same(torch.kaiser_window(7, False, 3.0), torch.kaiser_window(7, False, 3.0, device="npu"))


def test_no_cpu_kernel_names_the_device():
    x = npu(4, 4)[1]
    with pytest.raises(NotImplementedError, match="npu device"):
        torch.ops.aten._cslt_compress(x)


def test_random_operators_never_use_the_cpu_generator():
    from torch.library import Library

    x = npu(4)[1]
    before = torch.get_rng_state()
    library = Library("ladder_random", "DEF")
    library.define("draw(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    library.impl("draw", lambda x: torch.rand_like(x), "CPU")
    with pytest.raises(NotImplementedError, match="random"):
        torch.ops.ladder_random.draw(x)
    assert torch.equal(before, torch.get_rng_state())
    library._destroy()
