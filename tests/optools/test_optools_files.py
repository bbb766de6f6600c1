# SPDX-License-Identifier: Apache-2.0
"""Files are whole or not there, whatever happens while they are written."""

import os
import resource
from pathlib import Path

import op_tools
import pytest
import torch
from op_tools.core import files


@pytest.fixture
def small_disk():
    """Files end at 4096 bytes: the write after that fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _write_text(path):
    files.write_whole(path, "x" * 100_000)


def _write_csv(path):
    files.write_csv(path, ["a", "b"], ({"a": i} for i in range(100_000)))


def _write_tensors(path):
    files.write_tensors(path, {"a": torch.ones(100_000)})


WRITERS = [_write_text, _write_csv, _write_tensors]


@pytest.mark.parametrize("write", WRITERS)
def test_a_failed_write_leaves_what_was_there(tmp_path, small_disk, write):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(OSError, match="too large"):
        write(path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("write", WRITERS)
def test_a_write_replaces_and_leaves_nothing_else(tmp_path, write):
    path = tmp_path / "file"
    path.write_text("before")
    write(path)
    assert path.stat().st_size >= 100_000
    assert os.listdir(tmp_path) == ["file"]


def test_what_is_not_there_yet_is_not_seen(tmp_path):
    path = tmp_path / "file"
    with files.whole(path) as name:
        with open(name, "w") as file:
            file.write("half")
        assert not path.exists()
    assert path.read_text() == "half"


def test_an_exception_of_the_writer_removes_the_part(tmp_path):
    with pytest.raises(KeyError), files.whole(tmp_path / "file") as name:
        with open(name, "w") as file:
            file.write("half")
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to("real")
    files.write_whole(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "after"


def test_a_device_is_written_to_and_not_replaced():
    files.write_whole("/dev/null", "x")
    assert not os.path.isfile("/dev/null")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError):
        files.write_whole(tmp_path, "x")


def test_rows_are_appended_under_one_head(tmp_path):
    path = str(tmp_path / "rows.csv")
    files.append_csv(path, ["a", "b"], [{"a": 1, "b": 2}])
    files.append_csv(path, ["a", "b"], [{"a": 3}])
    assert Path(path).read_bytes() == b"a,b\r\n1,2\r\n3,-\r\n"


def test_rows_that_do_not_fit_are_not_begun(tmp_path, small_disk):
    path = str(tmp_path / "rows.csv")
    files.append_csv(path, ["a"], [{"a": 1}])
    with pytest.raises(OSError, match="too large"):
        files.append_csv(path, ["a"], ({"a": i} for i in range(10_000)))
    assert Path(path).read_bytes() == b"a\r\n1\r\n"


def test_paths_of_results_differ(tmp_path):
    paths = [files.result_path(str(tmp_path / "new"), "op_elasped_info") for _ in range(3)]
    assert len(set(paths)) == 3
    assert all(f"_pid{os.getpid()}_" in path for path in paths)


@pytest.mark.broken_tool
def test_a_full_disk_is_said_once_by_ditorchs_capture(monkeypatch, capsys, small_disk):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch")
    small, large = torch.ones(3), torch.ones(10_000)
    with op_tools.OpCapture():
        small.sin()
        for _ in range(3):
            large.exp()
    text = capsys.readouterr().out
    assert text.count("too large") == 1
    found = sorted(path for path in Path("op_tools_results").rglob("*") if path.is_file())
    assert {path.name for path in found} == {
        name + end for name in ("input", "output") for end in (".pth", ".pth.json")
    }
    for path in found:
        assert torch.load(path, weights_only=True) if path.suffix == ".pth" else path.read_text()
