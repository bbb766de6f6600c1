# SPDX-License-Identifier: Apache-2.0
"""OP_CAPTURE_FORMAT=ditorch, and running what was captured again."""

import json
import os
import re
import sys
from pathlib import Path

import interpreter
import op_tools
import pytest
import torch
from op_tools import run_op_from_data
from op_tools.ditorch_compat import ditorch_folders
from op_tools.op_runner import OpAccyChecker, OpRunner, OpRunnerHook
from op_tools.save_op_args import write_args
from torch.nn import functional as F

NEWEST = Path("op_tools_results/op_capture_results")
OLD = Path("op_capture_result")


def step(device):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, device=device, requires_grad=True)
    w = torch.randn(5, 4, device=device, requires_grad=True)
    y = torch.mul(F.linear(x, w), 2.0)
    y = torch.mul(y, y).add_(1)
    a, b = y.sort()[0].chunk(2)
    (a.sum() + b[:, ::2].sigmoid().mean(dim=-1).sum()).backward()
    return x, w


def capture(device, monkeypatch, form="ditorch"):
    monkeypatch.setenv("OP_CAPTURE_FORMAT", form)
    with op_tools.OpCapture():
        return step(device)


def run(*arguments):
    return run_op_from_data.main([str(argument) for argument in arguments])


def count():
    return len(ditorch_folders.find("."))


def test_the_newest_layout(device, monkeypatch, capsys):
    x, w = capture(device, monkeypatch)
    (folder,) = NEWEST.glob(f"torch.nn.functional.linear/{os.getpid()}/*/*")
    assert re.fullmatch(r"\d{4}(-\d\d){5}", folder.name)
    names = {f"{part}.pth" for part in "input output grad_inputs grad_outputs".split()}
    assert {p.name for p in folder.iterdir()} == names | {f"{name}.json" for name in names}
    given = torch.load(folder / "input.pth", weights_only=True)
    assert given["name"] == "torch.nn.functional.linear"
    assert given["identifier"] == f"{folder.parent.name}/{folder.name}/input"
    assert torch.equal(given["args"][0], x.detach().cpu()) and given["kwargs"] == {}
    # Every argument's gradient, also the weight's, which is another node's.
    grads = torch.load(folder / "grad_inputs.pth", weights_only=True)["args"]
    assert torch.allclose(grads[1], w.grad.cpu()) and grads[0].shape == x.shape
    described = json.loads((folder / "input.pth.json").read_text())
    assert described["op"] == given["name"] and described["args"][1]["shape"] == "(5, 4)"
    text = capsys.readouterr().out
    assert f"{folder}/grad_outputs.pth saved" in text
    assert "apply OpCaptureHook on torch.mul" in text
    assert "skip OpCaptureHook on torch.Tensor.backward" in text


def test_the_layout_of_august_2024(device, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "3")
    capture(device, monkeypatch, "ditorch-2024-08")
    (folder,) = OLD.glob("3/*/torch.nn.functional.linear/*")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d--\d\d-\d\d", folder.parent.parent.name)
    assert (folder / "grad_outputs.pth").exists()
    assert not NEWEST.exists()
    assert run(".", "--run_times", 1, "--device", device) == 0


def test_lines_with_tables(device, monkeypatch, capsys):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    capture(device, monkeypatch)
    text = capsys.readouterr().out
    stamp = r"\d+/\d{4}(-\d\d){5}"
    assert re.search(rf"^torch\.mul    forward_id:{stamp}    {re.escape(__file__)}:", text, re.M)
    assert re.search(rf"^torch\.mul forward_id:{stamp}$", text, re.M)
    assert "grad_output " in text and "grad_inputs[0]" in text


def test_no_taps_for_ditorch_folders(device, monkeypatch):
    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch")
    with op_tools.OpCapture():
        assert op_tools._C.tap_count() == 0


