# SPDX-License-Identifier: Apache-2.0
"""Record logs written byte by byte (docs/capture-format.md), to hold what no writer of ours would."""

import os
import struct
import zlib

from op_tools import captures

HEAD = {"format": "op_tools capture", "version": "2", "content": "full", "time": "1.0"}


class Ext:
    """What MessagePack has no word for."""

    def __init__(self, code, value):
        self.code, self.value = code, value


def tensor(ref, **other):
    """The value of one call's argument (fixture `whole`), with some of its fields others."""
    held = {"d": "float32", "v": "cpu", "s": [6], "t": [1], "f": 0}
    held.update(h=bytes.fromhex(ref.hash), n=ref.nbytes)
    return Ext(1, {**held, **other})


def pack(value):
    """MessagePack, in its longest forms."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return struct.pack(">Bq", 0xD3, value)
    if isinstance(value, float):
        return struct.pack(">Bd", 0xCB, value)
    if isinstance(value, str):
        return struct.pack(">BI", 0xDB, len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return struct.pack(">BI", 0xC6, len(value)) + value
    if isinstance(value, list):
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(pack, value))
    if isinstance(value, dict):
        items = b"".join(pack(key) + pack(item) for key, item in value.items())
        return struct.pack(">BI", 0xDF, len(value)) + items
    held = pack(value.value)
    return struct.pack(">BIb", 0xC9, len(held), value.code) + held


def frame(kind, value):
    payload = pack(value)
    checksum = zlib.crc32(bytes([kind]) + payload)
    return b"OPFR" + struct.pack("<III", len(payload), checksum, kind) + payload


def write_log(folder, *frames, head=HEAD):
    """(kind, value) ... after the head, then an end; returns the folder."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, captures.LOG), "wb") as file:
        file.write(frame(1, head))
        for kind, value in (*frames, (6, {})):
            file.write(frame(kind, value))
    return str(folder)


def append(folder, *frames):
    """To a log that is there."""
    with open(os.path.join(folder, captures.LOG), "ab") as file:
        for kind, value in frames:
            file.write(frame(kind, value))


def frames_of(folder):
    """[(kind, payload), ...] as they are in the file."""
    with open(os.path.join(folder, captures.LOG), "rb") as file:
        whole = file.read()
    found, place = [], 0
    while place < len(whole):
        size, _, kind = struct.unpack("<III", whole[place + 4 : place + 16])
        found.append((kind, whole[place + 16 : place + 16 + size]))
        place += 16 + size
    return found


def write_payloads(folder, payloads):
    """Frames with right checksums, whatever is in them."""
    with open(os.path.join(folder, captures.LOG), "wb") as file:
        for kind, payload in payloads:
            checksum = zlib.crc32(bytes([kind]) + payload)
            file.write(b"OPFR" + struct.pack("<III", len(payload), checksum, kind) + payload)
