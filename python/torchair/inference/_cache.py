# SPDX-License-Identifier: Apache-2.0
"""cache_compile: a method of a module, traced once and kept on disk.

A file holds JSON: the graph, what its inputs are, a digest. It is read only when it belongs to the
user, no other user can write it, and everything in it fits; otherwise it is made anew.
"""

import contextlib
import hashlib
import json
import os
import stat
import warnings
from collections.abc import Callable

import torch

from torchair import _containers, _trace
from torchair._file_rules import BadFile
from torchair.inference import _key

CACHE_VERSION = "opennpu-1"


def cache_compile(
    func,
    *,
    config=None,
    backend=None,
    dynamic: bool = True,
    cache_dir: str | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    custom_decompositions: dict | None = None,
    ge_cache: bool = False,
    **kwargs,
) -> Callable:
    """`func`, a method of a torch.nn.Module, compiled for inference. The graph is kept under
    `cache_dir` and found there by the next process: nothing is traced then."""
    given = getattr(backend, "keywords", None) or {}
    decompositions = {**given.get("decompositions", {}), **(custom_decompositions or {})}
    return cached(
        func, _config(config, backend), dynamic, cache_dir, (global_rank, tp_rank, pp_rank),
        custom_decompositions=decompositions, ge_cache=ge_cache, **kwargs,
    )  # fmt: skip


def cached(
    func, config, dynamic, cache_dir, ranks, *, package: str = "torchair",
    custom_decompositions=None, ge_cache: bool = False, **kwargs,
):  # fmt: skip
    """cache_compile of `package`, whose register_replacement counts."""
    if kwargs:
        raise TypeError(f"cache_compile: unknown arguments {', '.join(kwargs)}")
    owner = getattr(func, "__self__", None)
    if not isinstance(owner, torch.nn.Module):
        raise ValueError(
            f"cache_compile: expected a method of a torch.nn.Module, but got {func!r}. "
            "Write the code to be cached as a method, and pass module.method."
        )
    if not func.__name__.isidentifier():
        raise ValueError(f"cache_compile: {func.__name__!r} has no name; define it with def")
    decompositions = dict(custom_decompositions or {})

    def locate():
        return _path(owner, func, config, decompositions, dynamic, cache_dir, ranks, ge_cache)

    return CachedFunction(owner, func, config, decompositions, bool(dynamic), locate, package)


def _config(config, backend):
    from torchair.configs.compiler_config import CompilerConfig

    keywords = getattr(backend, "keywords", None)
    if backend is not None and (keywords is None or "compiler_config" not in keywords):
        raise ValueError(
            "cache_compile: backend: expected a backend made by torchair.get_npu_backend()"
        )
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


