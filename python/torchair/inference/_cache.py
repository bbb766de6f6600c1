# SPDX-License-Identifier: Apache-2.0
"""cache_compile: a method of a module, traced once and kept on disk.

A file holds JSON: the graph, what its inputs are, a digest. It is read only when it belongs to the
user, nobody else can write it, and everything in it fits; otherwise it is made anew.
"""

import contextlib
import hashlib
import inspect
import json
import os
import stat
import warnings

import torch

from torchair import _trace
from torchair._graph_json import BadFile

CACHE_VERSION = "opennpu-1"


def cache_compile(
    func, *, config=None, backend=None, dynamic: bool = True, cache_dir=None, global_rank=None,
    tp_rank=None, pp_rank=None, custom_decompositions=None, ge_cache: bool = False, **kwargs,
):  # fmt: skip
    """`func`, a method of a torch.nn.Module, compiled for inference. The graph is kept under
    `cache_dir` and found there by the next process: nothing is traced then."""
    owner = getattr(func, "__self__", None)
    if not isinstance(owner, torch.nn.Module):
        raise ValueError(
            f"cache_compile: expected a method of a torch.nn.Module, but got {func!r}. "
            "Write what is to be cached as a method, and pass module.method."
        )
    if not func.__name__.isidentifier():
        raise ValueError(
            f"cache_compile: {func.__name__!r} has no name of its own; define it with def"
        )
    if custom_decompositions:
        raise ValueError(
            "cache_compile: custom_decompositions are not kept in a cache; leave them out"
        )
    if kwargs:
        raise TypeError(f"cache_compile: unknown arguments {', '.join(kwargs)}")
    config = _config(config, backend)
    where = _path(
        owner, func, config, dynamic, cache_dir, (global_rank, tp_rank, pp_rank), ge_cache
    )
    return CachedFunction(owner, func, config, bool(dynamic), where)


def _config(config, backend):
    from torchair.configs.compiler_config import CompilerConfig

    keywords = getattr(backend, "keywords", None)
    if backend is not None and (keywords is None or "compiler_config" not in keywords):
        raise ValueError("cache_compile: backend: expected what torchair.get_npu_backend() gives")
    given = keywords["compiler_config"] if backend is not None else None
    if config is not None and given is not None and config != given:
        raise ValueError("cache_compile: config and the backend's configuration differ; pass one")
    config = config if config is not None else given
    config = CompilerConfig() if config is None else config
    if not isinstance(config, CompilerConfig):
        raise TypeError(
            f"cache_compile: config: expected a CompilerConfig, but got {type(config).__name__}"
        )
    return config


def _path(owner, func, config, dynamic, cache_dir, ranks, ge_cache) -> str:
    local, process = config.as_dict()
    text = f"{owner}{sorted(local.items())}{sorted(process.items())}{_baked_in(owner)}"
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    root = cache_dir or os.environ.get("TORCHAIR_CACHE_HOME") or ".torchair_cache"
    capture = config.mode.value != "max-autotune"
    kind = "_aclgraphcache" if capture else "_gecache" if ge_cache else ""
    label = f"{type(owner).__name__}_{'dynamic' if dynamic else 'static'}{kind}_{digest}"
    return os.path.join(
        os.path.abspath(root), label, *_rank(ranks), func.__name__, "compiled_module"
    )


def _baked_in(owner: torch.nn.Module) -> str:
    """What a trace takes as given and a module's text does not show: its numbers and its code."""
    parts, kinds = [], {}
    for name, module in owner.named_modules():
        plain = {
            k: v for k, v in vars(module).items() if isinstance(v, (bool, int, float, str, tuple))
        }
        parts.append(f"{name}{sorted(plain.items(), key=lambda item: item[0])}")
        kinds[type(module)] = None
    for kind in kinds:
        if not kind.__module__.startswith("torch."):
            with contextlib.suppress(OSError, TypeError):
                parts.append(inspect.getsource(kind))
    return "".join(parts)


def _rank(ranks) -> list[str]:
    """A folder for each process of a group."""
    world = 1
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        world = torch.distributed.get_world_size()
    if world == 1 and all(r is None for r in ranks):
        return []
    own = ranks[0]
    if own is None:
        own = torch.distributed.get_rank() if world > 1 else 0
    names = [f"world{world}", f"global_rank{own}"]
    names += [f"{n}{r}" for n, r in zip(("tp_rank", "pp_rank"), ranks[1:]) if r is not None]
    return ["".join(names)]


