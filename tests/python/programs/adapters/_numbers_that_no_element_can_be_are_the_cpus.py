# SPDX-License-Identifier: Apache-2.0
x, b, i = torch.ones(3), torch.tensor([1, 200, 0], dtype=torch.uint8), torch.ones(3, dtype=torch.int32)
def same(f):
    answers = []
    for device in ("cpu", "npu"):
        try:
            answers.append(f(device).tolist())
        except RuntimeError as error:
            answers.append(str(error).splitlines()[0])
    assert answers[0] == answers[1], answers
same(lambda d: torch.addcmul(x.to(d), x.to(d), x.to(d), value=1 + 2j))
same(lambda d: x.to(d).addcdiv_(x.to(d), x.to(d), value=2j))
same(lambda d: torch.nn.functional.threshold(x.to(d), 2.0, 1j))
same(lambda d: x.to(d).clamp(min=1j))
same(lambda d: b.to(d).clamp(min=-1))
same(lambda d: b.to(d).clamp_(max=-1))
same(lambda d: torch._foreach_minimum([b.to(d)], -1)[0])
same(lambda d: torch.add(i.to(d), i.to(d), alpha=2**40))
same(lambda d: torch.add(b.to(d), b.to(d), alpha=300))