def test_all_agree_on_every_device(device, monkeypatch, capsys):
    capture(device, monkeypatch)
    for where in {device, "cpu"}:
        assert run(".", "--run_times", 2, "--device", where) == 0
        text = capsys.readouterr().out
        assert f"\n{count()} cases, {count()} agree, 0 differ" in text
        assert "torch.Tensor.__getitem__" in text and "DIFFERS" not in text


def test_a_native_capture(device, monkeypatch, capsys):
    with op_tools.OpCapture():
        step(device)
    assert run(".", "--run_times", 1, "--device", device) == 0
    assert "aten::mm" in capsys.readouterr().out


def folder_of(name):
    (found,) = {Path(folder) for folder in ditorch_folders.find(".") if f"/{name}/" in folder}
    return found


@pytest.mark.parametrize("part, column", [("output", "forward"), ("grad_inputs", "backward")])
def test_a_difference_is_found(device, monkeypatch, capsys, part, column):
    capture(device, monkeypatch)
    path = folder_of("torch.nn.functional.linear") / f"{part}.pth"
    content = torch.load(path, weights_only=True)
    wrong = content["args"][0].detach()
    amount = 0.01 * wrong.abs().max().item()
    wrong[0, 0, 0] += amount
    torch.save(content, path)
    assert run(".", "--run_times", 1, "--device", device) == 1
    text = capsys.readouterr().out
    assert f"{count() - 1} agree, 1 differ" in text
    (row,) = (line for line in text.splitlines() if "DIFFERS" in line)
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    names = "case name forward backward max_abs_diff allclose note".split()
    cell = dict(zip(names, cells))
    assert cell["name"] == "torch.nn.functional.linear" and cell[column] == "DIFFERS"
    assert abs(float(cell["max_abs_diff"]) / amount - 1) < 0.01 and cell["allclose"] == "False"


@pytest.mark.parametrize("ulps", [1, 16])
def test_half_precision_differs_by_rounding_only(accelerator, monkeypatch, capsys, ulps):
    """Another device's half kernels round elsewhere: that is no error, more than that is."""
    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch")
    torch.manual_seed(0)
    x = torch.randn(64, 300, device=accelerator, dtype=torch.float16)
    w = torch.randn(40, 300, device=accelerator, dtype=torch.float16)
    with op_tools.OpCapture():
        F.linear(x, w)
    path = folder_of("torch.nn.functional.linear") / "output.pth"
    content = torch.load(path, weights_only=True)
    exact = (x.double().cpu() @ w.double().cpu().t()).half()
    shifted = (exact.view(torch.int16) + 1).view(torch.float16)
    largest = exact.abs().argmax()  # where 16 of its last digits are no rounding of its terms
    shifted.view(-1)[largest] = (exact.view(torch.int16).view(-1)[largest] + ulps).view(
        torch.float16
    )
    assert not (shifted == exact).any()
    content["args"] = (shifted,)
    torch.save(content, path)
    wrong = ulps > 1
    assert run(".", "--run_times", 1) == wrong
    text = capsys.readouterr().out
    assert ("within rounding" in text) != wrong and ("DIFFERS" in text) == wrong


def test_flags(device, monkeypatch, capsys):
    capture(device, monkeypatch)
    folder = folder_of("torch.nn.functional.linear")
    capsys.readouterr()
    assert run(folder, "--run_times", 3, "--sync_time_measure", "--device", device) == 0
    text = capsys.readouterr().out
    number = r" elasped \d+\.\d{8} ms"
    name = r"^SyncExecuteTimer: torch\.nn\.functional\.linear "
    assert len(re.findall(name + "forward " + number, text, re.M)) == 3
    assert len(re.findall(name + "backward" + number, text, re.M)) == 3
    flags = ["--run_times", 3, "--only_run_forward", "--sync_time_measure", "--device", device]
    assert run(folder, *flags) == 0
    text = capsys.readouterr().out
    assert len(re.findall(name + "forward" + number, text, re.M)) == 3
    assert "backward elasped" not in text
    assert run(folder, "--acc_check", "--run_times", 1, "--device", device) == 0
    text = capsys.readouterr().out
    head = r"^OpAutoCompareHook: torch\.nn\.functional\.linear"
    tail = r" +allclose: True    max_diff: +\d+\.\d{9}$"
    assert re.search(head + tail, text, re.M)
    for i in range(2):
        assert re.search(head + f" {i}th input grad" + tail, text, re.M)


