# SPDX-License-Identifier: Apache-2.0
"""Memory that runs out, options from the environment, streams that are really late, fork."""

import pytest
from programs import program

OOM = program(__file__, "_oom")


def test_out_of_memory_says_so_and_the_process_goes_on(run_python):
    assert "went on" in run_python(OOM, NPU_HOST_MEMORY="64M").stdout


def test_sixty_four_gigabytes_do_not_fit(run_python):
    code = """
import torch, torch_npu
try:
    torch.empty(2**36, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError as error:
    print(str(error)[:80])
"""
    out = run_python(code, NPU_HOST_MEMORY="2G").stdout
    assert out.startswith("NPU out of memory. Tried to allocate 64.00 GiB (NPU 0; 2.00 GiB total")


ALLOCATE = """
import torch, torch_npu
try:
    torch.empty(8, device="npu")
    print("no error")
except Exception as error:
    print(type(error).__name__, str(error).splitlines()[0])
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("max_split_size_mb:3", ["max_split_size_mb", "'3'", "above 20"]),
        ("no_such_option:1", ["unknown option 'no_such_option'", "max_split_size_mb"]),
        ("expandable_segments:maybe", ["expandable_segments", "'maybe'", "True or False"]),
    ],
)
def test_bad_options_are_named(run_python, options, words):
    out = run_python(ALLOCATE, PYTORCH_NPU_ALLOC_CONF=options).stdout
    assert out.startswith("ValueError npu: PYTORCH_NPU_ALLOC_CONF: "), out
    for word in words:
        assert word in out


def test_both_variables_are_too_many(run_python):
    out = run_python(
        ALLOCATE,
        PYTORCH_NPU_ALLOC_CONF="max_split_size_mb:64",
        PYTORCH_ALLOC_CONF="max_split_size_mb:64",
    ).stdout
    assert "are both set. Keep one of them." in out


def test_options_are_accepted_and_work(run_python):
    code = program(__file__, "_options_are_accepted_and_work")
    options = (
        "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:2,"
        "per_process_memory_fraction:0.5"
    )
    assert "fine" in run_python(code, PYTORCH_NPU_ALLOC_CONF=options).stdout
    # PyTorch reads this variable itself, for pinned memory, and must not mind our names.
    options += ",base_addr_aligned_kb:16"
    assert "fine" in run_python(code, PYTORCH_ALLOC_CONF=options).stdout


def test_caching_can_be_turned_off(run_python):
    code = program(__file__, "_caching_can_be_turned_off")
    done = run_python(code, PYTORCH_NO_NPU_MEMORY_CACHING="1")
    assert "trained" in done.stdout and done.stderr == ""


def test_record_stream_holds_memory_back_until_the_stream_is_done(run_python):
    code = program(__file__, "_record_stream_holds_memory_back_until_the_stream_is_done")
    done = run_python(code, NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US="20000")
    assert "held back" in done.stdout


def test_a_forked_child_frees_nothing_and_is_told(run_python):
    code = program(__file__, "_a_forked_child_frees_nothing_and_is_told")
    assert run_python(code).stdout.split() == ["0", "1000.0"]


def test_a_child_forked_before_the_first_use_has_a_device_of_its_own(run_python):
    code = """
import os, torch, torch_npu
torch.npu.memory_stats()
child = os.fork()
if child == 0:
    torch.ones(1000, device="npu")
    os._exit(0 if torch.npu.memory_allocated() == 0 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_python(code).stdout.split() == ["0"]


def test_storages_may_outlive_the_interpreter(run_python):
    code = """
import torch, torch_npu
class Late:
    def __del__(self, x=torch.ones(1000, device="npu")):
        pass
late = Late()
torch.keep = torch.ones(5, device="npu")
print("leaving")
"""
    done = run_python(code)
    assert "leaving" in done.stdout and done.stderr == ""
