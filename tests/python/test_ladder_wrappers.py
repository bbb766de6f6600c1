# SPDX-License-Identifier: Apache-2.0
"""Rung 4 uses its wrappers again from call to call: nothing of one call shows in the next."""

import os
import threading

import pytest
import torch
from ladder import npu, same
from programs import program


def test_geometry_and_dtype_are_the_arguments_own():
    """One wrapper after the other stands for tensors that differ in everything."""
    floats, doubles = npu(6, 6), npu(6, 6, dtype=torch.float64, seed=1)
    whole = npu(10, 12, seed=2)
    for _ in range(2):
        for view in (
            lambda t: t,
            lambda t: t.t(),
            lambda t: t[1:4, 1:4],
            lambda t: t[2:, :4].t(),
            lambda t: t[::2, ::2],
            lambda t: t[:1].expand(6, -1),
        ):
            for host, here in (floats, doubles, whole):
                a, b = view(host), view(here)
                same(a @ a.t(), b @ b.t())
                same(torch.logcumsumexp(a, 0), torch.logcumsumexp(b, 0))
                same(torch.kthvalue(a, 1).values, torch.kthvalue(b, 1).values)


def test_a_storage_that_changed_between_two_calls():
    host, here = npu(5, 5)
    same(torch.linalg.det(host), torch.linalg.det(here))
    other_host, other_here = npu(3, 3, seed=1)
    host.set_(other_host)
    here.set_(other_here)
    same(torch.linalg.det(host), torch.linalg.det(here))
    for tensor in (host, here):
        tensor.resize_(4, 4).copy_(torch.eye(4) * 3)
    same(torch.linalg.det(host), torch.linalg.det(here))
    host.data, here.data = npu(2, 2, seed=2)
    same(torch.linalg.det(host), torch.linalg.det(here))


def test_a_gradient_asked_for_once_is_not_asked_for_again():
    """grid_sampler, _thnn_fused_lstm_cell and others prepare for backward when they see it."""
    cell = torch.nn.LSTM(3, 3)
    here = torch.nn.LSTM(3, 3).to("npu")
    here.load_state_dict(cell.state_dict())
    x, x_here = npu(2, 1, 3)
    for grad in (True, False, True):
        with torch.set_grad_enabled(grad):
            a, b = cell(x)[0], here(x_here)[0]
        same(a.detach(), b.detach())
        assert a.requires_grad == b.requires_grad == grad
        if grad:
            a.sum().backward()
            b.sum().backward()
    same(cell.weight_ih_l0.grad, here.weight_ih_l0.grad)


def test_numbers_do_not_stay_numbers():
    """A wrapper that stood for a Python number promotes as a tensor in the next call."""
    ints = torch.arange(4)
    for value in (torch.tensor(1.5), torch.tensor(1.5, dtype=torch.float64)):
        for other in (2.5, value):
            a = torch.copysign(ints, other)
            there = other if isinstance(other, float) else other.to("npu")
            same(a, torch.copysign(ints.to("npu"), there))
        same(torch.logaddexp(value, value), torch.logaddexp(value.to("npu"), value.to("npu")))


def test_arguments_over_the_same_bytes():
    host, here = npu(40)
    for a, b in ((host[:16], host[8:24]), (host[:16], host[:16])):
        c, d = here[a.storage_offset() :][:16], here[b.storage_offset() :][:16]
        same(torch.mm(a.view(4, 4), b.view(4, 4)), torch.mm(c.view(4, 4), d.view(4, 4)))
    square, square_here = npu(4, 4)
    same(torch.mm(square, square), torch.mm(square_here, square_here))
    same(torch.mm(square, square.t()), torch.mm(square_here, square_here.t()))


def test_a_result_that_shares_an_arguments_memory():
    """Also where only one of several arguments comes back: a write to it must reach the argument."""
    _, here = npu(3, 3)
    for call in (
        lambda t: torch.ops.aten.lift_fresh(t),
        lambda t: torch._C._nn.pad_sequence([t])[0],
        lambda t: torch.ops.aten._neg_view(t),
        lambda t: torch.ops.aten.view_as_real(torch.view_as_complex(t[:, :2].contiguous())),
    ):
        before, host = here.clone(), here.cpu()
        ours, theirs = call(before), call(host)
        ours.zero_()
        theirs.zero_()
        same(host, before)


def test_a_call_that_fails_gives_its_wrappers_back():
    host, here = npu(4, 4)
    singular = torch.zeros(4, 4)
    for _ in range(40):
        with pytest.raises(RuntimeError):
            torch.linalg.inv(singular.to("npu"))
        with pytest.raises(RuntimeError):
            torch.mm(here, here[:3])
    same(torch.mm(host, host), torch.mm(here, here))


def test_inference_tensors_and_others_in_turn():
    host, here = npu(4, 4)
    for _ in range(3):
        with torch.inference_mode():
            inferred = torch.mm(here, here)
            assert inferred.is_inference()
            same(torch.mm(host, host), torch.mm(inferred, torch.eye(4).to("npu")))
        plain = torch.mm(here, here)
        assert not plain.is_inference()
        plain.add_(1)  # an inference tensor would refuse this outside its mode


def test_threads_have_wrappers_of_their_own():
    pairs = [npu(n, n, seed=n) for n in range(2, 10)]
    expected = [torch.mm(host, host) for host, _ in pairs]
    wrong = []

    def work(n):
        here = pairs[n][1]
        for _ in range(300):
            if not torch.allclose(torch.mm(here, here).cpu(), expected[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(pairs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_child_is_told(run_python):
    done = run_python(program(__file__, "_a_forked_child_is_told"))
    assert done.stdout.split()[-1] == "0"


@pytest.mark.skipif(os.environ.get("NPU_HOST_KERNELS") == "all", reason="another order of addition")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_sums_have_the_cpus_bits(dtype):
    for shape in ((1,), (7,), (64,), (1000,), (5, 1, 13), (32, 1023), (40_000,), (3, 0)):
        host, here = npu(*shape, dtype=dtype)
        same(host.sum(), here.sum())
        same(
            host.mT.sum() if host.dim() > 1 else host.sum(),
            here.mT.sum() if host.dim() > 1 else here.sum(),
        )
    host, here = npu(100, dtype=dtype)
    same(host.sum(dtype=torch.float64), here.sum(dtype=torch.float64))
    leaf = here.clone().requires_grad_()
    leaf.sum().backward()
    assert leaf.grad.eq(1).all()
