# SPDX-License-Identifier: Apache-2.0
for i, host in enumerate(hosts[:3]):
    for k, npu in enumerate(npus):
        for a, b in dtypes[i % 2 + k % 2::2]:
            src = npu(base.to(a).to("npu"))
            src = src.conj() if a.is_complex and k else src
            dst = host(torch.zeros(4, 6, dtype=b))
            check(("from", i, k, a, b), lambda: dst.copy_(src, non_blocking=True), lambda: dst,
                  src.cpu().resolve_conj().to(b))
wide = torch.full((6, 3), 77., pin_memory=True)
src = torch.arange(6., device="npu")
wide[:, 1].copy_(src, non_blocking=True)
torch.npu.synchronize()
assert wide[:, 0].eq(77).all() and wide[:, 2].eq(77).all() and wide[:, 1].eq(src.cpu()).all()
# Buffers are not used again while the stream needs them.
for n in range(6):
    dst = [torch.zeros(1000, 2, pin_memory=True)[:, 0] for _ in range(2)]
    for j, d in enumerate(dst):
        d.copy_(torch.full((1000,), n * 2 + j, device="npu"), non_blocking=True)
    torch.npu.synchronize()
    assert all(d.eq(n * 2 + j).all() for j, d in enumerate(dst))
torch.empty(0, 3, pin_memory=True)[:, 1:].copy_(torch.zeros(1, 2, device="npu"), non_blocking=True)
assert not wrong and not slow, (wrong, slow)
