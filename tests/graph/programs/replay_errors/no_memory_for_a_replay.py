# SPDX-License-Identifier: Apache-2.0
"""16 MiB each, so that none fits into what another left of a segment of the pool."""
big = torch.randn(1 << 22).npu(), torch.randn(1 << 22).npu()
run([big[0], big[1].clone()])
torch.npu.empty_cache()
written = big[1].clone()
torch.npu.set_per_process_memory_fraction(1e-9)
try:
    run([big[0], written])
except torch.OutOfMemoryError as error:
    assert "out of memory" in str(error), error
else:
    raise SystemExit("no error")
torch.npu.set_per_process_memory_fraction(1.0)
(got,) = run([big[0], big[1].clone()])
judge(got, *big)
works()
