# SPDX-License-Identifier: Apache-2.0
"""Turns drivers/host/fast.txt into the host driver's table of limits. Needs only PyYAML (for the kinds)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kinds import write
from kinds_model import KindsError, load_kinds

# In the order of the contract (npu/op.h).
DTYPES = (
    "absent bool u8 i8 i16 i32 i64 u16 u32 u64 f16 bf16 f32 f64 c32 c64 c128 "
    "f8_e4m3fn f8_e5m2 f8_e4m3fnuz f8_e5m2fnuz f8_e8m0fnu f4_e2m1fn_x2"
).split()
ANY, NEVER, ROOM = 0, 255, 32


def parse(text: str, codes: dict[str, list[str]], where: str) -> dict[tuple[str, int], list[int]]:
    """(kind, code) -> limit per dtype; ValueError names the line."""
    table: dict[tuple[str, int], list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        try:
            name, dtype, most = words
            kind, _, code = name.partition(".")
            numbers = range(len(codes[kind])) if code in ("", "*") else [codes[kind].index(code)]
            columns = range(1, len(DTYPES)) if dtype == "*" else [DTYPES.index(dtype)]
            limit = ANY if most == "any" else int(most)
            if not 0 <= limit < 63 or (limit == 0 and most != "any"):
                raise ValueError(most)
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"{where}:{number}: {line.strip()!r}: {error}. Write: kind[.code] dtype 1..62|any."
            ) from None
        for n in numbers:
            row = table.setdefault((kind, n), [NEVER] * ROOM)
            for column in columns:
                row[column] = limit
    return table


def header(table: dict[tuple[str, int], list[int]], slots: dict[str, int]) -> str:
    rows = "\n".join(
        f"    {{{slots[kind]}, {code}, {{{', '.join(map(str, limits))}}}}},  // {kind}"
        for (kind, code), limits in sorted(table.items(), key=lambda i: (slots[i[0][0]], i[0][1]))
    )
    return f"""// Made by codegen/fast_table.py from drivers/host/fast.txt.
#pragma once

#include <cstdint>

namespace npu::host {{

struct FastRow {{
  std::uint32_t slot;
  std::uint32_t code;
  std::uint8_t numel_limit[{ROOM}];
}};

// Sorted by slot and code.
inline constexpr FastRow kFastRows[] = {{
{rows}
}};

}}  // namespace npu::host
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    try:
        kinds = load_kinds(args.kinds)
        codes = {kind.name: [name for name, _ in kind.codes] or [""] for kind in kinds}
        table = parse(args.table.read_text(encoding="utf-8"), codes, args.table.name)
    except (KindsError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    write(args.out, header(table, {kind.name: kind.slot for kind in kinds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
