# SPDX-License-Identifier: Apache-2.0
"""Rung 4 among devices, other libraries' operators and the rest of PyTorch.

test_ladder_rungs.py runs this file again, as it does test_ladder.py.
"""

import copy
import gc
import threading
import weakref

import pytest
import torch
from ladder import npu, same

pytestmark = pytest.mark.modes


# --- devices --------------------------------------------------------------------------------

TEXT = (
    "Expected all tensors to be on the same device. Expected NPU tensor, "
    "please check whether the input tensor device is correct."
)


@pytest.mark.parametrize(
    "call",
    [
        lambda c, n: torch.add(c, n),
        lambda c, n: torch.mm(n, c),
        lambda c, n: torch.cat((n, c)),
        lambda c, n: torch.where(n > 0, n, c),
        lambda c, n: torch.nn.functional.linear(n, c),
        lambda c, n: torch.nn.functional.embedding(torch.zeros(2, dtype=torch.int64), n),
        lambda c, n: torch.gather(n, 0, torch.zeros(3, 3, dtype=torch.int64)),
        lambda c, n: n.index_put_((torch.zeros(1, dtype=torch.int64),), c),
        lambda c, n: torch.fmax(n, n, out=c),
        lambda c, n: c[n.to(torch.int64).clamp(0, 0)[:, 0]].add(n),
    ],
    ids=["add", "mm", "cat", "where", "linear", "embedding", "gather", "index_put", "out", "mixed"],
)
def test_mixed_devices_are_refused(call):
    c, n = npu(3, 3)
    with pytest.raises(RuntimeError) as error:
        call(c, n)
    assert "same device" in str(error.value), error.value


def test_the_refusal_names_argument_and_devices():
    c, n = npu(3, 3)
    with pytest.raises(RuntimeError) as error:
        torch.fmax(n, c)
    assert TEXT in str(error.value)
    assert "'other'" in str(error.value)
    assert "cpu" in str(error.value) and "npu:0" in str(error.value)
    with pytest.raises(RuntimeError, match="same device"):
        torch.fmax(n, n, out=torch.tensor(1.0))  # written: not even a number


