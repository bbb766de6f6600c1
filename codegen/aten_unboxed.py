# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of rung 4: every ATen overload whose CPU function torch exports.

The rows become kernels at load (src/aten/ladder/sweep.cpp), which skips overloads with an npu kernel of their own. Rows
with the same signature go into the same file, because what is compiled is made per signature.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from aten_torch import TorchOps, load_torch, packaged_yaml
from kinds import write
from torchgen.api.types import CppSignatureGroup
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction

# Argument types the boxed road converts: a generated call passes them on as they are.
BOXED_TYPES = ("Device", "Generator", "Storage", "Layout", "Stream")


def cpu_function(function: NativeFunction) -> tuple[str, str]:
    """Name and type of the exported function that takes the schema's arguments in its order:
    ("add", "at::Tensor(const at::Tensor &, ...)")."""
    with native_function_manager(function):
        group = CppSignatureGroup.from_native_function(
            function, method=False, fallback_binding=False
        )
        signature = group.faithful_signature or group.signature
        return signature.name(), signature.ptr_type().replace(" (*)", "")


def wanted(torch: TorchOps, function: NativeFunction) -> bool:
    types = [str(a.type) for a in function.func.arguments.flat_all]
    return (
        str(function.func.name) in torch.cpu
        and "nondeterministic_seeded" not in function.tags
        and not function.is_view_op
        and not function.use_const_ref_for_mutable_tensors
        and any("Tensor" in t for t in types)
        and not any(word in t for t in types for word in BOXED_TYPES)
        and not has_written_list(function)
        and returns_what_it_writes(function)
    )


def has_written_list(function) -> bool:
    """An out= list: the tensors in it may be replaced, which only the boxed road follows."""
    return any(a.is_write and a.type.is_list_like() for a in function.func.arguments.flat_all)


def returns_what_it_writes(function) -> bool:
    """In-place and out= functions give back the tensors they wrote: all of them, in order."""
    written = sum(a.is_write for a in function.func.arguments.flat_all)
    aliased = sum(r.annotation is not None for r in function.func.returns)
    return aliased in (0, written)


def header_of(function) -> str:
    return f"<ATen/ops/{function.root_name}_cpu_dispatch.h>"


def rows(torch: TorchOps) -> dict[str, list[tuple[str, str, str]]]:
    """By signature: (header, overload, C++ expression)."""
    found: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for overload, function in torch.functions.items():
        if wanted(torch, function):
            name, signature = cpu_function(function)
            found[signature].append((header_of(function), overload, f"at::cpu::{name}"))
    return found


def shards(by_signature: dict, n: int) -> list[dict]:
    """Files of about the same number of signatures, the same on every run."""
    out: list[dict] = [{} for _ in range(n)]
    for i, signature in enumerate(sorted(by_signature)):
        out[i % n][signature] = by_signature[signature]
    return out


def emit_shard(number: int, part: dict) -> str:
    headers = sorted({row[0] for rows in part.values() for row in rows})
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Made by codegen/aten_unboxed.py: exported CPU functions.",
        '#include "aten/ladder/unboxed.h"',
        "",
        *(f"#include {h}" for h in headers),
        "",
        "namespace npu::ladder {",
        *(f"template struct Unboxed<{signature}>;" for signature in sorted(part)),
        "namespace {",
        "const UnboxedRow kRows[] = {",
    ]
    for signature, rows in sorted(part.items()):
        for _, overload, function in sorted(rows, key=lambda row: row[1]):
            name, _, suffix = overload.partition(".")
            lines.append(f'    row<{signature}>("aten::{name}", "{suffix}", &{function}),')
    lines += [
        "};",
        "}  // namespace",
        f"UnboxedRows unboxed_rows_{number}() {{",
        "  return {kRows, sizeof(kRows) / sizeof(kRows[0])};",
        "}",
        "}  // namespace npu::ladder",
    ]
    return "\n".join(lines) + "\n"


def emit_signatures(by_signature: dict) -> str:
    """Callers of an exported function find the instance of its signature in the file of the table."""
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Made by codegen/aten_unboxed.py: signatures that are compiled in unboxed_<i>.cpp. Ends aten/ladder/unboxed.h.",
        "#pragma once",
        "",
        "namespace npu::ladder {",
        *(f"extern template struct Unboxed<{signature}>;" for signature in sorted(by_signature)),
        "}  // namespace npu::ladder",
    ]
    return "\n".join(lines) + "\n"


def emit_table(n: int) -> str:
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Made by codegen/aten_unboxed.py: all tables of exported CPU functions.",
        '#include "aten/ladder/unboxed_rows.h"',
        "",
        "namespace npu::ladder {",
        *(f"UnboxedRows unboxed_rows_{i}();" for i in range(n)),
        "std::vector<UnboxedRows> unboxed_rows() {",
        "  return {",
        *(f"      unboxed_rows_{i}()," for i in range(n)),
        "  };",
        "}",
        "}  // namespace npu::ladder",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the generated files")
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--cache", type=Path, help="folder for parsed torch YAML (default: --out)")
    args = parser.parse_args()
    torch = load_torch(packaged_yaml(), args.cache or args.out)
    by_signature = rows(torch)
    write(args.out / "unboxed_signatures.h", emit_signatures(by_signature))
    for number, part in enumerate(shards(by_signature, args.shards)):
        write(args.out / f"unboxed_{number}.cpp", emit_shard(number, part))
    write(args.out / "unboxed_table.cpp", emit_table(args.shards))
    return 0


if __name__ == "__main__":
    sys.exit(main())
