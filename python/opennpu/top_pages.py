# SPDX-License-Identifier: Apache-2.0
"""The pages by which processes show their devices: found, asked for, read.

src/profiler/page.h says what a page is and how it is asked for; keep both alike.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import stat
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

MAGIC = b"OPENNPU\0"
VERSION = 1
_HEAD = struct.Struct("<8sIIqq32s256s")
_COUNTS = struct.Struct("<IIII")  # requests, sequence, samples, devices
_DEVICE = struct.Struct("<iIQQQQQQ64s")
_DEVICES = 64
SIZE = _HEAD.size + _COUNTS.size + _DEVICES * _DEVICE.size
_REQUESTS = _HEAD.size
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}.get(platform.machine())
_FUTEX_WAKE = 1
_kept: dict[str, int] = {}  # descriptors of this process's own page, see Page.open


@dataclass
class Device:
    number: int
    name: str
    busy: float  # of 1
    total: int
    free: int
    allocated: int
    reserved: int
    peak: int
    pieces: int


@dataclass
class Process:
    pid: int
    user: str
    command: str
    driver: str
    started: float
    answers: bool
    devices: list[Device] = field(default_factory=list)


def folders() -> list[Path]:
    """Where pages may lie: the named folder, else this user's; of every user for root."""
    named = os.environ.get("NPU_TOP_FOLDER")
    if named:
        return [Path(named)]
    shared = Path("/dev/shm")
    if os.geteuid() == 0:
        return sorted(shared.glob("opennpu-*"))
    return [shared / f"opennpu-{os.geteuid()}"]


def is_private(folder: Path) -> bool:
    """A folder only its owner can write, and its owner is who it should be."""
    try:
        about = os.lstat(folder)
    except OSError:
        return False
    owner = about.st_uid in {os.geteuid(), 0} or os.geteuid() == 0
    return stat.S_ISDIR(about.st_mode) and owner and not about.st_mode & 0o077


def _text(raw: bytes) -> str:
    """Printable: a page's text must not steer the terminal."""
    text = raw.partition(b"\0")[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text).strip()


def _wake(page: mmap.mmap) -> None:
    """The process sleeps on the number of requests."""
    if _FUTEX is None:
        return
    word = ctypes.c_uint32.from_buffer(page, _REQUESTS)
    try:
        ctypes.CDLL(None, use_errno=True).syscall(
            _FUTEX, ctypes.byref(word), _FUTEX_WAKE, 2**31 - 1, None, None, 0
        )
    finally:
        del word  # else the map cannot be closed


class Page:
    """The page of one living process."""

    def __init__(self, path: Path, fd: int, owner: int) -> None:
        self.path, self.owner = path, owner
        self._map = mmap.mmap(fd, SIZE)

    @classmethod
    def open(cls, path: Path) -> Page | None:
        """None if the file is not a page. The page of a process that ended is removed."""
        mine = path.name == f"{os.getpid()}.page"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            about = os.fstat(fd)
            folder = os.stat(path.parent)
            if not stat.S_ISREG(about.st_mode) or about.st_size != SIZE:
                return None
            if about.st_uid != folder.st_uid or about.st_mode & 0o077:
                return None
            if not mine and not _is_held(fd):
                path.unlink(missing_ok=True)
                return None
            page = cls(path, fd, about.st_uid)
        finally:
            if mine:
                # Closing any descriptor of a file drops the locks this process has on it.
                _kept.setdefault(str(path), fd)
            else:
                os.close(fd)
        return page if page._is_known() else None

    def _is_known(self) -> bool:
        magic, version, size, *_ = _HEAD.unpack_from(self._map)
        return magic == MAGIC and version == VERSION and size == SIZE

    def samples(self) -> int:
        return _COUNTS.unpack_from(self._map, _REQUESTS)[2]

    def ask(self) -> None:
        """Has the process fill in its numbers for the next two seconds."""
        requests = _COUNTS.unpack_from(self._map, _REQUESTS)[0]
        struct.pack_into("<I", self._map, _REQUESTS, (requests + 1) & 0xFFFFFFFF)
        _wake(self._map)

    def read(self, answers: bool = True) -> Process:
        _, _, _, pid, started, driver, command = _HEAD.unpack_from(self._map)
        process = Process(
            pid, _user(self.owner), _text(command), _text(driver), started / 1e9, answers
        )
        for _ in range(100):
            before = _COUNTS.unpack_from(self._map, _REQUESTS)
            at = _REQUESTS + _COUNTS.size
            count = min(before[3], _DEVICES)
            raw = self._map[at : at + count * _DEVICE.size]
            after = _COUNTS.unpack_from(self._map, _REQUESTS)
            if before[1] == after[1] and before[1] % 2 == 0:
                break
            time.sleep(0.001)
        for row in _DEVICE.iter_unpack(raw):
            number, permille, *sizes, name = row
            process.devices.append(Device(number, _text(name), min(permille, 1000) / 1000, *sizes))
        return process

    def close(self) -> None:
        self._map.close()


def _is_held(fd: int) -> bool:
    """The process that made the page holds a lock on it as long as it lives."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EAGAIN}:
            return True
        raise
    fcntl.lockf(fd, fcntl.LOCK_UN)
    return False


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def open_pages() -> list[Page]:
    found = []
    for folder in folders():
        if is_private(folder):
            pages = (Page.open(path) for path in sorted(folder.glob("*.page")))
            found += [page for page in pages if page is not None]
    return found


def look(wait: float = 0.35) -> list[Process]:
    """What every process says of its devices now; asks, and waits for two samples of each."""
    pages = open_pages()
    try:
        before = [page.samples() for page in pages]
        for page in pages:
            page.ask()
        until = time.monotonic() + wait
        answered = [False] * len(pages)
        while time.monotonic() < until and not all(answered):
            time.sleep(0.02)
            answered = [
                page.samples() >= samples + 2 for page, samples in zip(pages, before, strict=True)
            ]
        return [
            page.read(page.samples() != samples)
            for page, samples in zip(pages, before, strict=True)
        ]
    finally:
        for page in pages:
            page.close()
