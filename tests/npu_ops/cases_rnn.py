# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU step by step, and their backward operators as autograd of those."""

import torch
from table import add, rand

ONE = (torch.float32,)


# ---- one direction of one layer


def lstm_steps(x, weight, bias, h, c, mask=None, backwards=False):
    """Lists by time of (y, h, c, i, j, f, o, tanh c); gates stand as i, f, j, o."""
    length, out = x.shape[0], {}
    for t in reversed(range(length)) if backwards else range(length):
        z = torch.cat((x[t], h), 1) @ weight + bias
        i, f, j, o = torch.chunk(z, 4, 1)
        i, f, j, o = i.sigmoid(), f.sigmoid(), j.tanh(), o.sigmoid()
        new = f * c + i * j
        y = o * new.tanh()
        tanhc = new.tanh()
        if mask is not None:
            m = mask[t].double()
            h, c, y = m * y + (1 - m) * h, m * new + (1 - m) * c, m * y
        else:
            h, c = y, new
        out[t] = (y, h, c, i, j, f, o, tanhc)
    return [out[t] for t in range(length)]


def stacked(steps, shape):
    if not steps:
        return (torch.zeros(shape, dtype=torch.float64),) * 8
    return tuple(torch.stack(x) for x in zip(*steps, strict=True))


def lstm(
    x, weight, bias, seq_mask, h, c, has_biases=True, num_layers=1, dropout=0.0, train=True,
    bidirectional=False, batch_first=False, flag_seq=False, direction=False,
):  # fmt: skip
    mask = seq_mask if flag_seq else None
    steps = lstm_steps(x, weight, bias, h[0], c[0], mask, direction)
    out = stacked(steps, (0, *h.shape[1:]))
    return out if mask is None else (*out[:3], *[None] * 5)


def lengths_mask(batch_sizes, batch):
    return torch.tensor([[b < n for b in range(batch)] for n in batch_sizes.tolist()])[..., None]


def lstm_data(x, batch_sizes, weight, bias, seq_mask, h, c, *flags):
    mask = lengths_mask(batch_sizes, x.shape[1])
    return (*stacked(lstm_steps(x, weight, bias, h[0], c[0], mask, flags[-1]), None)[:3],) + (
        None,
    ) * 5


def gru_steps(x, w, u, bw, bu, h, backwards=False):
    """Lists by time of (y, h, z, r, n, h W_hn + b_hn); gates stand as r, z, n."""
    length, out = x.shape[0], {}
    for t in reversed(range(length)) if backwards else range(length):
        a = torch.chunk(x[t] @ w + bw, 3, 1)
        b = torch.chunk(h @ u + bu, 3, 1)
        r, z = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
        n = (a[2] + r * b[2]).tanh()
        h = (1 - z) * n + z * h
        out[t] = (h, h, z, r, n, b[2])
    return [out[t] for t in range(length)]


def gru(x, hx, w, u, bw, bu, seq_length, *flags):
    return tuple(torch.stack(s) for s in zip(*gru_steps(x, w, u, bw, bu, hx[0]), strict=True))


def gradients(outputs, leaves):
    """Of the sum of the products of outputs and their gradients; a leaf that is not reached: 0."""
    total = sum((out * grad).sum() for out, grad in outputs if grad is not None)
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]


def leaves_of(*tensors):
    return [x.detach().clone().requires_grad_() for x in tensors]


def lstm_backward(grady, gradh, gradc, x, weight, bias, hx, cx, *saved, mask=None, backwards=False):
    leaves = leaves_of(x, weight, bias, hx, cx)
    x, weight, bias, hx, cx = leaves
    y, h, c, *_ = stacked(lstm_steps(x, weight, bias, hx[0], cx[0], mask, backwards), None)
    return gradients(
        [
            (y, grady),
            (h[-1], None if gradh is None else gradh[-1]),
            (c[-1], None if gradc is None else gradc[-1]),
        ],
        leaves,
    )


def lstm_data_backward(grady, gradh, gradc, x, batch_sizes, *rest):
    mask = lengths_mask(batch_sizes, x.shape[1])
    return lstm_backward(grady, gradh, gradc, x, *rest[:-1], mask=mask, backwards=rest[-1])


