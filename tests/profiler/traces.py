# SPDX-License-Identifier: Apache-2.0
"""What a Chrome trace says, read without any code of the product."""

import itertools
import json
from pathlib import Path

# Kineto and the plugin turn the processor's counter into times with a factor that each measures by itself.
CLOCKS_US = 1.0
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


class Trace:
    def __init__(self, path):
        content = json.loads(Path(path).read_text())
        self.events = content["traceEvents"] if isinstance(content, dict) else content

    def of(self, *categories):
        return [e for e in self.events if e.get("cat") in categories and e["ph"] == "X"]

    @property
    def work(self):
        return self.of(*DEVICE)

    @property
    def launches(self):
        """By correlation."""
        found = self.of("privateuse1_runtime")
        return {e["args"]["correlation"]: e for e in found}

    @property
    def ops(self):
        """By the number Kineto links with."""
        return {e["args"]["External id"]: e for e in self.of("cpu_op")}

    def names(self, kind):
        """Names of processes or threads: {pid or (pid, tid): name}."""
        rows = [e for e in self.events if e["ph"] == "M" and e["name"] == kind]
        if kind == "thread_name":
            return {(e["pid"], e["tid"]): e["args"]["name"] for e in rows}
        return {e["pid"]: e["args"].get("name", e["args"].get("labels")) for e in rows}

    def check(self, slack_us=0.0):
        """Device lanes agree with what the host launched."""
        launches, ops = self.launches, self.ops
        assert self.work, "no device work"
        assert min(launches) >= 1 << 30, "CUPTI's numbers, which begin at 1, are in the same trace"
        for work in self.work:
            launch = launches[work["args"]["correlation"]]
            assert work["ts"] >= launch["ts"] - slack_us, (work, launch)
            assert work["dur"] >= 0
            assert work["pid"] == work["args"]["device"]
            assert work["tid"] == work["args"]["stream"]
            op = ops.get(work["args"].get("External id"))
            if op is not None:
                near = max(slack_us, CLOCKS_US)
                inside = op["ts"] - near <= launch["ts"] <= op["ts"] + op["dur"] + near
                assert inside, (op, launch)
                assert op["tid"] == launch["tid"]
        flows = {(e["id"], e["ph"]) for e in self.events if e.get("cat") == "ac2g"}
        starts = {number for number, phase in flows if phase == "s"}
        assert starts == {number for number, phase in flows if phase == "f"}
        assert len(starts) == len(self.work)
        by_lane = {}
        for work in self.work:
            by_lane.setdefault((work["pid"], work["tid"]), []).append(work)
        return by_lane


def overlaps(works, slack_us=0.002):
    """Pairs of one lane that were under way at once; times are rounded to nanoseconds."""
    works = sorted(works, key=lambda w: w["ts"])
    return [
        (a["name"], b["name"])
        for a, b in itertools.pairwise(works)
        if b["ts"] < a["ts"] + a["dur"] - slack_us
    ]
