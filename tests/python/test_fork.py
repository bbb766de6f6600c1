# SPDX-License-Identifier: Apache-2.0
"""Fork: a child of a process that used npu is told so; all others work."""

import functools

import child
import pytest
import torch_npu  # noqa: F401
from gpu import starts_threads
from programs import program

# What is judged here is forks: the interpreter that forks is none itself.
run_child = functools.partial(child.run_child, exact=True)

FORK = program(__file__, "_fork")


def test_use_after_fork_is_the_known_error():
    run_child(
        FORK
        + """
text = ("Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, "
        "you must use the 'spawn' start method")
x = torch.ones(2, device="npu")
def work():
    assert torch.npu._is_in_bad_fork()
    assert not torch.npu.is_initialized()
    for use in (lambda: torch.ones(2, device="npu"), lambda: torch.npu.synchronize(),
                lambda: x.cpu(), lambda: x + 1, torch.npu.init):
        try:
            use()
        except RuntimeError as e:
            assert str(e) == text, e
        else:
            raise AssertionError("no error")
in_child(work)
assert (x + 1).tolist() == [2.0, 2.0]
"""
    )


def test_child_may_use_npu_when_the_parent_did_not():
    run_child(
        FORK
        + """
def work():
    x = torch.ones(2, device="npu", requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
in_child(work)
in_child(work)
assert torch.ones(2, device="npu").sum().item() == 2
"""
    )


def test_child_may_use_npu_when_the_parent_only_asked_what_there_is():
    run_child(
        FORK
        + """
assert torch.npu.is_available() and torch.npu.device_count() >= 1
torch.npu.get_device_name()
def work():
    assert not torch.npu._is_in_bad_fork()
    x = torch.ones(2, device="npu", requires_grad=True)
    (x * 2 + torch.rand(2, device="npu")).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
in_child(work)
in_child(work)
assert torch.ones(2, device="npu").sum().item() == 2
"""
    )


@starts_threads
@pytest.mark.parametrize("npu_used", [False, True])
def test_cpu_backward_in_a_child(npu_used):
    # PyTorch forbids it once it has started device threads.
    run_child(
        FORK
        + f"""
torch.set_num_threads(1)
torch.ones(4, requires_grad=True).sum().backward()
if {npu_used}:
    torch.ones(4, device="npu", requires_grad=True).sum().backward()
def work():
    x = torch.ones(4, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 4
in_child(work)
"""
    )


def test_child_that_ends_the_normal_way_does_not_wait():
    # Its copy of the engine believes in threads that fork did not copy, and would wait 10 s.
    out = run_child(program(__file__, "_child_that_ends_the_normal_way_does_not_wait"))
    assert out == "False\n"


def test_fork_multiprocessing_with_cpu_tensors():
    run_child(program(__file__, "_fork_multiprocessing_with_cpu_tensors"))
