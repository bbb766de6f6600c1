#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/accelerator-dtypes.md and its Chinese sister from ops/wide.yaml and PyTorch's OpInfo; --check says whether they are current."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/opinfo"))
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

import yaml  # noqa: E402
from accelerator import cuda_only, full_name, why_refused  # noqa: E402

PAGES = {"en": ROOT / "docs/accelerator-dtypes.md", "zh": ROOT / "docs/zh-CN/accelerator-dtypes.md"}
TEXTS = {
    "en": {
        "head": """# Dtypes as accelerators have them

Made by scripts/accelerator_dtypes.py from ops/wide.yaml. Do not edit.

The host device falls back on PyTorch's CPU kernels, which lack dtypes that accelerators have and round some halves after every
step. What is listed here is computed in a wider dtype and rounded once, on the CPU rungs of the ladder (architecture.md); a driver's
own kernels are not touched. Each is tested against float64 (tests/opinfo/test_accelerator_dtypes.py, test_half_precision.py).

PyTorch's OpInfo lists {total} pairs of operator and dtype for CUDA and not for the CPU: {works} work on npu, {refused} are refused for
the reasons below.
""",
        "missing": """
## The CPU has no kernel

complex32 stands for every call whose result is complex32: complex halves with float16, float16 with a complex number,
`dtype=torch.complex32`.

""",
        "imprecise": """
## The CPU's kernel is more than 2 units in the last place off

Against float64, where one rounding of the float32 result is at most 1 off; found by scripts/wide_sweep.py over OpInfo's samples.
Left as they are: `add` and `sub` with a number (the CPU rounds the number first, and so do `_foreach_add` and `_foreach_sub`), `div` with a rounding mode (a jump), composites that round
between their steps on every device (`_trilinear`), and sums into a tensor (`index_put_`, `index_add_`, `scatter_add_`), where casting
the whole tensor would cost more than the sum; CUDA adds halves one by one there too.

""",
        "slow": """
## The CPU's kernel is slow without instructions for the dtype

On a CPU that has no instructions for products of the half type (x86: `avx512_bf16`, `avx512_fp16`) its kernels take 3 to 45 times
float32's time. There the operands are cast once, multiplied in float32 and rounded once, which takes 1.0 to 1.3 times. Matrix products
are cast where each side has at least 4 elements and there are at least 16,384 products; smaller ones would lose. The decision is
made from the CPU's flags, oneDNN's limit (`ONEDNN_MAX_CPU_ISA`), `torch.backends.mkldnn` and the sizes, not from a clock, so that a
program's results are the same in every run on a machine. `NPU_HALF_PRODUCTS=cpu` uses PyTorch's kernels as they are, `float32` casts always. What is
done here: `opennpu doctor` and `opennpu explain aten::mm`; how often: `torch.npu.fallback_report(native=True)`.

""",
        "indices": "\n## int32 indices\n\n",
        "composites": "\n## Composites that are cast around, float16 and complex32\n\n",
        "refused": "\n## Refused\n\n",
        "opinfo": "\n## What OpInfo lists for CUDA and not for the CPU\n\n",
        "columns": ("operator", "dtypes", "only where", "argument", "why"),
        "no": " (refused)",
    },
    "zh": {
        "head": """# 加速器所支持的 dtype

由 scripts/accelerator_dtypes.py 根据 ops/wide.yaml 生成，请勿手工修改。

host 设备会回退到 PyTorch 的 CPU 核函数：有些 dtype 加速器支持而 CPU 不支持，有些半精度核函数每一步都舍入。这里列出的算子在更宽的 dtype
中计算，只舍入一次；这发生在阶梯的 CPU 各级（architecture.md），驱动自己的核函数不受影响。每一项都与 float64 对比测试
（tests/opinfo/test_accelerator_dtypes.py、test_half_precision.py）。

PyTorch 的 OpInfo 中有 {total} 对（算子，dtype）列在 CUDA 而不在 CPU：其中 {works} 对在 npu 上可用，{refused} 对被拒绝，原因见下文。
""",
        "missing": """
## CPU 没有核函数

complex32 指结果为 complex32 的所有调用：半精度复数与 float16、float16 与复数、`dtype=torch.complex32`。

""",
        "imprecise": """
## CPU 核函数的误差超过 2 ulp

与 float64 相比；float32 结果舍入一次最多差 1 ulp。由 scripts/wide_sweep.py 在 OpInfo 的样本上找出。保持原样的有：`add`、`sub` 与一个数
（CPU 先对这个数舍入，`_foreach_add`、`_foreach_sub` 也一样）、带舍入方式的 `div`（结果会跳变）、在所有设备上都逐步舍入的组合算子（`_trilinear`），以及累加到张量中的求和
（`index_put_`、`index_add_`、`scatter_add_`）：转换整个张量比求和本身更贵，CUDA 在那里也是逐个累加半精度数。

""",
        "slow": """
## 没有相应指令时 CPU 核函数很慢

CPU 没有半精度乘法指令时（x86：`avx512_bf16`、`avx512_fp16`），其核函数耗时是 float32 的 3 到 45 倍。此时操作数只转换一次，在 float32 中相乘，
只舍入一次，耗时为 1.0 到 1.3 倍。矩阵乘法仅在每条边至少 4 个元素、乘法至少 16,384 次时转换，更小的反而变慢。决定依据是 CPU 标志、oneDNN 的限制
（`ONEDNN_MAX_CPU_ISA`）、`torch.backends.mkldnn` 和张量大小，而不是计时，因此同一台机器上每次运行结果相同。`NPU_HALF_PRODUCTS=cpu`
直接使用 PyTorch 的核函数，`float32` 总是转换。本机的做法见 `opennpu doctor` 和 `opennpu explain aten::mm`，次数见
`torch.npu.fallback_report(native=True)`。

""",
        "indices": "\n## int32 索引\n\n",
        "composites": "\n## 在外层转换 dtype 的组合算子（float16 与 complex32）\n\n",
        "refused": "\n## 拒绝\n\n",
        "opinfo": "\n## OpInfo 列在 CUDA 而不在 CPU 的项目\n\n",
        "columns": ("算子", "dtype", "仅当", "参数", "原因"),
        "no": "（拒绝）",
    },
}


