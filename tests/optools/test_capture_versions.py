# SPDX-License-Identifier: Apache-2.0
"""Captures of version 1 of the format are read; docs/capture-format.md."""

import os

import pytest
import torch
from op_tools import _C, captures
from op_tools.captures import CaptureError, version1
from op_tools.cli import main
from optools_helpers import output
from record_logs import HEAD, Ext, write_log

SIN = ["op", 1, "aten::sin", "aten::sin(Tensor self) -> Tensor"]

# bytes(i * 7 + 3 & 255 for i in range(n)) as the package xxhash names them.
KNOWN = {
    0: "99aa06d3014798d86001c324468d497f",
    1: "22bbb76b211a39ba13e608bc156defed",
    3: "ce31763cbf8245a5a9088dda485b481c",
    8: "e3bc8a5f461715553cd024e3d63a1588",
    16: "ce0b9647ab24f88460d75c5e47d40a24",
    17: "bfd327edcc2fbd12eeed7654312a26d7",
    128: "1b1962a096bac78bc580008b6c92ac53",
    129: "293e4968c4619023bd91ce7ace4d385b",
    240: "ad46c1021b076bc704e0b5f034bee80b",
    241: "ac6c3492c3d6b45d8beadd3a8874fe17",
    1000: "6bcc7eff62da44c26c4f14bd97bd9e82",
    100000: "d9e155dd16e141d00c056f6fcc340974",
}


@pytest.mark.parametrize("size", KNOWN)
def test_names_of_contents_are_xxh3(size):
    assert _C.hash_bytes(bytes(i * 7 + 3 & 255 for i in range(size))) == KNOWN[size]


MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x &= MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def first_digest(data):
    """The hash of version 1 as docs/capture-format.md writes it down, word by word."""
    keys = [mix((i + 1) * GOLDEN) for i in range(8)]
    sums = [0] * 8
    padded = data + bytes(-len(data) % 64)
    for stripe in range(len(padded) // 64):
        words = [int.from_bytes(padded[64 * stripe + 8 * w :][:8], "little") for w in range(8)]
        for p in range(0, 8, 2):
            a, b = words[p], words[p + 1]
            product = (a ^ keys[p]) * (b ^ ((keys[p + 1] + stripe * GOLDEN) & MASK))
            sums[p] = (sums[p] + product + b) & MASK
            sums[p + 1] = (sums[p + 1] + (product >> 64) + a) & MASK
    first = mix(len(data) + 1) + sum(mix(s ^ k) for s, k in zip(sums, keys))
    second = mix(len(data) + GOLDEN)
    second += sum(mix(s + k) for s, k in zip(sums, reversed(keys)))
    return f"{first & MASK:016x}{second & MASK:016x}"


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 65, 1000])
def test_the_hash_of_version_1_is_the_documented_one(size, monkeypatch):
    monkeypatch.setattr(version1, "_STRIPES", 3)
    data = bytes(torch.randint(0, 256, (size,), dtype=torch.uint8).tolist())
    assert version1.hash_bytes(bytearray(data)) == first_digest(data)


def test_the_hash_of_version_1_of_a_capture_of_then():
    """What OpCapture wrote before version 2: sin of three numbers, and 64 bytes of zeros."""
    x = torch.tensor([1.0, -2.0, 0.5])
    assert version1.hash_bytes(bytearray(x.numpy().tobytes())) == OF_THEN[0]
    assert version1.hash_bytes(bytearray(64)) == OF_THEN[1]


OF_THEN = ("0bde3fa9ad80a128227883dbd9b4efa1", "befc4f3f8aaa02f1c141e77a210e3858")


def written(folder, x, version, content="full"):
    """A capture of x.sin(), byte by byte."""
    name = first_digest if version == "1" else _C.hash_bytes
    raws = [t.numpy().tobytes() for t in (x, x.sin())]
    os.makedirs(folder)
    with open(os.path.join(folder, "pack-00000.part"), "wb") as pack:
        pack.write(b"".join(raws))
    kept = {"d": "float32", "v": "cpu", "s": [x.numel()], "t": [1], "f": 0}
    names = [bytes.fromhex(name(raw)) for raw in raws]
    values = [Ext(1, {**kept, "h": h, "n": len(raw)}) for h, raw in zip(names, raws)]
    blobs = [(3, [h, 0, i * len(raws[0]), len(raws[0])]) for i, h in enumerate(names)]
    call = {"number": 1, "op": 1, "args": values[:1], "out": values[1:]}
    head = {**HEAD, "version": version, "content": content}
    return write_log(folder, (2, SIN), *(blobs if content == "full" else ()), (4, call), head=head)


def test_a_capture_of_version_1_is_read_and_replayed(tmp_path, capsys):
    x = torch.randn(100)
    folder = written(tmp_path / "old", x, "1")
    found = captures.open(folder)
    [record] = found
    assert torch.equal(record.args[0].load(), x) and found.problems == []
    assert torch.equal(record.outputs[0].load(), x.sin())
    for command in (["ls"], ["replay", "--device", "cpu"]):
        assert main([command[0], folder, *command[1:]]) == 0


def test_damage_to_contents_of_version_1_is_noticed(tmp_path):
    folder = written(tmp_path / "old", torch.randn(100), "1")
    with open(os.path.join(folder, "pack-00000.part"), "r+b") as pack:
        pack.seek(17)
        pack.write(b"\x55\xaa")
    with pytest.raises(CaptureError, match="are not those of blob"):
        next(iter(captures.open(folder))).load()


def test_captures_of_two_versions_are_compared_by_contents(tmp_path, capsys):
    x = torch.randn(100)
    old, new = written(tmp_path / "old", x, "1"), written(tmp_path / "new", x, "2")
    assert output(capsys, "diff", old, new)[0] == 0
    other = written(tmp_path / "other", x + 1, "2")
    code, text = output(capsys, "diff", old, other)
    assert code == 1 and "100 of 100 elements" in text.out


def test_hashes_of_two_versions_are_not_compared(tmp_path, capsys):
    x = torch.randn(100)
    old, new = written(tmp_path / "old", x, "1", "hash"), written(tmp_path / "new", x, "2")
    code, text = output(capsys, "diff", old, new)
    assert code == 2
    assert "versions 1 and 2 of the format" in text.err and "capture one of them again" in text.err


def test_a_version_to_come_is_refused(tmp_path, capsys):
    folder = written(tmp_path / "new", torch.randn(3), "3")
    with pytest.raises(
        CaptureError, match="has version 3 of the format; this op_tools reads versions 1 and 2"
    ):
        captures.open(folder)
