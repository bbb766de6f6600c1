# SPDX-License-Identifier: Apache-2.0
for i, host in enumerate(hosts):
    for k, npu in enumerate(npus):
        for a, b in dtypes[i % 2 + k % 2::2]:
            src = host(base.to(a))
            if a.is_complex:
                src = src.conj() if k else src
            dst = npu(torch.zeros(4, 6, dtype=b, device="npu"))
            check(("to", i, k, a, b), lambda: dst.copy_(src, non_blocking=True), lambda: dst,
                  src.clone().to(b).expand(4, 6))
assert not wrong and not slow, (wrong, slow)