def table(columns: list[str], rows: list[tuple]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join(lines + [f"| {' | '.join(map(str, row))} |" for row in rows]) + "\n"


def spelled(row: dict) -> str:
    return ", ".join(
        "float16, bfloat16" if d == "halves" else d for d in row.get("dtypes", ("int32",))
    )


def page(language: str) -> str:
    said = TEXTS[language]
    operator, dtypes, when, argument, why = said["columns"]
    rows = yaml.safe_load((ROOT / "ops/wide.yaml").read_text(encoding="utf-8"))
    listed = cuda_only()
    refused = [(op, d) for op, d in listed if why_refused(op, d)]
    text = said["head"].format(
        total=len(listed), works=len(listed) - len(refused), refused=len(refused)
    )
    text += said["missing"]
    text += table([operator, dtypes], [(f"`{r['func']}`", spelled(r)) for r in rows["missing"]])
    text += said["imprecise"] + table(
        [operator, dtypes, when],
        [
            (f"`{r['func']}`", spelled(r), f"`{r['when']}`" if "when" in r else "")
            for r in rows["imprecise"]
        ],
    )
    text += said["slow"] + table(
        [operator, dtypes], [(f"`{r['func']}`", spelled(r)) for r in rows["slow"]]
    )
    text += said["indices"] + table(
        [operator, argument], [(f"`{r['func']}`", f"`{r['indices']}`") for r in rows["indices"]]
    )
    text += said["composites"] + ", ".join(f"`{name}`" for name in rows["composites"]) + "\n"
    text += said["refused"] + table(
        [operator, dtypes, why],
        [(f"`{r['func']}`", spelled(r), r["why"]) for r in rows["refused"]],
    )
    names: dict[str, list[str]] = {}
    for op, dtype in listed:
        state = said["no"] if why_refused(op, dtype) else ""
        names.setdefault(full_name(op), []).append(str(dtype)[6:] + state)
    text += said["opinfo"]
    return text + table([operator, dtypes], [(f"`{n}`", ", ".join(d)) for n, d in names.items()])


def main() -> int:
    old = []
    for language, path in PAGES.items():
        made = page(language)
        if sys.argv[1:] != ["--check"]:
            path.write_text(made, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != made:
            old.append(str(path.relative_to(ROOT)))
    if old:
        print(f"{', '.join(old)}: old; run make docs-dtypes", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