def gru_backward(grady, gradh, x, w, u, bw, bu, seq_length, hx, *saved):
    leaves = leaves_of(w, u, x, bw, bu, hx)
    w, u, x, bw, bu, hx = leaves
    y, h, *_ = gru(x, hx, w, u, bw, bu, seq_length)
    return gradients([(y, grady), (h[-1], None if gradh is None else gradh[-1])], leaves)


def small(*size):
    """Weights that leave the gates where their slopes are steep."""
    return rand(*size, low=-0.75, high=0.75)


def lstm_inputs(steps, batch, width, hidden):
    return (
        rand(steps, batch, width), small(width + hidden, 4 * hidden), small(4 * hidden),
        small(1, batch, hidden), small(1, batch, hidden),
    )  # fmt: skip


FLAGS = (True, 1, 0.0, True, False, False)
SHAPES = (("four-steps", 4, 3, 5, 6), ("one-step", 1, 1, 1, 1), ("one-row", 6, 1, 2, 3),
          ("no-rows", 2, 0, 3, 4))  # fmt: skip
for label, *shape in SHAPES:
    x, weight, bias, h, c = lstm_inputs(*shape)
    mask = torch.ones(shape[0], shape[1], shape[3], dtype=torch.float16)
    for name, backwards in (("", False), ("-backwards", True)):
        add("npu_lstm", lstm, x, weight, bias, mask, h, c, *FLAGS, False, backwards,
            label=label + name, grad=(0, 1, 2, 4, 5))  # fmt: skip
    steps = stacked(lstm_steps(x, weight, bias, h[0], c[0]), None)
    series = [rand(*steps[0].shape) for _ in range(3)]
    for name, grads in (
        ("", series), ("-y", [series[0], None, None]), ("-state", [None, *series[1:]]),
    ):  # fmt: skip
        add("npu_lstm_backward", lstm_backward, *grads, x, weight, bias, h, c, *steps,
            label=label + name)  # fmt: skip
x, weight, bias, h, c = lstm_inputs(4, 3, 2, 5)
SIZES = torch.tensor([3, 3, 2, 1])
MASK = lengths_mask(SIZES, 3).expand(4, 3, 5)
for name, backwards in (("", False), ("-backwards", True)):
    add("npu_lstm", lstm, x, weight, bias, MASK.half(), h, c, *FLAGS, True, backwards,
        label=f"mask{name}", grad=(0, 1, 2, 4, 5))  # fmt: skip
    add("npu_lstm_data", lstm_data, x, SIZES, weight, bias, torch.zeros(0), h, c, *FLAGS, False,
        backwards, label=f"padded{name}", fake=False, grad=(0, 2, 3, 5, 6))  # fmt: skip
    saved = [
        s.detach()
        for s in stacked(lstm_steps(x, weight, bias, h[0], c[0], MASK[..., :1], backwards), None)
    ]
    # gradh and gradc are read at the last time only, which is not the last step of a backward run.
    states = [None, None] if backwards else [rand(4, 3, 5), rand(4, 3, 5)]
    add("npu_lstm_data_backward", lstm_data_backward, rand(4, 3, 5), *states, x, SIZES, weight,
        bias, h, c, *saved, backwards, label=f"padded{name}", fake=False)  # fmt: skip


# ---- cells


def cell(x, w_ih, w_hh, h, c, b_ih=None, b_hh=None):
    bias = torch.zeros(w_ih.shape[1], dtype=torch.float64)
    bias = sum([b for b in (b_ih, b_hh) if b is not None], bias)
    (out,) = lstm_steps(x[None], torch.cat((w_ih, w_hh)), bias, h, c)
    y, h, c, *gates = out
    return y[None], h, c, *[g[None] for g in gates]


def cell_backward(grady, gradh, gradc, x, w_ih, w_hh, h, c, *saved):
    bias = torch.zeros(w_ih.shape[1], dtype=torch.float64)
    leaves = leaves_of(x, w_ih, w_hh, bias, h, c)
    x, w_ih, w_hh, bias, h, c = leaves
    y, new_h, new_c, *_ = cell(x, w_ih, w_hh, h, c, bias)
    dx, dw, du, db, dh, dc = gradients([(y, grady), (new_h, gradh), (new_c, gradc)], leaves)
    return dx, dw, du, db, db, dh, dc