class CachedFunction:
    """What cache_compile gives: called as the method it was made of."""

    def __init__(self, owner, func, config, dynamic: bool, path: str):
        self._owner, self._func, self._config = owner, func, config
        self._dynamic, self._path = dynamic, path
        self._bound = None
        self.__name__ = func.__name__
        self.__wrapped__ = func

    def __call__(self, *args, **kwargs):
        if torch.is_grad_enabled() and self._needs_grad(args, kwargs):
            raise RuntimeError(
                "cache_compile is for inference: a parameter or argument requires grad. Call it "
                "under torch.no_grad()."
            )
        if self._bound is None:
            self._bound = self._load() or self._make(args, kwargs)
        try:
            return self._bound(args, kwargs)
        except _trace.Mismatch as why:
            warnings.warn(
                f"cache_compile: {self.__name__}: {why}; it is traced again and {self._path} "
                "is written anew.",
                stacklevel=2,
            )
        _remove(self._path)
        self._bound = self._make(args, kwargs)
        return self._bound(args, kwargs)

    def _needs_grad(self, args, kwargs) -> bool:
        given = torch.utils._pytree.tree_leaves((args, kwargs))
        return any(
            isinstance(t, torch.Tensor) and t.requires_grad
            for t in (*given, *self._owner.parameters())
        )

    def _bind(self, made: _trace.Trace):
        from torchair._compiler import Compiler

        compiler = Compiler(self._config)
        return _trace.Bound(
            made, self._owner, lambda g, x: compiler.compile(g, x, phase="inference")
        )

    def _load(self):
        try:
            return self._bind(_trace.from_json(_read(self._path)))
        except FileNotFoundError:
            return None
        except BadFile as why:
            warnings.warn(
                f"cache_compile: {self._path} is not used: {why}. It is written anew.", stacklevel=3
            )
            _remove(self._path)
            return None

    def _make(self, args, kwargs):
        made = _trace.trace(self._owner, self._func, args, kwargs, self._dynamic)
        _refuse_random(made.module)
        try:
            _write(self._path, made.to_json())
        except (ValueError, OSError) as why:
            warnings.warn(
                f"cache_compile: {self.__name__} is not kept on disk: {why}", stacklevel=3
            )
        return self._bind(made)


def _refuse_random(module) -> None:
    for node in module.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise RuntimeError(
                f"cache_compile: {node.target} draws random numbers, which a cached graph does not "
                "do. Call model.eval(), or use torch.compile."
            )


def _digest(content: dict) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: str) -> dict:
    """The trace in a file that only this user can have written; BadFile otherwise."""
    if os.path.islink(path):
        raise BadFile("it is a symbolic link")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags), encoding="utf-8") as file:
        about = os.fstat(file.fileno())
        if about.st_uid != os.geteuid():
            raise BadFile("it belongs to another user")
        if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077:
            raise BadFile(f"its mode is {stat.S_IMODE(about.st_mode):o}, expected 600")
        try:
            data = json.load(file)
            version, digest, trace = (data[k] for k in ("cache_version", "digest", "trace"))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadFile(f"it is damaged ({type(error).__name__})") from None
    if version != CACHE_VERSION:
        raise BadFile(f"it has version {version!r}, this is {CACHE_VERSION!r}")
    if digest != _digest(trace):
        raise BadFile("its content does not fit its digest")
    return trace


def _write(path: str, trace: dict) -> None:
    """Whole or not at all."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    data = {"cache_version": CACHE_VERSION, "digest": _digest(trace), "trace": trace}
    part = f"{path}.{os.getpid()}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(part, flags, 0o600), "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, allow_nan=False)
    os.replace(part, path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def readable_cache(cache_bin, print_output: bool = True, file=None) -> str:
    """The graph of a cache file as text; printed, and written to `file` where one is named."""
    from torchair._graph_dump import node_text

    made = _trace.from_json(_read(os.fspath(cache_bin)))
    text = node_text(made.module)
    if print_output:
        print(text, end="")
    if file is not None:
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)
    return text