def test_arguments_that_live_on_the_host():
    log_probs = npu(12, 2, 5)
    targets = torch.randint(1, 5, (2, 4), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([12, 10]), torch.tensor([4, 3])
    ctc = torch.nn.functional.ctc_loss
    a = ctc(log_probs[0].log_softmax(2), targets, *lengths)
    b = ctc(log_probs[1].log_softmax(2), targets.to("npu"), *lengths)
    same(a, b)


def test_different_npu_devices_are_refused(two_devices):
    a = torch.ones(3, device="npu:0")
    b = torch.ones(3, device="npu:1")
    with pytest.raises(RuntimeError, match=r"npu:1.*npu:0"):
        torch.fmax(a, b)


def test_calls_on_another_device_stay_there(two_devices):
    a = npu(3, 3)[0]
    b = a.to("npu:1")
    assert torch.fmax(b, b).device == torch.device("npu:1")
    assert torch.linalg.inv(b).device == torch.device("npu:1")
    assert torch.npu.current_device() == 0


# --- other libraries' operators -------------------------------------------------------------


def test_operators_of_another_namespace():
    library = torch.library.Library("ladder_test", "DEF")
    library.define("twice(Tensor x, Tensor(a!) y) -> Tensor")

    def twice(x, y):
        assert x.device.type == "cpu" and y.device.type == "cpu"
        y.add_(1)
        return x * 2

    library.impl("twice", twice, "CPU")
    x, y = npu(4)[1], torch.zeros(4, device="npu")
    result = torch.ops.ladder_test.twice(x, y)
    same(x.cpu() * 2, result)
    assert y.cpu().eq(1).all()
    library._destroy()


def test_an_operator_that_is_defined_again():
    for factor in (2, 3):
        library = torch.library.Library("ladder_again", "DEF")
        library.define("scale(Tensor x) -> Tensor")
        library.impl("scale", lambda x, factor=factor: x * factor, "CPU")
        x = torch.ones(2, device="npu")
        assert torch.ops.ladder_again.scale(x).cpu().eq(factor).all()
        library._destroy()


def test_a_kernel_that_keeps_its_argument():
    kept = []
    library = torch.library.Library("ladder_keep", "DEF")
    library.define("keep(Tensor x) -> Tensor")

    def keep(x):
        kept.append(x)
        return x + 1

    library.impl("keep", keep, "CPU")
    x = torch.arange(1000.0, device="npu")
    torch.ops.ladder_keep.keep(x)
    del x
    filler = [torch.zeros(1000, device="npu") for _ in range(20)]
    assert torch.equal(kept[0], torch.arange(1000.0))
    del filler
    kept.clear()
    library._destroy()


def test_a_kernel_that_returns_its_argument_or_a_kept_result():
    kept = []
    library = torch.library.Library("ladder_return", "DEF")
    library.define("give(Tensor x) -> (Tensor, Tensor, Tensor)")

    def give(x):
        made = x * 2
        kept.append(made)
        return x, made, made[1:]

    library.impl("give", give, "CPU")
    x = torch.arange(4.0, device="npu")
    same_x, made, part = torch.ops.ladder_return.give(x)
    assert same_x.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    same(torch.arange(4.0) * 2, made)
    same(torch.arange(1.0, 4.0) * 2, part)
    assert kept[0].device.type == "cpu"
    part.zero_()
    assert made.cpu()[1:].eq(0).all()  # one storage on the CPU, one here
    library._destroy()


def test_memory_that_is_not_the_pools_is_copied():
    library = torch.library.Library("ladder_foreign", "DEF")
    library.define("table(Tensor x) -> Tensor")
    table = torch.arange(5.0)
    library.impl("table", lambda x: table, "CPU")
    x = torch.ones(1, device="npu")
    got = torch.ops.ladder_foreign.table(x)
    same(table, got)
    got.zero_()
    assert torch.equal(table, torch.arange(5.0))
    library._destroy()


def test_taps_on_the_cpu_key_do_not_see_npu_calls():
    seen = []
    library = torch.library.Library("aten", "IMPL")

    def tap(*args):
        seen.append(args)
        return args[0].clone()

    x = npu(3)
    expected = torch.fmax(x[0], x[0])
    torch.fmax(x[1], x[1])
    library.impl("fmax", tap, "CPU", allow_override=True)
    try:
        same(expected, torch.fmax(x[1], x[1]))
        assert not seen
        torch.fmax(x[0], x[0])
        assert seen
    finally:
        library._destroy()


# --- the rest of PyTorch around it ----------------------------------------------------------


def test_autocast_on_the_cpu_does_not_cast_temporaries():
    a = npu(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = torch.linalg.multi_dot([a[1], a[1], a[1]])
    assert got.dtype == torch.float32
    same(torch.linalg.multi_dot([a[0], a[0], a[0]]), got)


def test_gradients_through_the_ladder():
    x = npu(5, 5)
    leaves = [x[0].clone().requires_grad_(), x[1].clone().requires_grad_()]
    for leaf in leaves:
        torch.linalg.cholesky(
            leaf @ leaf.mT + 5 * torch.eye(5, device=leaf.device)
        ).sum().backward()
    same(leaves[0].grad, leaves[1].grad)


def test_zero_tensors_in_forward_mode():
    x, t = npu(3), npu(3, seed=1)
    _, tangent = torch.func.jvp(torch.fmax, (x[1], x[1]), (t[1], t[1]))
    same(torch.func.jvp(torch.fmax, (x[0], x[0]), (t[0], t[0]))[1], tangent)
    same(
        torch.func.hessian(lambda v: (v**3).sum())(x[0]),
        torch.func.hessian(lambda v: (v**3).sum())(x[1]),
    )


def test_inference_mode():
    x = npu(4)
    with torch.inference_mode():
        y = torch.fmax(x[1], x[1])
        assert y.is_inference()
        y.mul_(2)
    same(x[0] * 2, y.clone())


def test_version_counters_move_as_on_the_cpu():
    for device in ("cpu", "npu"):
        x = torch.ones(3, device=device)
        torch.fmax(x, x, out=x)
        assert x._version == 1


def test_batch_norm_statistics_are_written():
    x = npu(8, 4, 5)
    stats = []
    for i, device in enumerate(("cpu", "npu")):
        norm = torch.nn.BatchNorm1d(4).to(device)
        norm(x[i])
        stats.append((norm.running_mean, norm.running_var))
    same(stats[0][0], stats[1][0])
    same(stats[0][1], stats[1][1])
    for i in range(2):
        torch.batch_norm_update_stats(x[i], *stats[i], 0.1)
    same(stats[0][0], stats[1][0])
    same(stats[0][1], stats[1][1])


def test_threads_call_at_once():
    x = npu(64, 64)
    expected = torch.linalg.qr(x[0])[1]
    wrong = []

    def work():
        for _ in range(20):
            if not torch.equal(torch.linalg.qr(x[1])[1].cpu(), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_die_with_their_owner():
    x = npu(100)[1]
    y = torch.fmax(x, x)
    probe = weakref.ref(y)
    del y
    gc.collect()
    assert probe() is None


def test_a_result_behaves_like_any_npu_tensor():
    x = npu(6)
    y = torch.fmax(x[1], x[1])
    same(x[0], copy.deepcopy(y))
    y.resize_(20)
    assert y.untyped_storage().nbytes() == 80
    assert y.untyped_storage().device.type == "npu"


def test_empty_tensors():
    x = torch.empty(0, 3, device="npu")
    assert torch.fmax(x, x).shape == (0, 3)
    assert torch.linalg.inv(torch.empty(0, 2, 2, device="npu")).device.type == "npu"


def test_factories_without_a_tensor_argument():
    same(torch.tril_indices(4, 4), torch.tril_indices(4, 4, device="npu"))
    with pytest.raises(RuntimeError, match=r"(?i)pin"):
        torch.tril_indices(4, 4, device="npu", pin_memory=True)


def test_in_flight_work_is_waited_for():
    x = torch.zeros(1 << 16, device="npu")
    for i in range(20):
        x.fill_(float(i))
        assert torch.fmax(x, x).cpu().eq(i).all()
