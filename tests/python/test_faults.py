# SPDX-License-Identifier: Apache-2.0
"""Every driver slot fails once: an exception is raised, nothing leaks, later calls work.

The driver under test forwards to the host driver and fails the slot it is told to
(tests/drivers/faulty_driver.cpp); each slot runs in a process of its own.
"""

import os

import interpreter
import pytest
from child import run_child
from faulty import faulty_environment
from programs import program

# What a program does that reaches the slot.
USES = {
    "memory.alloc": "torch.empty(40 << 20, device='npu')",
    "memory.host_alloc": "torch.empty(3 << 20).pin_memory()",
    "memory.copy_to_device": "torch.ones(999).npu()",
    "memory.copy_to_host": "kept.cpu()",
    "memory.copy_on_device": "kept.clone()",
    "memory.set_bytes": "torch.zeros(99, device='npu')",
    "stream.create": "torch.npu.Stream().synchronize()",
    "stream.synchronize": "torch.npu.current_stream().synchronize()",
    "stream.query": "torch.npu.current_stream().query()",
    "stream.wait_event": "torch.npu.Stream().wait_event(event)",
    "event.create": "torch.npu.Event().record()",
    "event.record": "torch.npu.Event().record()",
    "event.query": "event.query()",
    "event.synchronize": "event.synchronize()",
    "event.elapsed_ms": "event.elapsed_time(event2)",
    "device.synchronize": "torch.npu.synchronize()",
    "device.memory_info": "torch.npu.mem_get_info()",
    "op.run": "kept.double()",
}

SCRIPT = program(__file__, "_script")


@pytest.mark.parametrize("slot", list(USES))
def test_a_slot_that_fails_raises_and_leaks_nothing(slot: str) -> None:
    out = run_child(SCRIPT, slot, USES[slot], **faulty_environment()).split()
    assert out[-1] == "works"
    assert "raised" in out, out
    assert out[out.index("fired") + 1] == "1", out


@pytest.mark.parametrize("slot", ["device.count", "device.open", "device.properties"])
def test_a_device_that_does_not_open_says_so_at_first_use(slot: str) -> None:
    script = """
        import torch, torch_npu
        for attempt in range(3):
            try:
                torch.ones(2, device="npu")
                print("works")
                break
            except RuntimeError as error:
                print("raised", len(str(error)) > 20)
    """
    out = run_child(script, **faulty_environment(), NPU_FAULT=f"{slot}:1").split()
    assert out[-1] == "works", out


def test_the_driver_names_what_it_was_told_wrongly() -> None:
    script = "import torch, torch_npu; torch.ones(1, device='npu')"
    done = interpreter.run(
        ["-c", script],
        env={**os.environ, **faulty_environment(), "NPU_FAULT": "memory.eat:1"},
    )
    assert done.returncode == 1
    assert "memory.eat" in done.stderr
