# SPDX-License-Identifier: Apache-2.0
"""op-tools first-bad where no operator is wrong: what it says, and with which exit status."""

import pytest
from optools_devices import ACCELERATORS
from optools_helpers import output
from programs import program

DEVICE = program(__file__, "_device")
NAN = DEVICE + "y = model(x) - 3\nz = y.log()\nprint('loss', (z * 2).sum().item())\n"
INFINITE = DEVICE + "y = model(x) - 2\nz = y.reciprocal()\nprint('loss', (z * 2).sum().item())\n"
RAISES = DEVICE + "y = model(x)\ny + torch.ones(7, device=device)\n"
EQUAL = DEVICE + "y = model(x)\nprint('loss', y.sum().item())\n"
NOTHING = "print('no tensor at all')\n"


@pytest.fixture(params=["cpu", *ACCELERATORS])
def hunt(request, tmp_path, capsys, monkeypatch):
    device = request.param
    monkeypatch.delenv("OP_TOOLS_DEVICE", raising=False)
    if device == "cpu":
        monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")

    def run(program):
        path = tmp_path / "train.py"
        path.write_text(program)
        code, text = output(capsys, "first-bad", path, device, "-o", tmp_path / "found")
        return device, code, text.out

    return run


def test_a_loss_of_nan_leads_to_the_call_that_made_it(hunt):
    _, code, text = hunt(NAN)
    assert code == 1 and "first not finite: aten::log, call " in text, text
    assert "makes NaN of finite operands" in text and "train.py:1" in text


def test_an_infinite_loss_leads_to_the_call_that_made_it(hunt):
    _, code, text = hunt(INFINITE)
    assert code == 1 and "first not finite: aten::reciprocal, call " in text, text


def test_an_error_of_the_script_is_no_operators_fault(hunt):
    device, code, text = hunt(RAISES)
    assert code == 1 and "first bad" not in text, text
    assert "the script ended with code 1: RuntimeError: The size of tensor" in text, text
    if device != "cpu":
        assert "the script ends on the cpu as well: RuntimeError: The size" in text, text


def test_calls_of_equal_bits_are_said_to_be_equal(hunt):
    device, code, text = hunt(EQUAL)
    assert code == 0, text
    if device == "cpu":
        assert "no operator is wrong: " in text and " judged" in text
    else:
        assert "with the same bits as the reference's" in text and "0 calls judged" not in text


def test_no_call_at_all_is_no_success(hunt):
    _, code, text = hunt(NOTHING)
    assert code == 2 and "no call was seen" in text, text
