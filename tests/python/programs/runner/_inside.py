# SPDX-License-Identifier: Apache-2.0
def lists():
    xs = [off_by_one(torch.rand(3, 5, dtype=DTYPE)) for _ in range(3)]
    ys = [torch.rand(3, 5, dtype=DTYPE).npu() for _ in range(3)]
    host = [t.cpu() for t in xs]
    for fn in (lambda a, b: torch._foreach_add(a, b), lambda a, b: torch._foreach_mul(a, [1.5, 2.5, 0.5]),
               lambda a, b: torch._foreach_sqrt(a), lambda a, b: torch._foreach_norm(a),
               lambda a, b: (torch._foreach_mul_(a, b), a)[1]):
        for got, want in zip(fn(xs, ys), fn(host, [t.cpu() for t in ys])):
            torch.testing.assert_close(got.cpu(), want)

def optimizer():
    def step(device):
        torch.manual_seed(1)
        values = [torch.rand(4, 3, dtype=DTYPE) for _ in range(4)]
        place = off_by_one if device == "npu" else torch.clone
        p, g, m, v = ([place(value)] for value in values)
        steps = [torch.ones((), device=device)]
        torch._fused_adamw_(p, g, m, v, [], steps, lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-6,
                            amsgrad=False, maximize=False)
        return [p[0], m[0], v[0]]
    for got, want in zip(step("npu"), step("cpu")):
        torch.testing.assert_close(got.cpu(), want)

def random():
    plain, moved = torch.empty(33, device="npu"), off_by_one(torch.empty(33))
    for draw in ("uniform_", "normal_", "exponential_"):
        torch.manual_seed(3); getattr(plain, draw)()
        torch.manual_seed(3); getattr(moved, draw)()
        assert plain.equal(moved), draw
    torch.manual_seed(3); a, mask = torch.native_dropout(plain, 0.5, True)
    torch.manual_seed(3); b, mask2 = torch.native_dropout(moved, 0.5, True)
    assert a.equal(b) and mask.equal(mask2)
    moved.fill_(2.5)
    assert moved.eq(2.5).all().item()

def cells():
    cell = torch.nn.LSTMCell(6, 4)
    x, h, c = torch.rand(3, 6), torch.rand(3, 4), torch.rand(3, 4)
    want = cell(x, (h, c))
    got = cell.npu()(x.npu(), (off_by_one(h), torch.stack([c, c], 2).npu()[..., 1]))
    for one, other in zip(got, want):
        torch.testing.assert_close(one.cpu(), other)

def attention():
    q, k, v = (off_by_one(torch.rand(1, 2, 8, 4)) for _ in range(3))
    def drop(*args):
        torch.manual_seed(5)
        return torch.nn.functional.scaled_dot_product_attention(*args, dropout_p=0.5)
    assert drop(q, k, v).equal(drop(q.clone(), k.clone(), v.clone()))

lists(), optimizer()
if DTYPE == torch.float32:
    random(), cells(), attention()
faults = broken()
assert not faults, faults
for name in ("_foreach_sqrt", "_fused_adamw_"):
    assert calls(name, 2), (name, _C._native_calls().get("aten::" + name))
if DTYPE == torch.float32:
    for name in ("uniform_", "native_dropout", "_thnn_fused_lstm_cell"):
        assert calls(name, 2), (name, _C._native_calls().get("aten::" + name))
print("done")
