# SPDX-License-Identifier: Apache-2.0
"""Where do models spend their time? Remakes python/opennpu/kind_models.json.

python scripts/kind_models.py [--check]

Trains every model of benchmarks/models.py, and the Transformers library's where it is installed,
on the host driver with all of its kernels, behind the driver of the tests that notes every call
and its processor time. A kind's time is its share of a model's kernel time, averaged over the
models; `opennpu driver check` tells vendors from it what to write next.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "python/opennpu/kind_models.json"
TRANSFORMERS = ("bert", "llama")


def transformers_step(name: str):
    """One training step of a small model of the Transformers library."""
    import torch
    import transformers

    sizes = dict(vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    if name == "bert":
        config = transformers.BertConfig(**sizes, intermediate_size=128)
        model = transformers.BertForMaskedLM(config)
    else:
        config = transformers.LlamaConfig(**sizes, intermediate_size=128, num_key_value_heads=2)
        model = transformers.LlamaForCausalLM(config)
    model = model.to("npu").train()
    tokens = torch.randint(96, (2, 24)).to("npu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens
        ).loss.backward()
        optimizer.step()

    return step


def train(name: str, tally: str) -> None:
    """In a process of its own: a step to warm up, two that count; the notes go to `tally`."""
    import torch
    import torch_npu  # noqa: F401

    sys.path.insert(0, str(ROOT))
    from benchmarks import models

    torch.manual_seed(0)
    step = transformers_step(name) if name in TRANSFORMERS else models.build(name).to("npu")
    take = ctypes.CDLL(os.environ["NPU_DRIVER"]).npu_faulty_take_times
    take.restype = ctypes.c_char_p
    step()
    take()
    for _ in range(2):
        step()
    torch.npu.synchronize()
    Path(tally).write_bytes(take())


def shares_of(name: str) -> dict[str, float]:
    """Each kind's share of the model's kernel time."""
    sys.path.insert(0, str(ROOT / "tests/python"))
    from faulty import faulty_environment

    with tempfile.TemporaryDirectory() as folder:
        tally = Path(folder) / "tally"
        env = {**os.environ, **faulty_environment(), "NPU_FAULTY_TALLY": "1"}
        env |= {"NPU_HOST_KERNELS": "all", "NPU_FALLBACK": "silent"}
        env |= {"NPU_PROFILE": "none", "OMP_NUM_THREADS": "1"}  # one thread: its time is all of it
        command = [sys.executable, __file__, "--train", name, "--tally", str(tally)]
        subprocess.run(command, env=env, check=True)
        lines = tally.read_text(encoding="utf-8").splitlines()
    times = {kind: int(time) for kind, time in map(str.split, lines)}
    return {kind: time / sum(times.values()) for kind, time in times.items()}


def measure() -> dict:
    sys.path.insert(0, str(ROOT))
    from benchmarks import models

    # Of a model in several sizes one that the host driver's own gemm and convolution do in seconds.
    large = ("gpt-medium", "gpt-medium-dropout", "gpt-small-dropout", "resnet")
    names = [name for name in models.CASES if name not in large] + [*TRANSFORMERS]
    with ThreadPoolExecutor(4) as pool:  # processor time: they may run side by side
        shares = dict(zip(names, pool.map(shares_of, names)))
    kinds = {}
    for kind in {kind for found in shares.values() for kind in found}:
        time = sum(found.get(kind, 0) for found in shares.values()) / len(names)
        callers = [name for name in names if kind in shares[name]]
        kinds[kind] = {"time": round(time, 4), "models": callers}
    kinds = dict(sorted(kinds.items(), key=lambda item: (-item[1]["time"], item[0])))
    return {"models": names, "kinds": kinds}


def same_but_for_noise(old: dict, new: dict) -> bool:
    """The same kinds and callers, and no share moved by a fiftieth of the whole."""
    return (
        old["models"] == new["models"]
        and {k: v["models"] for k, v in old["kinds"].items()}
        == {k: v["models"] for k, v in new["kinds"].items()}
        and all(abs(v["time"] - new["kinds"][k]["time"]) < 0.02 for k, v in old["kinds"].items())
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--tally", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train, options.tally)
        return 0
    found = measure()
    if options.check:
        same = same_but_for_noise(json.loads(DATA.read_text(encoding="utf-8")), found)
        print("as committed" if same else "stale: run scripts/kind_models.py")
        return 0 if same else 1
    DATA.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found['models'])} models, {len(found['kinds'])} kinds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
