# SPDX-License-Identifier: Apache-2.0
"""torch.npu.set_sync_debug_mode: operators that make the host wait for the device."""

import warnings

import pytest
import torch
import torch_npu
from faulty import built_driver

pytestmark = pytest.mark.modes

WORDS = "called a synchronizing NPU operation"


@pytest.fixture(autouse=True)
def default_mode():
    torch.npu.set_sync_debug_mode("default")
    yield
    torch.npu.set_sync_debug_mode("default")


@pytest.fixture
def x():
    return torch.arange(6.0, device="npu").view(2, 3)


def mask(x):
    return x > 2


WAITS = {
    "item": lambda x: x[0, 0].item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool((x > 9).any()),
    "if": lambda x: 1 if x.max() > 2 else 2,
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to cpu": lambda x: x.to("cpu", torch.float64),
    "numpy": lambda x: x.cpu().numpy(),
    "to pageable memory": lambda x: torch.empty(2, 3).copy_(x, non_blocking=True),
    "from pageable memory": lambda x: x.copy_(torch.ones(2, 3)),
    "tensor of numbers": lambda x: torch.tensor([1.0, 2.0], device="npu"),
    "print": lambda x: repr(x),
    "nonzero": lambda x: x.nonzero(),
    "argwhere": lambda x: torch.argwhere(x),
    "where": lambda x: torch.where(x > 2),
    "masked_select": lambda x: x.masked_select(mask(x)),
    "mask as index": lambda x: x[mask(x)],
    "mask with values": lambda x: x.__setitem__(mask(x), torch.ones(3, device="npu")),
    "unique": lambda x: x.unique(),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "bincount": lambda x: x.long().view(-1).bincount(),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, torch.tensor([1, 2], device="npu"), 0),
    "equal": lambda x: torch.equal(x, x.clone()),
    "allclose": lambda x: torch.allclose(x, x.clone()),
    "one_hot": lambda x: torch.nn.functional.one_hot(x.long()),
}  # fmt: skip

GOES_ON = {
    "arithmetic": lambda x: (x @ x.t()).softmax(0).sum() * 2,
    "slices": lambda x: x[:, 1:].add_(1),
    "integers as index": lambda x: x[torch.zeros(1, dtype=torch.long, device="npu")],
    "mask with one value": lambda x: x.masked_fill_(mask(x), 0),
    "one value by index": lambda x: x.__setitem__(mask(x), 0.0),
    "where": lambda x: torch.where(x > 2, x, 0),
    "to pinned memory": lambda x: torch.empty(2, 3, pin_memory=True).copy_(x, non_blocking=True),
    "from pinned memory": lambda x: torch.ones(2, 3).pin_memory().npu(non_blocking=True),
    "from pageable memory, staged": lambda x: torch.ones(2, 3).to("npu", non_blocking=True),
    "clone": lambda x: x.clone(memory_format=torch.contiguous_format),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, 2, 0, output_size=4),
    "one_hot": lambda x: torch.nn.functional.one_hot(x.long(), num_classes=6),
    "randperm": lambda x: torch.randperm(20, device="npu"),
    "dropout": lambda x: torch.nn.functional.dropout(x),
    "cast": lambda x: x.half().float(),
    "sort": lambda x: x.sort(),
    "numbers of the shape": lambda x: x.numel() + x.size(0),
    "explicit": lambda x: torch.npu.synchronize(),
    "explicit, of a stream": lambda x: torch.npu.current_stream().synchronize(),
    "explicit, of an event": lambda x: torch.npu.current_stream().record_event().synchronize(),
    "the CPU's own": lambda x: torch.ones(3).sum().item(),
}  # fmt: skip


