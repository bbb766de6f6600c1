# SPDX-License-Identifier: Apache-2.0
"""Device memory as programs see it: counters, peaks, snapshots, streams, a training loop."""

import gc
import re
import threading

import pytest
import torch

MIB = 2**20

# What torch.cuda.memory_stats documents.
POOLED = [
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
]
PLAIN = [
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
    "max_split_size",
]
METRICS = ["current", "peak", "allocated", "freed"]


@pytest.fixture(autouse=True)
def quiet_device():
    gc.collect()
    torch.npu.synchronize()
    torch.npu.empty_cache()
    torch.npu.reset_peak_memory_stats()
    yield


def used():
    return torch.npu.memory_allocated()


def test_stats_have_torch_cudas_keys():
    torch.empty(1, device="npu")
    expected = {
        f"{kind}.{pool}.{metric}"
        for kind in POOLED
        for pool in ("all", "small_pool", "large_pool")
        for metric in METRICS
    }
    expected |= {f"oversize_{what}.{m}" for what in ("allocations", "segments") for m in METRICS}
    expected |= set(PLAIN)
    missing = expected - set(torch.npu.memory_stats())
    assert not missing, sorted(missing)


def test_allocation_is_rounded_and_given_back():
    before = used()
    x = torch.empty(1000, dtype=torch.uint8, device="npu")
    assert used() - before == 1024
    requested = torch.npu.memory_stats()["requested_bytes.all.current"]
    y = torch.empty(100, dtype=torch.uint8, device="npu")
    assert torch.npu.memory_stats()["requested_bytes.all.current"] - requested == 100
    del x, y
    assert used() == before


def test_empty_tensors_take_nothing():
    before = torch.npu.memory_stats()["allocation.all.allocated"]
    x = torch.empty(0, device="npu")
    assert torch.npu.memory_stats()["allocation.all.allocated"] == before
    assert x.numel() == 0


def test_peaks_and_their_reset():
    base = used()
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="npu")
    del x
    assert torch.npu.max_memory_allocated() - base >= 8 * MIB
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.max_memory_allocated() == used()
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="npu")
    held = torch.npu.memory_stats()["allocation.all.current"]
    torch.npu.reset_accumulated_memory_stats()
    assert torch.npu.memory_stats()["allocated_bytes.all.allocated"] == 0
    assert torch.npu.memory_stats()["allocation.all.current"] == held > 0
    del x


def test_a_freed_block_is_used_again():
    x = torch.empty(3000, device="npu")
    address = x.data_ptr()
    del x
    assert torch.empty(3000, device="npu").data_ptr() == address


def test_empty_cache_keeps_what_is_in_use():
    kept = torch.full((1000,), 7.0, device="npu")
    large = torch.empty(64 * MIB, dtype=torch.uint8, device="npu")
    del large
    reserved = torch.npu.memory_reserved()
    torch.npu.empty_cache()
    assert reserved - torch.npu.memory_reserved() >= 64 * MIB
    assert torch.npu.memory_reserved() >= 2 * MIB
    assert kept.cpu().eq(7).all()


def test_accelerator_sees_the_same_numbers():
    x = torch.empty(5 * MIB, dtype=torch.uint8, device="npu")
    acc = torch.accelerator
    assert acc.memory_allocated() == torch.npu.memory_allocated()
    assert acc.memory_reserved() == torch.npu.memory_reserved()
    assert acc.max_memory_allocated() == torch.npu.max_memory_allocated()
    ours, theirs = torch.npu.memory_stats(), acc.memory_stats()
    for key, value in theirs.items():
        assert ours.get(key, 0) == value, key
    del x
    acc.empty_cache()
    acc.reset_peak_memory_stats()
    assert acc.max_memory_allocated() == acc.memory_allocated()
    acc.reset_accumulated_memory_stats()


def test_memory_info_is_within_capacity():
    free, total = torch.npu.mem_get_info()
    assert 0 <= free <= total
    assert total == torch.npu.get_device_properties(0).total_memory