for label, batch, width, hidden in (("three", 3, 4, 5), ("one", 1, 1, 1), ("no-rows", 0, 2, 3)):
    inputs = (
        rand(batch, width), small(width, 4 * hidden), small(hidden, 4 * hidden),
        small(batch, hidden), small(batch, hidden),
    )  # fmt: skip
    add("npu_lstm_cell", cell, *inputs, label=label, grad=(0, 1, 2, 3, 4))
    add("npu_lstm_cell", cell, *inputs, small(4 * hidden), small(4 * hidden), label=f"{label}-bias",
        grad=(0, 1, 2, 3, 4, 5, 6))  # fmt: skip
    saved = cell(*inputs)
    grads = rand(1, batch, hidden), rand(batch, hidden), rand(batch, hidden)
    add("npu_lstm_cell_backward", cell_backward, *grads, *inputs, *saved, label=label)
    add("npu_lstm_cell_backward", cell_backward, grads[0], None, None, *inputs, *saved,
        label=f"{label}-y")  # fmt: skip

for label, steps, batch, width, hidden in SHAPES:
    x, hx = rand(steps, batch, width), small(1, batch, hidden)
    weights = (
        small(width, 3 * hidden), small(hidden, 3 * hidden), small(3 * hidden), small(3 * hidden),
    )  # fmt: skip
    lengths = torch.full((batch,), steps, dtype=torch.int32)
    add("npu_gru", gru, x, hx, *weights, lengths, *FLAGS, label=label, grad=(0, 1, 2, 3, 4, 5))
    saved = gru(x, hx, *weights, lengths)
    grady, gradh = rand(*saved[0].shape), rand(*saved[0].shape)
    for name, grads in (("", (grady, gradh)), ("-y", (grady, None)), ("-state", (None, gradh))):
        add("npu_gru_backward", gru_backward, *grads, x, *weights, lengths, hx, *saved,
            label=label + name)  # fmt: skip


# ---- stacks of layers, with the parameters of torch.nn.LSTM and torch.nn.GRU


def layers(x, states, params, has_biases, num_layers, bidirectional, run):
    """The output and, for each layer and direction, what its steps gave, stacked by time."""
    turns, each, out = 2 if bidirectional else 1, 4 if has_biases else 2, []
    for layer in range(num_layers):
        ys = []
        for turn in range(turns):
            n = layer * turns + turn
            own = params[n * each : (n + 1) * each]
            w, u = own[0].T, own[1].T
            zero = torch.zeros(w.shape[1], dtype=torch.float64)
            biases = own[2:] if has_biases else (zero, zero)
            steps = stacked(run(x, w, u, *biases, [s[n] for s in states], turn == 1), None)
            ys.append(steps[0])
            out.append(steps)
        x = torch.cat(ys, -1)
    return x, out


def by_kind(steps, places):
    return [torch.stack([s[p] for s in steps]) for p in places]


def ends(stack, bidirectional):
    """The state after the last step of each layer and direction."""
    return torch.stack([s[0] if bidirectional and n % 2 else s[-1] for n, s in enumerate(stack)])


def lstm_layers(
    x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first=False,
    batch_sizes=None,
):  # fmt: skip
    mask = None
    if batch_sizes is not None:
        batch = hx[0].shape[1]
        x, mask = x.reshape(-1, batch, x.shape[-1]), lengths_mask(batch_sizes, batch)
    x = x.transpose(0, 1) if batch_first else x

    def run(x, w, u, b, d, states, backwards):
        return lstm_steps(x, torch.cat((w, u)), b + d, *states, mask, backwards)

    out, steps = layers(x, hx, params, has_biases, num_layers, bidirectional, run)
    i, j, f, o, h, c, tanhc = by_kind(steps, (3, 4, 5, 6, 1, 2, 7))
    out = out.transpose(0, 1) if batch_first else out
    hy, cy = ends(h, bidirectional), ends(c, bidirectional)
    if mask is not None:
        return None, hy, cy, *[None] * 7
    return (out, hy, cy, i, j, f, o, h, c, tanhc) if train else (out, hy, cy, *[None] * 7)


