# SPDX-License-Identifier: Apache-2.0
"""What users do wrong with profilers: said in a line, and the next profile works."""

import os

import pytest
import torch
import torch_npu
from torch.profiler import ProfilerActivity
from torch_npu import profiler as npu_profiler

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


@pytest.fixture(autouse=True)
def the_next_profile_works():
    yield
    with torch.profiler.profile(activities=BOTH) as prof:
        torch.ones(4, device="npu") + 1
    assert [e for e in prof.events() if "add" in e.name]


def test_started_twice():
    prof = npu_profiler.profile()
    prof.start()
    with pytest.raises(RuntimeError, match="running already"):
        prof.start()
    prof.stop()


def test_two_at_once():
    with npu_profiler.profile():
        with pytest.raises(RuntimeError, match="another profile is running"):
            with npu_profiler.profile():
                pass
        torch.ones(4, device="npu") + 1


def test_stopped_without_start():
    with pytest.raises(RuntimeError, match="not started"):
        npu_profiler.profile().stop()
    prof = npu_profiler.profile()
    with prof:
        pass
    with pytest.raises(RuntimeError, match="not started"):
        prof.stop()


def test_step_outside():
    with pytest.raises(RuntimeError, match="not running"):
        npu_profiler.profile().step()


def test_the_program_raises_inside():
    with pytest.raises(ZeroDivisionError):
        with npu_profiler.profile():
            torch.ones(4, device="npu") + 1
            1 / 0  # noqa: B018
    assert torch_npu._C._watched_for() & 1 == 0


def test_schedules_that_make_no_sense():
    with pytest.warns(UserWarning, match="wait=-1 is no number from 0 on"):
        made = npu_profiler.schedule(wait=-1, active=1)
    assert made(0) is npu_profiler.ProfilerAction.RECORD_AND_SAVE
    with pytest.warns(UserWarning, match="active=0 is no number from 1 on"):
        npu_profiler.schedule(wait=0, active=0)
    with pytest.raises(TypeError, match="cannot be called"):
        npu_profiler.profile(schedule=3)


def test_options_of_the_wrong_kind():
    with pytest.raises(TypeError, match=r"is not one of ProfilerLevel.Level_none"):
        npu_profiler._ExperimentalConfig(profiler_level="Level1")
    with pytest.raises(TypeError, match=r"not a torch_npu.profiler._ExperimentalConfig"):
        npu_profiler.profile(experimental_config={"profiler_level": 1})
    with pytest.raises(ValueError, match="nothing to record"):
        npu_profiler.profile(activities=[])
    with pytest.raises(ValueError, match="Give one of them"):
        npu_profiler._ExperimentalConfig(mstx_domain_include=["a"], mstx_domain_exclude=["b"])


def test_folders_that_cannot_be_written_to(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for where in [str(file), str(file / "below"), "/proc/nowhere"]:
        with pytest.raises(RuntimeError, match="cannot write profiles to"):
            npu_profiler.tensorboard_trace_handler(where)
    with pytest.raises(TypeError, match="is no path"):
        npu_profiler.tensorboard_trace_handler(3)


def test_a_folder_that_vanished(tmp_path):
    """It is made again: the profile is worth more than the complaint."""
    parent = tmp_path / "p"
    handler = npu_profiler.tensorboard_trace_handler(str(parent))
    parent.rmdir()
    with npu_profiler.profile(on_trace_ready=handler):
        torch.ones(4, device="npu") + 1
    assert len(list(parent.iterdir())) == 1


def test_analyse_of_what_is_no_profile(tmp_path):
    with pytest.raises(RuntimeError, match="is no folder"):
        npu_profiler.analyse(str(tmp_path / "absent"))
    with pytest.raises(RuntimeError, match="no folder named"):
        npu_profiler.analyse(str(tmp_path))
    empty = tmp_path / "x_1_20260101000000000_ascend_pt"
    empty.mkdir()
    with pytest.raises(RuntimeError, match="holds no recording"):
        npu_profiler.analyse(str(empty))
    (empty / "FRAMEWORK").mkdir()
    (empty / "FRAMEWORK" / "torch_trace.json").write_text('{"traceEvents": [')
    with pytest.raises(RuntimeError, match="cannot be read"):
        npu_profiler.analyse(str(empty))


def test_the_handler_of_another_profile(tmp_path):
    handler = npu_profiler.tensorboard_trace_handler(str(tmp_path))
    prof = torch.profiler.profile(activities=BOTH, on_trace_ready=handler)
    prof.start()
    with pytest.raises(TypeError, match=r"use it with torch_npu.profiler.profile"):
        prof.stop()


def test_dynamic_profile_without_init(run_code):
    run_code(
        """
        import pytest, torch, torch_npu
        from torch_npu.profiler import dynamic_profile as dp
        with pytest.raises(RuntimeError, match="before init"):
            dp.step()
        with pytest.raises(RuntimeError, match="needs the path"):
            dp.start()
        """
    )


def test_ranges_that_do_not_match():
    with pytest.raises(ValueError, match="no open range"):
        torch.npu.mstx.range_end(123456789)
    with pytest.raises(RuntimeError, match="no range is open"):
        torch.npu.mstx.range_pop()
    with pytest.raises(TypeError, match="is no text"):
        torch.npu.mstx.range_start(3)


def test_ranges_end_in_any_order_and_on_any_thread():
    import threading

    with torch.profiler.profile(activities=BOTH) as prof:
        first = torch.npu.mstx.range_start("first")
        second = torch.npu.mstx.range_start("second")
        torch.npu.mstx.range_end(first)
        thread = threading.Thread(target=torch.npu.mstx.range_end, args=(second,))
        thread.start()
        thread.join()
        torch.ones(4, device="npu") + 1
    assert {"first", "second"} <= {e.name for e in prof.events()}


def test_no_device_is_no_crash(run_code):
    """A driver that does not load: the CPU's part of the profile is there."""
    run_code(
        """
        import torch, torch_npu
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
            torch.ones(3) + 1
        assert [e for e in prof.events() if e.name == "aten::add"]
        """,
        NPU_DRIVER="there-is-none",
    )


@pytest.mark.parametrize("use_kineto", [False, True])
def test_autograd_profiler(use_kineto):
    a = torch.randn(256, 256, device="npu")
    a @ a
    with torch.autograd.profiler.profile(use_device="npu", use_kineto=use_kineto) as prof:
        a @ a
    (row,) = [r for r in prof.key_averages() if r.key == "aten::mm"]
    assert row.device_time_total > 0
    assert row.device_time_total < 10 * row.cpu_time_total + 1000


def test_autograd_profiler_where_streams_run_late(run_code):
    run_code(
        """
        import torch, torch_npu
        a = torch.randn(64, 64, device="npu")
        a @ a
        with torch.autograd.profiler.profile(use_device="npu") as prof:
            a @ a
        (row,) = [r for r in prof.key_averages() if r.key == "aten::mm"]
        assert row.device_time_total > 0
        """,
        NPU_HOST_ASYNC="1",
        NPU_HOST_DELAY_US="50",
    )


def test_it_says_nothing_on_its_own(run_code):
    done = run_code(
        """
        import torch, torch_npu
        a = torch.randn(8, 8, device="npu")
        with torch.autograd.profiler.profile(use_device="npu"):
            a @ a
        """
    )
    assert done.stderr == "", done.stderr
    assert os.linesep not in done.stdout
