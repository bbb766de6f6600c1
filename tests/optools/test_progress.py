# SPDX-License-Identifier: Apache-2.0
"""Progress of commands: on terminals, on standard error, only where it takes long, and gone at the end."""

import io
import sys
import time

import pytest
from op_tools.core import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def wait_for(stream, text):
    end = time.monotonic() + 30
    while text not in stream.getvalue() and time.monotonic() < end:
        time.sleep(0.001)


@pytest.fixture
def shown(monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 0.01)
    monkeypatch.setattr(progress, "EVERY", 0.001)

    def on(stream):
        monkeypatch.setattr(sys, "__stderr__", stream)
        for i in progress.counted(range(3), "judging calls", 3):
            if stream.isatty() and progress.AFTER < 1:
                wait_for(stream, f" {i}/3 ")
        return stream.getvalue()

    return on


def test_a_terminal_sees_how_far_it_is_and_nothing_is_left(shown):
    text = shown(Terminal())
    assert "judging calls:   0%|          | 0/3 [00:00<?]" in text
    assert "judging calls:  67%|######    | 2/3 [00:00<00:00, " in text
    assert text.endswith("\r\x1b[K") and "\n" not in text


def test_a_file_sees_nothing(shown):
    assert shown(io.StringIO()) == ""


def test_a_short_command_shows_nothing(shown, monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 3.0)
    assert shown(Terminal()) == ""


def test_an_error_ends_it(shown, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "__stderr__", stream)
    with pytest.raises(ValueError), progress.Working("running"):
        wait_for(stream, "running")
        raise ValueError
    assert stream.getvalue().endswith("\r\x1b[K")


def test_lines():
    assert progress.Working("running train.py").line(12.3) == "running train.py: [00:12]"
    work = progress.Working("replaying calls")
    work.advance()
    assert work.line(4) == "replaying calls: 1 [00:04, 0.2/s]"
    work = progress.Working("judging", 4)
    assert work.line(1) == "judging:   0%|          | 0/4 [00:01<?]"
    work.advance()
    assert work.line(2) == "judging:  25%|##        | 1/4 [00:02<00:06, 0.5/s]"
    assert work.line(3700).endswith("1/4 [1:01:40<3:05:00, 0.0/s]")
