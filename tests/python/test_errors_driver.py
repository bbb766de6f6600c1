# SPDX-License-Identifier: Apache-2.0
"""A driver call that fails, slot by slot: the right exception, and life goes on."""

import pytest
from child import run_child
from faulty import faulty_environment
from programs import program

START = program(__file__, "_start")


def run(body):
    run_child(START + body, **faulty_environment())


@pytest.mark.parametrize(
    "slot, prepare, act",
    [
        ("device.open", "", "torch.empty(4, device='npu')"),
        ("device.properties", "", "torch.npu.get_device_properties(0)"),
        ("device.synchronize", "x = torch.ones(1, device='npu')", "torch.npu.synchronize()"),
        ("stream.create", "", "torch.Stream('npu').synchronize()"),
        ("stream.synchronize", "s = torch.Stream('npu')", "s.synchronize()"),
        ("stream.query", "s = torch.Stream('npu')", "s.query()"),
        (
            "stream.wait_event",
            "s = torch.Stream('npu'); e = s.record_event()",
            "torch.Stream('npu').wait_event(e)",
        ),
        ("event.create", "s = torch.Stream('npu')", "torch.Event('npu').record(s)"),
        ("event.record", "s = torch.Stream('npu')", "torch.Event('npu').record(s)"),
        ("event.query", "e = torch.Stream('npu').record_event()", "e.query()"),
        ("event.synchronize", "e = torch.Stream('npu').record_event()", "e.synchronize()"),
        ("memory.host_alloc", "", "torch.empty(4).pin_memory()"),
        (
            "memory.copy_on_device",
            "x = torch.ones(4, device='npu')",
            "x.untyped_storage().resize_(64)",
        ),
    ],
)
def test_failed_call_raises_and_the_next_one_works(slot, prepare, act):
    run(
        f"""
{prepare}
def act():
    {act}
arm("{slot}:1:internal")
fails(RuntimeError, "npu: ", "faulty: {slot} fails, as asked",
      "ERR00100 PTA call acl api failed")
act()
assert torch.ones(3, device="npu").sum().item() == 3
"""
    )


@pytest.mark.parametrize(
    "status, kind, code",
    [
        ("out_of_memory", "torch.OutOfMemoryError", "ERR00006 PTA memory error"),
        ("unsupported", "NotImplementedError", "ERR00007 PTA feature not supported"),
        ("invalid", "ValueError", "ERR00003 PTA invalid value"),
        ("timeout", "RuntimeError", "ERR00011 PTA timeout error"),
        ("async", "RuntimeError", "ERR00100 PTA call acl api failed"),
        ("device_lost", "RuntimeError", "ERR00100 PTA call acl api failed"),
    ],
)
def test_status_becomes_the_exception_users_expect(status, kind, code):
    run(
        f"""
s = torch.Stream("npu")
s.synchronize()
act = s.synchronize
arm("stream.synchronize:1:{status}")
fails({kind}, "synchronize stream", "faulty: stream.synchronize fails", "{code}")
act()
"""
    )


def test_pinned_memory_tries_again_with_an_empty_cache():
    run(
        """
torch.empty(1000).pin_memory()  # now cached
arm("memory.host_alloc:1:out_of_memory")
assert torch.empty(100_000).pin_memory().is_pinned()
"""
    )


@pytest.mark.parametrize("slot", ["event.destroy", "memory.host_free"])
def test_failure_while_letting_go_is_no_crash(slot):
    run(
        f"""
s = torch.Stream("npu")
arm("{slot}:1:internal")
s.record_event().synchronize()
torch.empty(1000).pin_memory()
if hasattr(torch.accelerator, "empty_host_cache"):
    torch.accelerator.empty_host_cache()
assert torch.ones(3, device="npu").sum().item() == 3
"""
    )


def test_event_that_cannot_be_made_gives_up_the_pinned_block():
    run(
        """
x = torch.zeros(4096, device="npu")
pinned = torch.ones(4096).pin_memory()
x.copy_(pinned, non_blocking=True)
pointer = pinned.data_ptr()
arm("event.create:1:internal")
del pinned  # the block waits for an event that failed: it is never handed out again
assert all(torch.empty(4096).pin_memory().data_ptr() != pointer for _ in range(4))
assert x.sum().item() == 4096
"""
    )