def told(work, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work(*args)
    return [str(w.message) for w in caught if WORDS in str(w.message)], caught


@pytest.mark.parametrize("work", WAITS.values(), ids=WAITS)
def test_warn_names_operator_and_line(x, work):
    torch.npu.set_sync_debug_mode("warn")
    messages, caught = told(work, x)
    assert messages, "no warning"
    line = work.__code__.co_firstlineno
    assert all(f"(test_sync_debug_mode.py:{line} in " in message for message in messages)
    told_first = next(w for w in caught if WORDS in str(w.message))
    assert told_first.category is UserWarning
    assert (told_first.filename, told_first.lineno) == (__file__, line)


def test_filters_of_warnings_hold(x):
    torch.npu.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            x.sum().item()
    assert len(caught) == 1  # once a line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=WORDS):
            x.nonzero()
    assert x.sum().item() == 15


@pytest.mark.parametrize("work", GOES_ON.values(), ids=GOES_ON)
def test_what_does_not_wait_is_not_reported(x, work):
    torch.npu.set_sync_debug_mode("warn")
    assert told(work, x)[0] == []
    torch.npu.set_sync_debug_mode("error")
    work(x)


@pytest.mark.parametrize("work", WAITS.values(), ids=WAITS)
def test_error_raises_and_the_device_stays_usable(x, work):
    torch.npu.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match=WORDS):
        work(x)
    y = x * 2  # the next operator is not blamed
    torch.npu.set_sync_debug_mode("default")
    assert y.tolist() == [[0, 2, 4], [6, 8, 10]]
    work(x)


def test_one_operator_is_reported_once(x):
    torch.npu.set_sync_debug_mode("warn")
    assert len(told(lambda: x[x > 2])[0]) == 1
    assert len(told(x.cpu)[0]) == 1


def test_default_is_silent_and_numbers_mean_the_same(x):
    assert told(x.cpu)[0] == []
    for mode in (1, "warn"):
        torch.npu.set_sync_debug_mode(mode)
        assert torch.npu.get_sync_debug_mode() == 1
        assert told(x.cpu)[0]
    torch.npu.set_sync_debug_mode(2)
    with pytest.raises(RuntimeError, match="aten::copy_ from npu:0 to cpu"):
        x.cpu()


def test_an_operator_of_the_cpu_waits(x):
    if torch_npu._C._profile_name() in ("", "none"):
        pytest.skip("no profile: nothing falls back")
    torch.npu.set_sync_debug_mode("warn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        messages = told(torch.fmax, x, x)[0]
    assert any("fmax" in m and "runs on the CPU" in m for m in messages)


def test_backward_and_threads(x):
    from concurrent.futures import ThreadPoolExecutor

    torch.npu.set_sync_debug_mode("error")
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match=WORDS):
        pool.submit(x.sum().item).result()
    w = torch.ones(3, device="npu", requires_grad=True)
    w.register_hook(lambda g: g.sum().item() and None)
    with pytest.raises(RuntimeError, match=WORDS):
        (w * 2).sum().backward()


@pytest.mark.parametrize(
    "variables",
    [{"NPU_HOST_ASYNC": "1"}, {"NPU_DRIVER": "discrete", "NPU_FALLBACK": "silent"}],
    ids=["async", "discrete"],
)
def test_other_drivers_report_the_same(run_python, variables):
    if "NPU_DRIVER" in variables:
        variables = {**variables, "NPU_DRIVER": built_driver("discrete")}
    done = run_python(
        """
        import warnings
        import torch, torch_npu
        x = torch.arange(6.0, device="npu")
        torch.npu.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            y = x * 2
            y.sum()
            # A driver without the kernel asks the CPU, and waits for it: that is said too.
            assert all("runs on the CPU" in str(w.message) for w in caught)
            y.sum().item()
            y.nonzero()
            y[y > 3]
            y.cpu()
        told = [str(w.message) for w in caught if "runs on the CPU" not in str(w.message)]
        print(*(m.split(": ")[1].split(" ")[0] for m in told))
        """,
        **variables,
    )
    assert done.stdout == "aten::_local_scalar_dense aten::nonzero aten::index.Tensor aten::copy_\n"