def _path(
    owner, func, config, decompositions, dynamic, cache_dir, ranks, ge_cache
) -> tuple[str | None, list]:
    """The file of this configuration; None, with a warning, where it has no name of its own. And
    the tensors that the method may reach (_key.read)."""
    local, process = config.as_dict()
    try:
        given, held = _key.read(owner, func, decompositions)
    except _key.Unkeyable as why:
        warnings.warn(
            f"cache_compile: {func.__name__} is not kept on disk: {why}, and a change of its "
            "value could not be noticed.",
            stacklevel=4,
        )
        return None, []
    text = f"{owner}{sorted(local.items())}{sorted(process.items())}{given}"
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    root = cache_dir or os.environ.get("TORCHAIR_CACHE_HOME") or ".torchair_cache"
    capture = config.mode.value != "max-autotune"
    kind = "_aclgraphcache" if capture else "_gecache" if ge_cache else ""
    label = f"{type(owner).__name__}_{'dynamic' if dynamic else 'static'}{kind}_{digest}"
    folder = os.path.join(os.path.abspath(root), label, *_rank(ranks), func.__name__)
    return os.path.join(folder, "compiled_module"), held


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

    def __init__(
        self, owner, func, config, decompositions: dict, dynamic: bool, locate, package: str
    ):
        """`locate()` gives the file, or None, and the tensors that the method may reach. It is asked
        at the first call: attributes of the module may be set after this was made."""
        self._owner, self._func, self._config = owner, func, config
        self._decompositions, self._package = decompositions, package
        self._classes: dict[str, type] = {}  # of objects among arguments and results
        self._dynamic, self._locate = dynamic, locate
        self._held: list | None = None
        self._path: str | None = None
        self._first_state = ((), "torch.float32", "cpu")
        self._bound: dict[tuple, _trace.Bound] = {}  # by _key.state()
        self.__name__ = func.__name__
        self.__wrapped__ = func

    def __call__(self, *args, **kwargs):
        if torch.is_grad_enabled() and _needs_grad(args, kwargs):
            raise RuntimeError(
                "cache_compile is for inference: an argument requires grad. Call it under "
                "torch.no_grad()."
            )
        if self._held is None:
            self._path, self._held = self._locate()
        with torch.no_grad():  # parameters may require grad
            plain = _containers.spread((args, kwargs), self._classes)
            results = self._called(*plain)
            return _containers.gathered(results, self._classes)

    def _called(self, args: tuple, kwargs: dict):
        state = _key.state()
        path = self._path_of(state)
        bound = self._bound.get(state)
        if bound is None:
            bound = self._bound[state] = self._load(path) or self._make(path, args, kwargs)
        try:
            return self._run(bound, args, kwargs)
        except _trace.Mismatch as why:
            written = f" and {path} is written again" if path else ""
            warnings.warn(
                f"cache_compile: {self.__name__}: {why}; it is traced again{written}.",
                stacklevel=3,
            )
        _remove(path)
        bound = self._bound[state] = self._make(path, args, kwargs)
        return self._run(bound, args, kwargs)

    def _run(self, bound, args, kwargs):
        try:
            return bound(args, kwargs)
        except _trace.SharedMemory as why:
            warnings.warn(
                f"cache_compile: {self.__name__}: {why}. Such a call runs without the graph.",
                stacklevel=4,
            )
        return self._plain(args, kwargs)

    def _plain(self, *call):
        """The method, with arguments and results that hold no objects."""
        args, kwargs = _containers.gathered(call, self._classes)
        before = _attributes(self._owner)
        results = _containers.spread(self._func(*args, **kwargs), self._classes)
        self._refuse_new_attributes(before)
        if not _containers.same(_containers.spread((args, kwargs), self._classes), call):
            raise RuntimeError(
                f"cache_compile: {self.__name__} puts other values into an argument (a list, dict "
                "or object), which a graph does not do again. Return them, or write into tensors."
            )
        return results

    def _held_now(self) -> list:
        found = []
        for held in self._held:
            try:
                found.append(held.now(self._owner))
            except (AttributeError, LookupError, TypeError):  # it is gone since
                found.append(None)
        return found

    def _refuse_new_attributes(self, before: dict) -> None:
        after = _attributes(self._owner)
        for name, value in after.items():
            old = before.get(name)
            if value is old or (type(value) is type(old) and _equal(value, old)):
                continue
            told = f"cache_compile: {self.__name__} sets {name}, which a graph does not do again"
            if isinstance(value, torch.Tensor) or isinstance(old, torch.Tensor):
                raise RuntimeError(f"{told}. Write into a buffer with copy_, or return the tensor.")
            warnings.warn(f"{told}: it keeps the value of the first call.", stacklevel=2)

    def _path_of(self, state: tuple) -> str | None:
        """Under autocast, for instance, the trace is another one."""
        if self._path is None or state == self._first_state:
            return self._path
        folder, name = os.path.split(self._path)
        tail = hashlib.md5(repr(state).encode(), usedforsecurity=False).hexdigest()[:8]
        return os.path.join(f"{folder}_{tail}", name)

    def _bind(self, made: _trace.Trace):
        from torchair._compiler import Compiler

        compiler = Compiler(self._config, package=self._package)
        return _trace.Bound(
            made, self._owner, lambda g, x: compiler.compile(g, x, phase="inference"), self._held
        )

    def _load(self, path: str | None):
        if path is None:
            return None
        try:
            return self._bind(_trace.from_json(_read(path)))
        except FileNotFoundError:
            return None
        except BadFile as why:
            warnings.warn(
                f"cache_compile: {path} is not used: {why}. It is written again.", stacklevel=3
            )
            _remove(path)
            return None

    def _make(self, path: str | None, args, kwargs):
        held = self._held_now()
        others = (*self._owner.parameters(), *self._owner.buffers(), *held)
        args, kwargs = _trace.apart((args, kwargs), others)
        made = _trace.trace(
            self._owner, lambda *a, **k: self._plain(a, k), args, kwargs, self._dynamic,
            self._decompositions, held,
        )  # fmt: skip
        try:
            if path is not None:
                _write(path, made.to_json())
        except (ValueError, OSError) as why:
            warnings.warn(
                f"cache_compile: {self.__name__} is not kept on disk: {why}", stacklevel=3
            )
        return self._bind(made)


def _attributes(owner: torch.nn.Module) -> dict:
    """Attributes of a module and its modules, apart from parameters and buffers."""
    return {
        f"{name}.{key}".lstrip("."): value
        for name, module in owner.named_modules()
        for key, value in vars(module).items()
        if not key.startswith("_")
    }


def _equal(value, other) -> bool:
    return isinstance(value, (bool, int, float, str, tuple)) and value == other


def _needs_grad(args, kwargs) -> bool:
    given = torch.utils._pytree.tree_leaves((args, kwargs))
    return any(isinstance(t, torch.Tensor) and t.requires_grad for t in given)


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


def _remove(path: str | None) -> None:
    with contextlib.suppress(OSError):
        if path is not None:
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