def test_default_number_of_runs(device, monkeypatch):
    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch")
    with op_tools.OpCapture():
        torch.sin(torch.ones(2, device=device))
    runs = []
    monkeypatch.setattr(OpRunner, "run_forward", counting(OpRunner.run_forward, runs))
    assert run(folder_of("torch.sin"), "--device", device, "--in-process") == 0
    assert len(runs) == 100


def counting(function, calls):
    def counted(*args):
        calls.append(args)
        return function(*args)

    return counted


def test_the_script_itself(device, monkeypatch, tmp_path):
    capture(device, monkeypatch)
    sources = Path(__file__).parents[2] / "optools" / "python"
    for command, where in (
        (["op_tools/run_op_from_data.py"], sources),
        (["-m", "op_tools.run_op_from_data"], tmp_path),
    ):
        arguments = [str(tmp_path), "--run_times", "1", "--device", device]
        done = interpreter.run([*command, *arguments], cwd=where)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{count()} cases, {count()} agree" in done.stdout


class Evil:
    def __reduce__(self):
        return os.mkdir, ("made_by_a_file",)


def test_bad_files_do_not_stop_the_walk(device, monkeypatch, capsys):
    capture(device, monkeypatch)
    good = folder_of("torch.nn.functional.linear") / "input.pth"
    for name, content in (
        ("truncated", good.read_bytes()[: good.stat().st_size // 2]),
        ("foreign", b"this is a letter"),
        ("empty", b""),
    ):
        folder = Path("torch.bad", name)
        folder.mkdir(parents=True)
        (folder / "input.pth").write_bytes(content)
    Path("torch.bad/evil").mkdir()
    torch.save({"name": "torch.add", "args": (Evil(),), "kwargs": {}}, "torch.bad/evil/input.pth")
    Path("torch.bad/list").mkdir()
    torch.save([1, 2], "torch.bad/list/input.pth")
    assert run(".", "--run_times", 1, "--device", device) == 1
    text = capsys.readouterr().out
    assert f"{count()} cases, {count() - 5} agree, 5 differ or could not be run" in text
    assert "torch.bad/truncated/input.pth is no file of torch.save, or a part of one" in text
    assert "torch.bad/evil/input.pth holds more than plain data (posix.mkdir)" in text
    assert "torch.bad/list/input.pth is no file of a call" in text
    assert not Path("made_by_a_file").exists()


def test_a_missing_or_broken_output_leaves_the_rest(device, monkeypatch, capsys):
    capture(device, monkeypatch)
    folder = folder_of("torch.nn.functional.linear")
    (folder / "output.pth").write_bytes(b"broken")
    assert run(folder, "--run_times", 1, "--device", device) == 0
    text = capsys.readouterr().out
    assert "output.pth is no file of torch.save" in text and "1 agree" in text
    (folder / "output.pth").unlink()
    assert run(folder, "--run_times", 1, "--device", device) == 0


def test_a_files_name_calls_nothing_but_pytorch(device, capsys, monkeypatch):
    write_args("os.mkdir/1/input", "os.mkdir", "1", ("made_by_a_name",), {})
    write_args("torch.load/1/input", "torch.load", "1", ("some.pth",), {})
    assert run(".", "--run_times", 1, "--device", device) == 1
    text = capsys.readouterr().out
    assert "os.mkdir is no function of PyTorch's" in text and "--allow os" in text
    assert "torch.load is no function of PyTorch's" in text
    assert not Path("made_by_a_name").exists()
    Path("a_package.py").write_text("import os\n\ndef make(name):\n    os.mkdir(name)\n")
    monkeypatch.syspath_prepend(".")
    write_args("a_package.make/1/input", "a_package.make", "1", ("made_by_a_name",), {})
    own = ["a_package.make", "--run_times", 1, "--device", device]
    assert run(*own) == 1 and not Path("made_by_a_name").exists()
    assert run(*own, "--allow", "a_package") == 0
    assert Path("made_by_a_name").exists()
    assert "a_package" not in sys.modules  # it ran in another process


def test_random_operators_are_run_and_not_compared(device, monkeypatch, capsys):
    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch")
    with op_tools.OpCapture():
        F.dropout(torch.ones(10, device=device), 0.5)
    assert run(".", "--run_times", 1, "--device", device) == 0
    assert "random: values not compared" in capsys.readouterr().out


def test_nothing_to_run(capsys):
    assert run(".") == 2
    assert run("no_such_folder") == 2
    said = capsys.readouterr().err
    assert "no input.pth and no capture" in said and "no_such_folder is no folder" in said


@pytest.mark.parametrize("flags", [["--run_times", "0"], ["--device", "toaster"], ["--what"]])
def test_wrong_flags(flags, capsys):
    with pytest.raises(SystemExit) as error:
        run(".", *flags)
    assert error.value.code == 2
    assert flags[0] in capsys.readouterr().err


def test_runner_hooks(device, monkeypatch):
    capture(device, monkeypatch)
    seen = []

    class Hook(OpRunnerHook):
        def before_forward(self):
            seen.append("before_forward")

        def after_forward(self):
            seen.append("after_forward")

        def before_backward(self):
            seen.append("before_backward")

        def after_backward(self):
            seen.append("after_backward")

    runner = OpRunner(str(folder_of("torch.nn.functional.linear")), Hook(), device)
    runner.run_forward()
    runner.run_backward()
    assert seen == "before_forward after_forward before_backward after_backward".split()
    assert runner.name == "torch.nn.functional.linear" and runner.fun is F.linear


def test_a_folder_of_ditorchs_own(device, monkeypatch, capsys):
    """Its gradients are those of the result's autograd node, its results PyTorch's named ones."""
    x = torch.randn(3, 4, requires_grad=True)
    result = x.sort()
    grad = torch.randn(3, 4)
    kept = []
    result.values.grad_fn.register_hook(lambda given, received: kept.append(given))
    result.values.backward(grad)
    for what, args in (
        ("input", (x,)),
        ("output", (result,)),
        ("grad_inputs", kept[0]),
        ("grad_outputs", (grad, None)),
    ):
        folder = Path(f"op_capture_result/torch.Tensor.sort/123/5/{what}.pth")
        folder.parent.mkdir(parents=True, exist_ok=True)
        detached = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach(), args)
        content = {"name": "torch.Tensor.sort", "args": args if what == "input" else detached}
        torch.save({**content, "kwargs": {}, "identifier": f"5/{what}"}, folder)
    assert run("op_capture_result", "--run_times", 1, "--device", device) == 0
    text = capsys.readouterr().out
    assert len(re.findall("same", text)) == 2


@pytest.mark.parametrize("form", ["ditorch", "ditorch-2024-08"])
def test_ditorchs_tables_and_files(device, monkeypatch, capsys, form):
    capture(device, monkeypatch)
    folder = folder_of("torch.nn.functional.linear")
    monkeypatch.setenv("OP_TOOLS_VERBOSE", form)
    capsys.readouterr()
    flags = ["--run_times", 2, "--device", device]
    assert run(folder, "--sync_time_measure", *flags) == 0
    text = capsys.readouterr().out
    if form == "ditorch":
        assert text.count("| forward_elasped") == text.count("| backward_elasped") == 2
    else:
        assert text.count("OpTimeMeasureHook: torch.nn.functional.linear ") == 4
    assert list(Path("op_tools_results/op_time_measure_result").glob("op_elasped_info_pid*.csv"))
    assert run(folder, "--acc_check", *flags) == 0
    text = capsys.readouterr().out
    if form == "ditorch":
        assert len(re.findall(r"^autocompare    torch\.nn\.functional\.linear", text, re.M)) == 4
    else:
        assert text.count("OpAutoCompareHook: torch.nn.functional.linear ") == 6
    (table,) = Path("op_tools_results/op_autocompare_result").glob("op_autocompare_info_pid*.csv")
    assert "torch.nn.functional.linear grad[1]" in table.read_text()


@pytest.mark.broken_tool
def test_a_full_disk_ends_the_capture_and_not_the_training(device, monkeypatch, capsys):
    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch")
    written = []

    def full(path, *rest):
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        written.append(path)
        write_args(path, *rest)

    monkeypatch.setattr("op_tools.ditorch_compat.capture_hook.write_args", full)
    x = torch.ones(3, device=device, requires_grad=True)
    with op_tools.OpCapture():
        torch.sin(x).exp().cos().sum().backward()
    assert x.grad is not None
    text = capsys.readouterr().out
    assert text.count("No space left on device") == 1
    assert text.count(".pth saved") == 3
    assert all(torch.load(p, weights_only=True) for p in Path().rglob("*.pth"))


def test_tensors_of_other_kinds_are_captured_as_they_are(monkeypatch, capsys):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch")
    sparse = torch.eye(3).to_sparse()
    with op_tools.OpCapture():
        torch.sparse.mm(sparse, torch.ones(3, 2))
        torch.view_as_real(torch.ones(2, dtype=torch.complex64).conj().resolve_conj())
        torch.empty(0, 3).sum()
    names = {ditorch_folders.load(folder).name for folder in ditorch_folders.find(".")}
    assert {"torch._C._sparse._sparse_mm", "torch.view_as_real", "torch.Tensor.sum"} <= names
    assert run(".", "--run_times", 1, "--device", "cpu") == 0, capsys.readouterr().out


def test_acc_check_tells_rounding_from_errors(device, monkeypatch, capsys):
    """A long sum that cancels is not within ditorch's tolerance, and right all the same."""
    torch.manual_seed(0)
    a, b = 100 * torch.randn(4, 10000), torch.randn(3, 10000)
    order = torch.randperm(20000)
    x, w = torch.cat([a, a], 1)[:, order], torch.cat([b, -b], 1)[:, order]
    write_args("0/input", "torch.nn.functional.linear", "1", (x, w), {})
    assert run(".", "--acc_check", "--run_times", 1, "--device", device) == 0
    assert "allclose: False" in capsys.readouterr().out

    calls = []

    def wrong_at_first(x, w):
        calls.append(x)
        return F.linear(x[:, :-1], w[:, :-1]) if len(calls) == 1 else F.linear(x, w)

    runner = OpRunner("0", OpAccyChecker(), device)
    runner.fun = wrong_at_first
    runner.run_forward()
    assert runner.hook.bad == 1


def test_processes_of_one_rank_have_folders_of_their_own(monkeypatch):
    """The layout of August 2024 has no process in it."""
    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch-2024-08")
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    monkeypatch.setattr("time.strftime", lambda *_: "2024-08-01--12-00")
    with op_tools.OpCapture():
        torch.ones(2).sin()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with op_tools.OpCapture():
                torch.ones(2).sin()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    with op_tools.OpCapture():
        torch.ones(2).cos()
    starts = sorted(path.name for path in Path("op_capture_result/0").iterdir())
    assert starts == ["2024-08-01--12-00", "2024-08-01--12-00.1"]
    assert len(list(Path("op_capture_result/0", starts[0]).glob("torch.Tensor.*"))) == 2
