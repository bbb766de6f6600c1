# SPDX-License-Identifier: Apache-2.0
# NPU_DISCRETE_DELAY_US=3000
side = torch.npu.Stream()
main = torch.npu.current_stream()
w = torch.zeros(64).npu()
for i in range(6):
    read(w)
    side.wait_stream(main)
    with torch.npu.stream(side):
        w.add_(1)
        done = side.record_event()
    if i % 2:
        w * 1  # unordered: may see either
    main.wait_event(done)
    assert read(w).eq(i + 1).all(), (i, read(w))
    with torch.npu.stream(side):
        assert read(w).eq(i + 1).all()