def gru_layers(
    x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first=False,
    batch_sizes=None,
):  # fmt: skip
    x = x.transpose(0, 1) if batch_first else x

    def run(x, w, u, b, d, states, backwards):
        return gru_steps(x, w, u, b, d, *states, backwards)

    out, steps = layers(x, [hx], params, has_biases, num_layers, bidirectional, run)
    h, z, r, n, h_n = by_kind(steps, (1, 2, 3, 4, 5))
    out = out.transpose(0, 1) if batch_first else out
    hy = ends(h, bidirectional)
    return (out, hy, r, z, n, h_n, h) if train else (out, hy, *[None] * 5)


def lstm_layers_backward(grad_y, grad_hy, grad_cy, x, hx, params, *rest, **options):
    flags = rest[7:]
    leaves = leaves_of(x, *hx, *params)
    out = lstm_layers(leaves[0], leaves[1:3], leaves[3:], *flags, **options)
    found = gradients(list(zip(out[:3], (grad_y, grad_hy, grad_cy), strict=True)), leaves)
    return found[0], found[1:3], found[3:]


def gru_layers_backward(grad_y, grad_h, x, hx, params, *rest, **options):
    flags = rest[5:]
    leaves = leaves_of(x, hx, *params)
    out = gru_layers(leaves[0], leaves[1], leaves[2:], *flags, **options)
    found = gradients(list(zip(out[:2], (grad_y, grad_h), strict=True)), leaves)
    return found[0], found[1], found[2:]


def layer_params(gates, width, hidden, num_layers, turns, has_biases):
    out = []
    for layer in range(num_layers):
        inner = width if layer == 0 else hidden * turns
        for _ in range(turns):
            out += [small(gates * hidden, inner), small(gates * hidden, hidden)]
            out += [small(gates * hidden), small(gates * hidden)] if has_biases else []
    return out


for label, count, bidirectional, has_biases, batch_first, train in (
    ("one-layer", 1, False, True, False, True),
    ("two-layers", 2, False, True, False, True),
    ("both-directions", 1, True, True, False, True),
    ("two-both-batch-first", 2, True, True, True, True),
    ("no-biases", 2, True, False, False, True),
    ("inference", 2, True, True, False, False),
):
    steps, batch, width, hidden, turns = 3, 2, 4, 3, 2 if bidirectional else 1
    size = (batch, steps) if batch_first else (steps, batch)
    flags = (has_biases, count, 0.0, train, bidirectional)
    x, states = rand(*size, width), [small(turns * count, batch, hidden) for _ in range(2)]
    grads = rand(*size, turns * hidden), *[rand(turns * count, batch, hidden) for _ in range(2)]
    params = layer_params(4, width, hidden, count, turns, has_biases)
    add("_lstm_npu", lstm_layers, x, states, params, *flags, batch_first=batch_first, label=label,
        grad=(0,))  # fmt: skip
    if train:
        saved = lstm_layers(x, states, params, *flags, batch_first=batch_first)
        add("_lstm_npu_backward", lstm_layers_backward, *grads, x, states, params, *saved[3:],
            *flags, batch_first=batch_first, label=label, dtypes=ONE)  # fmt: skip
    params = layer_params(3, width, hidden, count, turns, has_biases)
    add("_gru_npu", gru_layers, x, states[0], params, *flags, batch_first=batch_first, label=label,
        grad=(0, 1))  # fmt: skip
    if train:
        saved = gru_layers(x, states[0], params, *flags, batch_first=batch_first)
        add("_gru_npu_backward", gru_layers_backward, *grads[:2], x, states[0], params, *saved[2:],
            *flags, batch_first=batch_first, label=label, dtypes=ONE)  # fmt: skip
# A padded batch: only the last states are told, as the documents leave the output's shape open.
add("_lstm_npu", lstm_layers, rand(12, 4), [small(1, 3, 3), small(1, 3, 3)],
    layer_params(4, 4, 3, 1, 1, True), True, 1, 0.0, True, False, batch_sizes=SIZES,
    label="padded", fake=False)  # fmt: skip