def test_snapshot_lists_segments_and_blocks():
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
    segments = torch.npu.memory_snapshot()
    (segment,) = [
        s for s in segments if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]
    ]
    assert segment["segment_type"] == "large"
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    (block,) = [b for b in segment["blocks"] if b["address"] == x.data_ptr()]
    assert block["state"] == "active_allocated"
    assert block["requested_size"] == 3 * MIB
    assert sum(s["total_size"] for s in segments) == torch.npu.memory_reserved()
    assert sum(s["allocated_size"] for s in segments) == torch.npu.memory_allocated()


def test_history_tells_who_allocated():
    torch.npu.memory._record_memory_history(max_entries=1000)
    try:
        x = torch.empty(12345, dtype=torch.uint8, device="npu")
        address = x.data_ptr()
        del x
        snapshot = torch.npu.memory._snapshot()
    finally:
        torch.npu.memory._record_memory_history(enabled=None)
    entries = [e for e in snapshot["device_traces"][0] if e.get("addr") == address]
    actions = [e["action"] for e in entries if not e["action"].startswith("segment")]
    assert actions == ["alloc", "free_requested", "free_completed"]
    (made,) = [e for e in entries if e["action"] == "alloc"]
    assert made["size"] == 12800
    assert any(f["name"] == "test_history_tells_who_allocated" for f in made["frames"])


def test_freed_on_another_thread():
    before = used()
    held = [torch.empty(1000, device="npu") for _ in range(50)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert used() == before


def test_threads_allocate_at_once():
    before = used()
    wrong = []

    def work(seed):
        for i in range(200):
            size = 1 + (seed * 7919 + i * 104729) % 5000
            x = torch.full((size,), float(seed), device="npu")
            y = torch.full((size,), float(i), device="npu")
            if x[0].item() != seed or y[-1].item() != i:
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert used() == before


def test_record_stream_on_the_own_stream_is_nothing():
    x = torch.empty(1000, device="npu")
    x.record_stream(torch.npu.current_stream())
    address = x.data_ptr()
    del x
    assert torch.empty(1000, device="npu").data_ptr() == address


def test_caching_allocator_alloc_and_delete():
    before = used()
    ptr = torch.npu.caching_allocator_alloc(4096)
    assert used() - before == 4096
    torch.npu.caching_allocator_delete(ptr)
    assert used() == before
    with pytest.raises(ValueError, match="not the address of a live block"):
        torch.npu.caching_allocator_delete(ptr)
    with pytest.raises(RuntimeError, match="no stream"):
        torch.npu.caching_allocator_alloc(4096, stream=12345)


def test_fraction_limits_and_is_validated():
    gc.collect()  # what other tests left would be freed, or serve the request
    torch.npu.synchronize()
    torch.npu.empty_cache()
    total = torch.npu.mem_get_info()[1]
    held = torch.npu.memory_reserved()
    # More than any piece that is free inside of segments still in use.
    size = held - used() + 8 * MIB
    torch.npu.set_per_process_memory_fraction((held + 6 * MIB) / total)
    asked = re.escape(f"Tried to allocate {size / MIB:.2f} MiB")
    try:
        with pytest.raises(torch.OutOfMemoryError, match=asked):
            torch.empty(size, dtype=torch.uint8, device="npu")
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)
    torch.empty(size, dtype=torch.uint8, device="npu")
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="Invalid fraction value"):
            torch.npu.set_per_process_memory_fraction(bad)


def test_absurd_sizes_are_refused():
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate more than 1EB memory"):
        torch.empty(2**61, dtype=torch.uint8, device="npu")
    assert torch.ones(3, device="npu").sum().item() == 3


def test_a_step_that_repeats_itself_takes_no_driver_memory():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)
    ).to("npu")
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(32, 64).to("npu")

    def step():
        optimizer.zero_grad()
        (model(data) - data).square().mean().backward()
        optimizer.step()

    step()
    step()
    before = torch.npu.memory_stats()["num_device_alloc"]
    for _ in range(5):
        step()
    assert torch.npu.memory_stats()["num_device_alloc"] == before


def test_profiler_sees_device_memory():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as session:
        x = torch.empty(4 * MIB, dtype=torch.uint8, device="npu")
        del x
    sizes = [
        event.device_memory_usage if hasattr(event, "device_memory_usage") else 0
        for event in session.key_averages()
    ]
    assert any(size >= 4 * MIB for size in sizes), session.key_averages()
