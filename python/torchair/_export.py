# SPDX-License-Identifier: Apache-2.0
"""dynamo_export: a model as a graph in files: text to read, JSON to load, weights beside it."""

import contextlib
import json
import math
import os
import stat

import torch


def dynamo_export(
    *args, model, export_path="export_file", export_name="export", dynamic=False, config=None,
    **kwargs,
):  # fmt: skip
    """Traces `model(*args, **kwargs)` and writes <name>.txt (to read), <name>.json (the graph, what
    its inputs are) and the weights, <name>.weights, with an index in the JSON.
    Ascend's .air is the format of a compiler that is not here: asking for it is an error.
    Returns the JSON file's path."""
    from torchair import _graph_dump, _trace
    from torchair.fx_summary import _rank

    name = os.fspath(export_name)
    _check(model, name, config)
    rank = _rank()
    name += str(rank) if _distributed() else ""
    folder = os.path.abspath(export_path)
    if os.path.islink(folder):
        raise RuntimeError(f"dynamo_export: export_path {folder!r} is a symbolic link")
    os.makedirs(folder, mode=0o750, exist_ok=True)
    function = model.forward if isinstance(model, torch.nn.Module) else model
    owner = model if isinstance(model, torch.nn.Module) else torch.nn.Module()
    made = _trace.trace(owner, function, args, kwargs, bool(dynamic))
    data = made.to_json()
    data["weights"] = _write_weights(os.path.join(folder, name + ".weights"), owner, made)
    _write(os.path.join(folder, name + ".txt"), _graph_dump.node_text(made.module).encode())
    path = os.path.join(folder, name + ".json")
    _write(path, json.dumps(data, indent=1, allow_nan=False).encode())
    return path


def _check(model, name: str, config) -> None:
    from torchair.configs.compiler_config import CompilerConfig

    if name.endswith((".air", ".pb", ".pbtxt", ".om")):
        raise ValueError(
            f"dynamo_export: {name!r}: Ascend's graph files (.air, .pb, .om) are read by Ascend's "
            "compiler and are not written here. Leave the ending out: <name>.txt, <name>.json and "
            "<name>.weights are written."
        )
    if not name or os.path.basename(name) != name:
        raise ValueError(f"dynamo_export: export_name {name!r} is no plain file name")
    if not callable(model):
        raise TypeError(f"dynamo_export: model: expected a module, but got {type(model).__name__}")
    if config is not None and not isinstance(config, CompilerConfig):
        raise TypeError(
            f"dynamo_export: config: expected a CompilerConfig, but got {type(config).__name__}"
        )


def _distributed() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized()


def _write_weights(path: str, owner, made) -> dict:
    """All parameters and buffers of the graph one after the other: {name: [offset, bytes]}."""
    from torchair._trace import member

    index, parts, offset = {}, [], 0
    for known in made.inputs:
        if known.name is not None:
            value = member(owner, known.name).detach().cpu().contiguous()
            raw = value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
            index[known.name] = [offset, len(raw)]
            parts.append(raw)
            offset += len(raw)
    _write(path, b"".join(parts))
    return {"file": os.path.basename(path), "index": index}


def _write(path: str, content: bytes) -> None:
    """Whole or not at all; a link in its place is refused."""
    if os.path.islink(path):
        raise RuntimeError(f"dynamo_export: {path!r} is a symbolic link")
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640), "wb") as file:
            file.write(content)
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def load(path):
    """The exported model as a function of its arguments, compiled by this backend. The file may be
    anyone's: BadFile where it is not an export, and nothing that it names is run or opened."""
    from torchair import _trace
    from torchair._compiler import Compiler
    from torchair._file_rules import BadFile
    from torchair.configs.compiler_config import CompilerConfig

    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        weights = data.pop("weights")
        made = _trace.from_json(data)
        owner = _read_weights(os.path.dirname(os.path.abspath(path)), weights, made)
    except BadFile as error:
        raise BadFile(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        why = str(error).splitlines()[:1]
        raise BadFile(f"{path}: {type(error).__name__}: {''.join(why)}") from None
    bound = _trace.Bound(
        made, owner, lambda g, x: Compiler(CompilerConfig()).compile(g, x, phase="inference")
    )
    return lambda *args, **kwargs: bound(args, kwargs)


def _read_weights(folder: str, weights: dict, made) -> torch.nn.Module:
    from torchair import _file_rules

    raw = _weight_bytes(folder, weights["file"])
    owner = torch.nn.Module()
    for known in made.inputs:
        if known.name is None:
            continue
        offset, size = weights["index"][known.name]
        dtype = _file_rules.dtype(known.dtype)
        if any(type(n) is not int or n < 0 for n in (offset, size, *known.shape)):
            raise _file_rules.BadFile(f"the place of {known.name} in {weights['file']}")
        if size != math.prod(known.shape) * dtype.itemsize:
            raise _file_rules.BadFile(f"{known.name} has {size} bytes for sizes {known.shape}")
        if offset + size > len(raw):
            raise _file_rules.BadFile(f"{weights['file']} is too short for {known.name}")
        part = bytearray(raw[offset : offset + size])
        value = torch.frombuffer(part, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        _set(owner, known.name, value.reshape(known.shape).to(known.device))
    return owner


def _weight_bytes(folder: str, name) -> bytes:
    """Of a regular file of that name in the folder of the JSON file, and nowhere else."""
    from torchair._file_rules import BadFile

    plain = isinstance(name, str) and name.isprintable() and os.path.basename(name) == name
    if not plain or name in ("", ".", ".."):
        raise BadFile(f"weights: {name!r} is no plain file name")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(os.path.join(folder, name), flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadFile(f"weights: {name} is no regular file")
            return file.read()
    except OSError as error:
        raise BadFile(f"weights: {name}: {error.strerror}") from None


def _set(owner: torch.nn.Module, name: str, value) -> None:
    *path, last = name.split(".")
    for part in path:
        if part not in owner._modules:
            owner.add_module(part, torch.nn.Module())
        owner = owner._modules[part]
    owner.register_buffer(last, value, persistent=False)
