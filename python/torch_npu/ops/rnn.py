# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU over a series: forward with the gates, and gradients from the gates.

Gates lie side by side: i, f, j, o of an LSTM (j is PyTorch's g), r, z, n of a GRU. Products of the inputs
are computed for all steps at once, those of the state step by step. `backward` runs time from its end;
results stay at the time they belong to.
"""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import floating, require, unsupported, wide


def _times(steps: int, backward: bool):
    return reversed(range(steps)) if backward else range(steps)


def _stacked(rows, like, count: int):
    """Series (T, B, H) of the steps' results; `like` (B, H) is a state."""
    if not rows:
        return [like.new_empty(0, *like.shape) for _ in range(count)]
    return [torch.stack(series) for series in zip(*rows)]


def _before(series, first, backward: bool):
    """The state that each step began with."""
    if backward:
        return torch.cat((series[1:], first[None]))
    return torch.cat((first[None], series[:-1]))


def _lstm(x, w_x, w_h, bias, h, c, real=None, backward=False):
    """y, h, c, i, j, f, o, tanh(c), each (T, B, H). Where `real` (T, B, 1) is False a step changes nothing."""
    ahead, rows = x @ w_x + bias, [None] * x.size(0)
    for t in _times(x.size(0), backward):
        i, f, j, o = (ahead[t] + h @ w_h).chunk(4, -1)
        i, f, j, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(j), torch.sigmoid(o)
        new_c = f * c + i * j
        tanh_c = torch.tanh(new_c)
        new_h = y = o * tanh_c
        if real is not None:
            y = torch.where(real[t], y, torch.zeros_like(y))
            new_h, new_c = torch.where(real[t], new_h, h), torch.where(real[t], new_c, c)
        h, c = new_h, new_c
        rows[t] = y, h, c, i, j, f, o, tanh_c
    return _stacked(rows, h, 8)


def _lstm_back(grad_y, dh, dc, x, w_x, w_h, before, gates, real=None, backward=False):
    """(dx, dw_x, dw_h, dbias, dh, dc) of a series.

    dh, dc (B, H): gradients of the last state. before: the states (h, c) that each step began with.
    """
    h_before, c_before = before
    i, j, f, o, tanh_c = gates
    pre = [None] * x.size(0)
    for t in _times(x.size(0), not backward):
        here = dh + grad_y[t]
        cell = dc + here * o[t] * (1 - tanh_c[t] ** 2)
        step = torch.cat(
            (
                cell * j[t] * i[t] * (1 - i[t]),
                cell * c_before[t] * f[t] * (1 - f[t]),
                cell * i[t] * (1 - j[t] ** 2),
                here * tanh_c[t] * o[t] * (1 - o[t]),
            ),
            -1,
        )
        new_dh, new_dc = step @ w_h.t(), cell * f[t]
        if real is not None:
            step = torch.where(real[t], step, torch.zeros_like(step))
            new_dh, new_dc = torch.where(real[t], new_dh, dh), torch.where(real[t], new_dc, dc)
        dh, dc, pre[t] = new_dh, new_dc, step
    pre = torch.stack(pre) if pre else x.new_zeros(0, x.size(1), w_x.size(1))
    return pre @ w_x.t(), _outer(x, pre), _outer(h_before, pre), pre.sum((0, 1)), dh, dc


def _gru(x, w_x, w_h, b_x, b_h, h, real=None, backward=False):
    """y, h, z, r, n, h W_n + b_n, each (T, B, H)."""
    ahead, rows = x @ w_x + b_x, [None] * x.size(0)
    for t in _times(x.size(0), backward):
        r, z, n = ahead[t].chunk(3, -1)
        r_h, z_h, n_h = (h @ w_h + b_h).chunk(3, -1)
        r, z = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
        n = torch.tanh(n + r * n_h)
        new_h = y = (1 - z) * n + z * h
        if real is not None:
            y = torch.where(real[t], y, torch.zeros_like(y))
            new_h = torch.where(real[t], new_h, h)
        h = new_h
        rows[t] = y, h, z, r, n, n_h
    return _stacked(rows, h, 6)


def _gru_back(grad_y, dh, x, w_x, w_h, h_before, gates, real=None, backward=False):
    """(dx, dw_x, dw_h, db_x, db_h, dh) of a series; gates: z, r, n, h W_n + b_n."""
    z, r, n, n_h = gates
    both = [None] * x.size(0)
    for t in _times(x.size(0), not backward):
        here = dh + grad_y[t]
        d_n = here * (1 - z[t]) * (1 - n[t] ** 2)
        d_z = here * (h_before[t] - n[t]) * z[t] * (1 - z[t])
        d_r = d_n * n_h[t] * r[t] * (1 - r[t])
        of_x, of_h = torch.cat((d_r, d_z, d_n), -1), torch.cat((d_r, d_z, d_n * r[t]), -1)
        new_dh = here * z[t] + of_h @ w_h.t()
        if real is not None:
            of_x, of_h = (torch.where(real[t], g, torch.zeros_like(g)) for g in (of_x, of_h))
            new_dh = torch.where(real[t], new_dh, dh)
        dh, both[t] = new_dh, (of_x, of_h)
    of_x, of_h = _stacked(both, x.new_zeros(x.size(1), w_x.size(1)), 2)
    return of_x @ w_x.t(), _outer(x, of_x), _outer(h_before, of_h), of_x.sum((0, 1)), of_h.sum((0, 1)), dh  # fmt: skip


def _outer(a, b):
    """Sum over steps and rows of a's row times b's."""
    return a.flatten(0, 1).t() @ b.flatten(0, 1)


def _check_series(name, x, state, parts, **matrices) -> None:
    """x (T, B, I), a state (1, B, H) or (B, H), matrices and biases with `parts` gates side by side."""
    require(x.dim() == 3, f"{name}: input has shape {list(x.shape)}; allowed: (time, batch, size).")
    floating(name, input=x, **matrices)
    batch, hidden = x.size(1), state.size(-1)
    require(
        state.numel() == batch * hidden,
        f"{name}: a state has shape {list(state.shape)}; the input needs (1, {batch}, {hidden}).",
    )
    sizes = {"weight": x.size(2) + hidden, "weight_input": x.size(2), "w_ih": x.size(2)}
    for key, w in matrices.items():
        if w is None:
            continue
        wanted = [parts * hidden]
        if not key.startswith("b"):
            wanted = [sizes.get(key, hidden), *wanted]
        require(
            list(w.shape) == wanted,
            f"{name}: {key} has shape {list(w.shape)}; input {list(x.shape)} and a state of "
            f"{hidden} need {wanted}.",
        )


def _round(results, like):
    return tuple(r.to(like.dtype) for r in results)


def _state_only(results, like, states: int):
    """Rounded; the gates, which come after the states, carry no gradient."""
    return tuple((r if k < states else r.detach()).to(like.dtype) for k, r in enumerate(results))


def _real_steps(batch_sizes, batch: int, device):
    """(T, B, 1): which steps of a padded batch exist, by PackedSequence's batch_sizes."""
    rows = torch.arange(batch, device=device)
    return (rows[None, :] < batch_sizes.to(device, torch.int64)[:, None])[..., None]


def _split_weight(weight, x):
    """Rows of the inputs, rows of the state."""
    return wide(weight)[: x.size(-1)], wide(weight)[x.size(-1) :]


def _last(grad, like, backward=False):
    """The gradient of the last state (B, H); 0 where there is none."""
    if grad is None:
        return torch.zeros_like(like)
    return wide(grad)[0 if backward else -1] if grad.dim() == 3 else wide(grad)


def _flat_state(state):
    return wide(state).reshape(-1, state.size(-1))


def _one_lstm(name, x, weight, bias, h, c, real, backward):
    _check_series(name, x, h, 4, weight=weight, bias=bias)
    w_x, w_h = _split_weight(weight, x)
    series = _lstm(wide(x), w_x, w_h, wide(bias), _flat_state(h), _flat_state(c), real, backward)
    return _state_only(series, x, 3)


def _one_lstm_back(name, grads, x, weight, bias, hx, cx, h, c, gates, real=None, backward=False):
    _check_series(name, x, hx, 4, weight=weight, bias=bias)
    grad_y, grad_h, grad_c = grads
    h0, c0 = _flat_state(hx), _flat_state(cx)
    before = _before(wide(h), h0, backward), _before(wide(c), c0, backward)
    dx, dw_x, dw_h, db, dh, dc = _lstm_back(
        torch.zeros_like(wide(h)) if grad_y is None else wide(grad_y),
        _last(grad_h, h0, backward),
        _last(grad_c, c0, backward),
        wide(x),
        *_split_weight(weight, x),
        before,
        [wide(g) for g in gates],
        real,
        backward,
    )
    made = dx, torch.cat((dw_x, dw_h)), db, dh.view(hx.shape), dc.view(cx.shape)
    return tuple(r.to(like.dtype) for r, like in zip(made, (x, weight, bias, hx, cx)))


@implements("npu_lstm")
def npu_lstm(
    input, weight, bias, seq_mask, h, c, has_biases, num_layers, dropout, train, bidirectional,
    batch_first, flag_seq, direction,
):  # fmt: skip
    real = seq_mask.view(input.size(0), input.size(1), -1) > 0 if flag_seq else None
    return _one_lstm("npu_lstm", input, weight, bias, h, c, real, direction)


@implements("npu_lstm_backward")
def npu_lstm_backward(
    grady,
    gradh,
    gradc,
    input,
    weight,
    bias,
    hx,
    cx,
    y_output,
    h_output,
    c_output,
    i,
    j,
    f,
    o,
    tanhc,
):
    grads, gates = (grady, gradh, gradc), (i, j, f, o, tanhc)
    return _one_lstm_back(
        "npu_lstm_backward", grads, input, weight, bias, hx, cx, h_output, c_output, gates
    )


@implements("npu_lstm_data")
def npu_lstm_data(
    input, batch_sizes, weight, bias, seq_mask, h, c, has_biases, num_layers, dropout, train,
    bidirectional, batch_first, flag_seq, direction,
):  # fmt: skip
    real = _real_steps(batch_sizes, input.size(1), input.device)
    return _one_lstm("npu_lstm_data", input, weight, bias, h, c, real, direction)


@implements("npu_lstm_data_backward")
def npu_lstm_data_backward(
    grady_opt, gradh_opt, gradc_opt, input, batch_sizes, weight, bias, init_h, init_c, y, h, c, i, j,
    f, o, tanhc, flag_direction,
):  # fmt: skip
    real = _real_steps(batch_sizes, input.size(1), input.device)
    return _one_lstm_back(
        "npu_lstm_data_backward", (grady_opt, gradh_opt, gradc_opt), input, weight, bias, init_h,
        init_c, h, c, (i, j, f, o, tanhc), real, flag_direction,
    )  # fmt: skip


@implements("npu_lstm_cell")
def npu_lstm_cell(input, w_ih, w_hh, h, c, b_ih=None, b_hh=None):
    x = input[None]
    _check_series("npu_lstm_cell", x, h, 4, w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh)
    bias = sum((wide(b) for b in (b_ih, b_hh) if b is not None), wide(w_ih).new_zeros(()))
    series = _lstm(wide(x), wide(w_ih), wide(w_hh), bias, wide(h), wide(c))
    y, new_h, new_c, *gates = _state_only(series, input, 3)
    return y, new_h[0], new_c[0], *gates


@implements("npu_lstm_cell_backward")
def npu_lstm_cell_backward(
    grady, gradh, gradc, input, w_ih, w_hh, h, c, y_output, h_output, c_output, i, j, f, o, tanhc
):
    x, h0, c0 = input[None], wide(h), wide(c)
    _check_series("npu_lstm_cell_backward", x, h, 4, w_ih=w_ih, w_hh=w_hh)
    gates = [wide(g).reshape(1, *h.shape) for g in (i, j, f, o, tanhc)]
    dx, dw_ih, dw_hh, db, dh, dc = _lstm_back(
        _last(grady, h0)[None], _last(gradh, h0), _last(gradc, c0), wide(x), wide(w_ih),
        wide(w_hh), (h0[None], c0[None]), gates,
    )  # fmt: skip
    return _round((dx[0], dw_ih, dw_hh, db, db, dh, dc), input)


@implements("npu_gru")
def npu_gru(
    input, hx, weight_input, weight_hidden, bias_input, bias_hidden, seq_length, has_biases,
    num_layers, dropout, train, bidirectional, batch_first,
):  # fmt: skip
    weights = {"weight_input": weight_input, "weight_hidden": weight_hidden}
    biases = {"bias_input": bias_input, "bias_hidden": bias_hidden}
    _check_series("npu_gru", input, hx, 3, **weights, **biases)
    operands = [wide(w) for w in (*weights.values(), *biases.values())]
    return _state_only(_gru(wide(input), *operands, _flat_state(hx)), input, 2)


@implements("npu_gru_backward")
def npu_gru_backward(
    grady, gradh, input, weight_input, weight_hidden, bias_input, bias_hidden, seq_length, hx,
    y_output, h_output, output_updata, output_reset, output_new, hidden_new,
):  # fmt: skip
    weights = {"weight_input": weight_input, "weight_hidden": weight_hidden}
    biases = {"bias_input": bias_input, "bias_hidden": bias_hidden}
    _check_series("npu_gru_backward", input, hx, 3, **weights, **biases)
    h0, h = _flat_state(hx), wide(h_output)
    dx, dw_x, dw_h, db_x, db_h, dh = _gru_back(
        torch.zeros_like(h) if grady is None else wide(grady),
        _last(gradh, h0),
        wide(input),
        wide(weight_input),
        wide(weight_hidden),
        _before(h, h0, False),
        [wide(g) for g in (output_updata, output_reset, output_new, hidden_new)],
    )
    return _round((dw_x, dw_h, dx, db_x, db_h, dh.view(hx.shape)), input)


class _Layers:
    """The parameters and the order of a stack of layers, as torch.nn.LSTM and GRU have them."""

    def __init__(
        self, name, x, states, params, biases, layers, dropout, train, both, batch_first, sizes
    ):
        self.name, self.first, self.directions = name, bool(batch_first), 2 if both else 1
        if dropout > 0 and train:
            unsupported(
                f"{name}: dropout is {dropout}; dropout between layers is not supported here: give 0."
            )
        self.each, self.layers = 4 if biases else 2, layers
        wanted = layers * self.directions
        require(
            len(params) == wanted * self.each,
            f"{name}: params has {len(params)} tensors; {layers} layers in {self.directions} "
            f"directions need {wanted * self.each}.",
        )
        for state in states:
            require(
                state.dim() == 3 and state.size(0) == wanted,
                f"{name}: a state has shape {list(state.shape)}; allowed: ({wanted}, batch, hidden).",
            )
        self.params, self.padded = params, sizes is not None
        self.batch = states[0].size(1)
        self.x = self.put(x)
        require(
            self.x.dim() == 3 and self.x.size(1) == self.batch,
            f"{name}: input has shape {list(x.shape)}, which is not the states' batch of {self.batch}.",
        )
        self.real = _real_steps(sizes, self.batch, x.device) if self.padded else None

    def put(self, x):
        """As (T, B, I), wide."""
        if self.padded and x.dim() == 2:
            return wide(x).view(-1, self.batch, x.size(-1))
        return wide(x).transpose(0, 1) if self.first else wide(x)

    def weights(self, place: int):
        """w_x, w_h transposed to products' order, b_x, b_h of a layer and direction."""
        w_x, w_h, *biases = (wide(p) for p in self.params[place * self.each :][: self.each])
        return w_x.t(), w_h.t(), *(biases or [w_x.new_zeros(w_x.size(0))] * 2)

    def forward(self, run):
        """(out, series by layer and direction); run(x, place, backward) gives a layer's series, y first."""
        x, made = self.x, []
        for layer in range(self.layers):
            for backward in range(self.directions):
                place = layer * self.directions + backward
                made.append(run(x, place, bool(backward)))
            x = torch.cat([series[0] for series in made[-self.directions :]], -1)
        return x.transpose(0, 1) if self.first and not self.padded else x, made

    def last(self, made, column: int):
        """Last states (D L, B, H) out of the series."""
        ends = [s[column][0 if k % self.directions else -1] for k, s in enumerate(made)]
        return torch.stack(ends)

    def gates(self, made, columns, train):
        if not train:
            return [self.x.new_empty(0) for _ in columns]
        return [torch.stack([series[c] for series in made]).detach() for c in columns]

    def back(self, grad_y, h, step):
        """(dx, what `step` gave for each layer and direction).

        step(grad_y, x, place, backward) gives (dx, ...) of one series, given the gradient of its y.
        """
        grad, made = self.put(grad_y), [None] * (self.layers * self.directions)
        for layer in reversed(range(self.layers)):
            first = layer * self.directions
            x = self.x if layer == 0 else self.outputs(h, first - self.directions)
            parts = grad.chunk(self.directions, -1)
            for k in range(self.directions):
                made[first + k] = step(parts[k], x, first + k, bool(k))
            grad = sum(made[first + k][0] for k in range(self.directions))
        return grad.transpose(0, 1) if self.first and not self.padded else grad, made

    def outputs(self, h, first: int):
        """The input of the next layer: the states, 0 at steps that do not exist."""
        y = torch.cat([wide(h)[first + k] for k in range(self.directions)], -1)
        return y if self.real is None else torch.where(self.real, y, torch.zeros_like(y))

    def grads_of_params(self, made):
        """In the order of params: dw_x, dw_h transposed back, and the biases'."""
        grads = []
        for _, dw_x, dw_h, db_x, db_h in made:
            grads += [dw_x.t(), dw_h.t(), db_x, db_h][: self.each]
        return [g.to(p.dtype) for g, p in zip(grads, self.params)]


@implements("_lstm_npu")
def _lstm_npu(
    input, hx, params, has_biases, num_layers, dropout, train, bidirectional, *, batch_first=False,
    batch_sizes=None,
):  # fmt: skip
    stack = _Layers(
        "_lstm_npu", input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
        batch_first, batch_sizes,
    )  # fmt: skip

    def run(x, place, backward):
        w_x, w_h, b_x, b_h = stack.weights(place)
        states = wide(hx[0])[place], wide(hx[1])[place]
        return _lstm(x, w_x, w_h, b_x + b_h, *states, stack.real, backward)

    out, made = stack.forward(run)
    # Series are y, h, c, i, j, f, o, tanhc.
    gates = stack.gates(made, (3, 4, 5, 6, 1, 2, 7), train)
    return _round((out, stack.last(made, 1), stack.last(made, 2), *gates), input)


@implements("_lstm_npu_backward")
def _lstm_npu_backward(
    grad_y, grad_h, grad_c, input, hx, params, i, j, f, o, h, c, tanhc, has_biases, num_layers,
    dropout, train, bidirectional, *, batch_first=False, batch_sizes=None,
):  # fmt: skip
    stack = _Layers(
        "_lstm_npu_backward", input, hx, params, has_biases, num_layers, dropout, train,
        bidirectional, batch_first, batch_sizes,
    )  # fmt: skip

    def step(grad, x, place, backward):
        w_x, w_h, *_ = stack.weights(place)
        states = [
            _before(wide(s)[place], wide(first)[place], backward) for s, first in zip((h, c), hx)
        ]
        gates = [wide(g)[place] for g in (i, j, f, o, tanhc)]
        ends = wide(grad_h)[place], wide(grad_c)[place]
        return _lstm_back(grad, *ends, x, w_x, w_h, states, gates, stack.real, backward)

    dx, made = stack.back(grad_y, h, step)
    dh, dc = (torch.stack([m[k] for m in made]).to(input.dtype) for k in (4, 5))
    params = stack.grads_of_params([(*m[:4], m[3]) for m in made])
    return dx.reshape(input.shape).to(input.dtype), [dh, dc], params


@implements("_gru_npu")
def _gru_npu(
    input, hx, params, has_biases, num_layers, dropout, train, bidirectional, *, batch_first=False,
    batch_sizes=None,
):  # fmt: skip
    stack = _Layers(
        "_gru_npu", input, [hx], params, has_biases, num_layers, dropout, train, bidirectional,
        batch_first, batch_sizes,
    )  # fmt: skip

    def run(x, place, backward):
        return _gru(x, *stack.weights(place), wide(hx)[place], stack.real, backward)

    out, made = stack.forward(run)
    # Series are y, h, z, r, n, h W_n + b_n.
    gates = stack.gates(made, (3, 2, 4, 5, 1), train)
    return _round((out, stack.last(made, 1), *gates), input)


@implements("_gru_npu_backward")
def _gru_npu_backward(
    grad_y, grad_h, input, hx, params, r, z, n, h_n, h, has_biases, num_layers, dropout, train,
    bidirectional, *, batch_first=False, batch_sizes=None,
):  # fmt: skip
    stack = _Layers(
        "_gru_npu_backward", input, [hx], params, has_biases, num_layers, dropout, train,
        bidirectional, batch_first, batch_sizes,
    )  # fmt: skip

    def step(grad, x, place, backward):
        w_x, w_h, *_ = stack.weights(place)
        states = _before(wide(h)[place], wide(hx)[place], backward)
        gates = [wide(g)[place] for g in (z, r, n, h_n)]
        return _gru_back(
            grad, wide(grad_h)[place], x, w_x, w_h, states, gates, stack.real, backward
        )

    dx, made = stack.back(grad_y, h, step)
    dh = torch.stack([m[5] for m in made]).to(input.dtype)
    params = stack.grads_of_params([m[:5] for m in made])
    return dx.reshape(input.shape).to(input.dtype), dh, params
