# SPDX-License-Identifier: Apache-2.0
import time, torch, torch_npu
from torch.profiler import ProfilerActivity, profile
from traces import Trace, overlaps

x = torch.ones(4096, device="npu")
y = x + x
torch.npu.synchronize()
side = torch.npu.Stream()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
    began = time.time()
    for _ in range(20):
        y = x + y
    torch.npu.synchronize()
    middle = time.time()
    torch_npu._C._sleep(1_000_000_000)  # far longer than a busy machine keeps a thread waiting
    z = x + x                      # behind the sleep
    with torch.npu.stream(side):
        w = x + x                  # not behind it
    torch.npu.synchronize()
    ended = time.time()
prof.export_chrome_trace("trace.json")
trace = Trace("trace.json")
lanes = trace.check(slack_us=1)
assert set(lanes) == {(0, 0), (0, side.stream_id)}, set(lanes)
main = sorted((w for w in lanes[0, 0] if w["cat"] == "kernel"), key=lambda w: w["ts"])
assert len(main) == 21, len(main)
assert overlaps(main, slack_us=1) == [], overlaps(main, slack_us=1)
(other,) = [w for w in lanes[0, side.stream_id] if w["cat"] == "kernel"]

# Where time begins in the file.
import json
base = int(json.load(open("trace.json")).get("baseTimeNanoseconds", 0)) / 1e9
at = lambda w: base + w["ts"] / 1e6
slack = 0.02
assert began - slack <= at(main[0]) and at(main[19]) <= middle + slack
assert at(main[20]) >= middle + 1.0 - slack, at(main[20]) - middle
assert at(main[20]) <= ended + slack
assert at(other) < at(main[20]), at(other) - middle
launch = trace.launches[main[20]["args"]["correlation"]]
assert main[20]["ts"] - launch["ts"] > 100_000   # the host did not wait
assert torch.equal(z.cpu(), torch.full((4096,), 2.0))
