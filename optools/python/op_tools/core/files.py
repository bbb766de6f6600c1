# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there: written under another name beside their own until complete."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import os
import stat
import time
from collections.abc import Iterable, Iterator

import torch

from op_tools.core import quiet

_serial = itertools.count(1)


def is_plain(path: str | os.PathLike) -> bool:
    """A file, and no link to one: what a folder of others may lead with to anywhere."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def make_inside(base: str, *names: str) -> str:
    """The folder base/name/..., made where it is not there. None of the names may be a link: the
    folder `base` may be of others, and is not left."""
    for name in names:
        base = os.path.join(base, name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(base)
        if not stat.S_ISDIR(os.lstat(base).st_mode):
            raise FileExistsError(f"{base} is a link or a file, and not written through")
    return base


@contextlib.contextmanager
def whole(path: str | os.PathLike, follow: bool = True) -> Iterator[str]:
    """The name to write under. When the block ends well the file takes `path`'s place; when it does
    not, what was at `path` is still there, and nothing else. A link at `path` stays one; without
    `follow` (a folder of others) the file takes the link's place."""
    path = os.path.realpath(path) if follow else os.path.abspath(path)
    if not follow and os.path.lexists(path) and not (os.path.islink(path) or is_plain(path)):
        raise FileExistsError(f"{path} is no plain file, and not written to")
    if follow and os.path.exists(path) and not os.path.isfile(path):
        yield path  # /dev/stdout: nothing to replace (and a folder is refused by who opens it)
        return
    unfinished = f"{path}.{os.getpid()}-{next(_serial)}.part"
    os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        raise


def write_whole(path: str | os.PathLike, text: str, follow: bool = True) -> None:
    with whole(path, follow) as name, open(name, "w", encoding="utf-8") as file:
        file.write(text)


def write_csv(path: str, columns: list[str], rows: Iterable[dict]) -> None:
    with whole(path) as name, open(name, "w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, columns, extrasaction="ignore", restval="-")
        out.writeheader()
        out.writerows(rows)


def append_csv(path: str, columns: list[str], rows: Iterable[dict]) -> None:
    """More rows, under one head; a row that does not fit on the disk is not begun."""
    text = io.StringIO(newline="")
    out = csv.DictWriter(text, columns, extrasaction="ignore", restval="-")
    size = os.path.getsize(path) if os.path.exists(path) else 0
    if size == 0:
        out.writeheader()
    out.writerows(rows)
    try:
        with open(path, "a", newline="", encoding="utf-8") as file:
            file.write(text.getvalue())
    except OSError:
        with contextlib.suppress(OSError):
            os.truncate(path, size)
        raise


def write_tensors(path: str | os.PathLike, content: object) -> None:
    """torch.save(). A full disk is an OSError, which is not what PyTorch makes of it."""
    with whole(path) as name, open(name, "wb") as file, quiet():
        try:
            torch.save(content, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def result_path(folder: str, kind: str) -> str:
    """A new file of results in ditorch's place: <folder>/<kind>_pid<pid>_<time>_<n>.csv. It is made
    at once, empty: processes of several machines may have one number and one folder."""
    os.makedirs(folder, exist_ok=True)
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
    while True:
        path = os.path.join(folder, f"{kind}_pid{os.getpid()}_{stamp}_{next(_serial)}.csv")
        with contextlib.suppress(FileExistsError), open(path, "x"):
            return path
