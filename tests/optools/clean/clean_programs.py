# SPDX-License-Identifier: Apache-2.0
"""Clean programs of kinds that training steps of common models are not: each is a function of a device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def _randn(device: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=dtype).to(device)


def _train(model: nn.Module, loss: Callable[[], torch.Tensor], steps: int = 2, **how) -> None:
    optimizer = how.pop("optimizer", torch.optim.AdamW)(model.parameters(), lr=1e-2, **how)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def spectral(device: str) -> None:
    """Convolutions as products of spectra, with complex weights."""
    weight = nn.Parameter(torch.view_as_complex(_randn(device, 4, 8, 5, 2)))
    optimizer = torch.optim.Adam([weight], lr=1e-2)
    for _ in range(2):
        x = torch.fft.rfft2(_randn(device, 2, 4, 8, 8), norm="ortho")
        y = torch.fft.irfft2(x * weight, s=(8, 8), norm="ortho")
        loss = y.square().mean() + torch.angle(x * weight).sin().mean() + (x * weight).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def double_backward(device: str) -> None:
    """A penalty on gradients, through a function with its own backward."""

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 3 * x * x

    net = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 1)).to(device)

    def loss() -> torch.Tensor:
        x = _randn(device, 5, 6).requires_grad_()
        y = Cube.apply(net(x)).sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        return y.square() + (slope.norm(dim=1) - 1).square().mean()

    _train(net, loss)


def checkpointed(device: str) -> None:
    """Activations computed again, with dropout, in both ways."""
    part = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 8)).to(device)

    def loss() -> torch.Tensor:
        x = _randn(device, 4, 8).requires_grad_()
        y = checkpoint(part, x, use_reentrant=False)
        return checkpoint(part, y, use_reentrant=True).square().mean()

    _train(part, loss)


def compiled(device: str) -> None:
    """Through torch.compile, without a code generator."""
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 2)).to(device)
    fast = torch.compile(net, backend="aot_eager")
    _train(
        net,
        lambda: F.cross_entropy(
            fast(_randn(device, 4, 8)), torch.tensor([0, 1, 1, 0], device=device)
        ),
    )


class _Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.arange(i, i + 4).float().sin(), i % 2


def loaded(device: str) -> None:
    """Batches made by other processes."""
    net = nn.Linear(4, 2).to(device)
    batches = iter(torch.utils.data.DataLoader(_Numbers(), 4, num_workers=2, shuffle=True))

    def loss() -> torch.Tensor:
        x, y = next(batches)
        return F.cross_entropy(net(x.to(device)), y.to(device))

    _train(net, loss)


def per_sample(device: str) -> None:
    """Gradients of each sample, Jacobians and forward-mode derivatives."""
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)).to(device)
    held = {name: p.detach() for name, p in net.named_parameters()}

    def one(parameters, x):
        return torch.func.functional_call(net, parameters, (x,)).square().sum()

    x = _randn(device, 6, 5)
    torch.func.vmap(torch.func.grad(one), in_dims=(None, 0))(held, x)
    torch.func.jacrev(net)(x[0])
    torch.func.jvp(net, (x,), (x.cos(),))
    torch.func.vmap(torch.func.jacfwd(net))(x)


def packed_sequences(device: str) -> None:
    cells = nn.ModuleList(
        [nn.GRU(4, 5, 2, bidirectional=True), nn.LSTM(10, 6, proj_size=3), nn.RNN(3, 4)]
    ).to(device)

    def loss() -> torch.Tensor:
        x = nn.utils.rnn.pack_padded_sequence(_randn(device, 7, 3, 4), [7, 5, 2])
        x = cells[0](x)[0]
        x = nn.utils.rnn.pad_packed_sequence(x)[0]
        return cells[2](cells[1](x)[0])[0].square().mean()

    _train(cells, loss)


def graph_network(device: str) -> None:
    """Messages between nodes: gathers, scatters of several kinds, a softmax over neighbours."""
    net = nn.ModuleList([nn.Linear(6, 8), nn.Linear(16, 1), nn.Linear(24, 3)]).to(device)
    generator = torch.Generator().manual_seed(3)
    source, target = torch.randint(10, (2, 40), generator=generator).to(device)
    where = target[:, None].expand(-1, 8)

    def loss() -> torch.Tensor:
        h = net[0](_randn(device, 10, 6))
        score = F.leaky_relu(net[1](torch.cat([h[source], h[target]], 1))).exp()
        total = torch.zeros(10, 1, device=device).index_add(0, target, score)
        message = h[source] * (score / total[target])
        kinds = [
            torch.zeros(10, 8, device=device).scatter_reduce(0, where, message, kind)
            for kind in ("sum", "mean", "amax")
        ]
        return F.cross_entropy(net[2](torch.cat(kinds, 1)), torch.arange(10, device=device) % 3)

    _train(net, loss)


def pictures(device: str) -> None:
    """Convolutions, pools, resampling and norms that classifiers do not use."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=2, dilation=2, padding_mode="reflect"),
        nn.InstanceNorm2d(8, affine=True),
        nn.PReLU(8),
        nn.Conv2d(8, 8, 3, groups=8, padding=1),
        nn.Hardswish(),
        nn.ConvTranspose2d(8, 8, 3, stride=2, output_padding=1),
        nn.LocalResponseNorm(3),
        nn.LPPool2d(2, 2),
        nn.PixelShuffle(2),
        nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 4, 1)),
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 3)),
        nn.Mish(),
    ).to(device)

    def loss() -> torch.Tensor:
        x = net(_randn(device, 2, 3, 8, 8))
        kept, where = F.max_pool2d(x, 2, return_indices=True)
        x = F.max_unpool2d(kept, where, 2)
        turn = torch.tensor([[0.8, -0.6, 0.1], [0.6, 0.8, 0.0]], device=device).expand(2, 2, 3)
        x = F.grid_sample(x, F.affine_grid(turn, x.shape, align_corners=False), align_corners=False)
        x = F.interpolate(x, scale_factor=1.5, mode="bicubic", align_corners=False)
        x = F.interpolate(x, size=(5, 5), mode="area") + F.adaptive_max_pool2d(x, 5)
        return F.avg_pool2d(x, 3, 2, 1, count_include_pad=False).square().mean()

    _train(net, loss)


def volumes(device: str) -> None:
    net = nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1),
        nn.BatchNorm3d(4),
        nn.ELU(),
        nn.MaxPool3d(2),
        nn.ConvTranspose3d(4, 2, 2, 2),
        nn.AvgPool3d(2),
        nn.Flatten(),
        nn.Linear(16, 2),
    ).to(device)
    _train(net, lambda: net(_randn(device, 2, 2, 4, 4, 4)).square().mean())


def decompositions(device: str) -> None:
    """Of matrices, with gradients."""
    net = nn.Linear(5, 5).to(device)

    def loss() -> torch.Tensor:
        a = net(_randn(device, 5, 5))
        s = a @ a.mT + 2 * torch.eye(5, device=device)
        parts = [
            torch.linalg.cholesky(s).diagonal().log().sum(),
            torch.linalg.solve(s, a).square().mean(),
            torch.linalg.eigvalsh(s).sum(),
            torch.linalg.svdvals(a).sum(),
            torch.linalg.qr(s).R.diagonal().abs().sum(),
            torch.linalg.matrix_exp(a * 0.1).mean(),
            torch.linalg.slogdet(s).logabsdet,
            torch.linalg.inv(s).sum(),
        ]
        return sum(parts)

    _train(net, loss)


def distributions(device: str) -> None:
    """Draws that gradients go through, and their densities."""
    raw = nn.Linear(3, 4).to(device)

    def loss() -> torch.Tensor:
        p = F.softplus(raw(_randn(device, 64, 3))) + 0.5
        kinds = [
            torch.distributions.Normal(p[:, 0], p[:, 1]),
            torch.distributions.Gamma(p[:, 0], p[:, 1]),
            torch.distributions.Beta(p[:, 0], p[:, 1]),
            torch.distributions.Dirichlet(p),
            torch.distributions.StudentT(p[:, 0] + 3, p[:, 1]),
            torch.distributions.Laplace(p[:, 0], p[:, 1]),
        ]
        value = sum(kind.log_prob(kind.rsample()).mean() for kind in kinds)
        chosen = torch.distributions.Categorical(logits=p)
        count = torch.distributions.Poisson(p[:, 0])
        return (
            value + chosen.log_prob(chosen.sample()).mean() + count.log_prob(count.sample()).mean()
        )

    _train(raw, loss)


def order_statistics(device: str) -> None:
    """Sorts, searches and running sums, with equal values among them."""
    x = (_randn(device, 6, 20) * 3).round().requires_grad_()
    y = _randn(device, 6, 20).requires_grad_()
    parts = [
        x.sort(dim=1, stable=True)[0][:, :7],
        y.topk(5, largest=False)[0],
        y.kthvalue(3)[0],
        y.median(dim=1)[0],
        y.quantile(0.3, dim=1),
        y.cumsum(1),
        (y * 0.1).exp().cumprod(1),
        y.logcumsumexp(1),
        x.cummax(1)[0],
        y.logsumexp((0, 1)),
        y.std(1),
        y.var(0),
        y.renorm(2, 0, 1.0),
        torch.cdist(y, x),
        y.nanmean(),
        torch.trapezoid(y),
        y.diff(),
    ]
    sum(part.square().mean() for part in parts).backward()
    edges = torch.tensor([-2.0, 0.0, 2.0], device=device)
    torch.bucketize(y.detach(), edges)
    torch.searchsorted(y.detach().sort(1)[0].contiguous(), x.detach())
    torch.histc(y.detach(), 10)
    x.detach().unique(return_inverse=True, return_counts=True)
    torch.bincount(x.detach().abs().long().flatten())
    x.detach().mode(dim=1)


LOSSES = (
    lambda x, y, t: F.huber_loss(x, y),
    lambda x, y, t: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    lambda x, y, t: F.cosine_embedding_loss(x, y, t.float() * 2 - 1),
    lambda x, y, t: F.triplet_margin_loss(x, y, y.flip(0)),
    lambda x, y, t: F.multi_margin_loss(x, t),
    lambda x, y, t: F.poisson_nll_loss(x, y.abs()),
    lambda x, y, t: F.gaussian_nll_loss(x, y, y.square() + 0.1),
    lambda x, y, t: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=y[0].exp()),
    lambda x, y, t: F.cross_entropy(x, t, label_smoothing=0.1, weight=y[0].exp()),
    lambda x, y, t: F.soft_margin_loss(x, y.sign()),
    lambda x, y, t: F.hinge_embedding_loss(x, y.sign()),
    lambda x, y, t: F.smooth_l1_loss(x, y, beta=0.5),
    lambda x, y, t: F.multilabel_soft_margin_loss(x, (y > 0).float()),
)


def losses(device: str) -> None:
    net = nn.Linear(5, 6).to(device)
    y, t = _randn(device, 8, 6), torch.arange(8, device=device) % 2

    def loss() -> torch.Tensor:
        x = net(_randn(device, 8, 5))
        speech = F.ctc_loss(
            x.view(8, 1, 6).expand(8, 2, 6).log_softmax(2),
            torch.tensor([[1, 2, 2], [3, 4, 0]], device=device),
            torch.tensor([8, 6]),
            torch.tensor([3, 2]),
        )
        return speech + sum(each(x, y, t) for each in LOSSES)

    _train(net, loss)


def optimizers(device: str) -> None:
    kinds = [
        (torch.optim.Adagrad, {}),
        (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
        (torch.optim.NAdam, {}),
        (torch.optim.RAdam, {}),
        (torch.optim.Adamax, {}),
        (torch.optim.Adadelta, {}),
        (torch.optim.Rprop, {}),
        (torch.optim.ASGD, {}),
        (torch.optim.Adafactor, {}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (torch.optim.AdamW, {"amsgrad": True, "foreach": True}),
    ]
    for kind, settings in kinds:
        torch.manual_seed(0)
        net = nn.Linear(4, 3).to(device)
        _train(
            net,
            lambda net=net: net(_randn(device, 5, 4)).square().sum(),
            optimizer=kind,
            **settings,
        )
    torch.manual_seed(0)
    net = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (net(_randn(device, 5, 4)) - 1).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


def words(device: str) -> None:
    """A table with sparse gradients, bags of words, and a sampled continuation."""
    table = nn.Embedding(20, 6, sparse=True, padding_idx=0).to(device)
    bag = nn.EmbeddingBag(20, 6, mode="max").to(device)
    ids = torch.tensor([[1, 5, 5, 0], [7, 7, 2, 3]], device=device)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (table(ids).mean(1) * bag(ids)).square().sum().backward()
        optimizer.step()
    logits = table.weight @ table.weight.T
    with torch.no_grad():
        kept = logits.topk(5)[0][:, -1:]
        probabilities = logits.masked_fill(logits < kept, float("-inf")).softmax(-1)
        torch.multinomial(probabilities, 1)
        F.gumbel_softmax(logits, hard=True)


def sparse_matrices(device: str) -> None:
    dense = _randn(device, 6, 6)
    dense = torch.where(dense > 0.5, dense, 0.0)
    x = _randn(device, 6, 3).requires_grad_()
    for held in (dense.to_sparse(), dense.to_sparse_csr()):
        (held @ x).square().sum().backward()
    a = dense.to_sparse().requires_grad_()
    torch.sparse.mm(a, x.detach()).sum().backward()
    torch.sparse.softmax(dense.to_sparse(), 1).to_dense()


def ragged(device: str) -> None:
    """Sequences of several lengths in one tensor."""
    rows = [_randn(device, n, 8) for n in (3, 5, 2)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()).to(device)
    net(x).to_padded_tensor(0.0).square().mean().backward()


def in_place(device: str) -> None:
    net = nn.Linear(6, 6).to(device)

    def loss() -> torch.Tensor:
        y = net(_randn(device, 4, 6)).clone()
        y[:, 1:3] *= 2
        y[1] = y[0].detach()
        y.masked_fill_(y > 1, 1.0).clamp_(-1).mul_(3).sub_(1)
        where = torch.tensor([0, 1, 1, 3], device=device)
        z = torch.zeros(4, 6, device=device).index_put((where,), y, accumulate=True)
        return F.hardtanh(F.leaky_relu_(z.add_(1))).square().sum() + y.tril(-1).triu(-3).sum()

    _train(net, loss)


def nothing_much(device: str) -> None:
    """Empty tensors, single numbers, dimensions of one."""
    x = torch.zeros(0, 4, device=device, requires_grad=True)
    net = nn.Linear(4, 2).to(device)
    (net(x).sum() + net(torch.ones(1, 4, device=device)).sum()).backward()
    y = torch.tensor(2.0, device=device, requires_grad=True)
    (y.sin() ** 2 + y.expand(1, 1).softmax(-1).sum()).backward()
    torch.cat([x, x]).mean(0).nan_to_num()
    torch.ones(1, device=device).var(unbiased=False)


def wide_numbers(device: str) -> None:
    """float64, integers and booleans."""
    x = _randn(device, 8, 8, dtype=torch.float64).requires_grad_()
    (torch.special.gammaln(x.abs() + 1) + torch.special.erfinv(x.tanh() * 0.9)).sum().backward()
    for name in ("i0e", "i1", "ndtri", "digamma", "log_ndtr", "sinc", "expm1", "xlog1py"):
        y = x.detach().sigmoid()
        getattr(torch.special, name)(*([y, y] if name == "xlog1py" else [y]))
    n = torch.arange(-20, 20, device=device)
    (n // 3, n % 3, n << 1, n ^ 5, n.float() // 3, torch.gcd(n, n + 4), n.clamp(-3, 3).prod())
    (n > 0).any(), (n > 0).sum(), n.to(torch.int8) * 3, n.to(torch.uint8).bitwise_not()


def generated(device: str) -> None:
    """Words one by one with kept keys, in half precision, without gradients."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(device).bfloat16().eval()
    ids = torch.arange(1, 7, device=device)[None]
    with torch.inference_mode():
        model.generate(ids, max_new_tokens=6, do_sample=True, top_k=10, pad_token_id=0)


def encoder_with_padding(device: str) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, 0.1, batch_first=True, norm_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2], device=device)

    def loss() -> torch.Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            return (
                net(_randn(device, 2, 5, 16), src_key_padding_mask=mask)[~mask]
                .float()
                .square()
                .mean()
            )

    _train(net, loss)
    net.eval()
    with torch.no_grad():
        net(_randn(device, 2, 5, 16), src_key_padding_mask=mask)


def adapted(device: str) -> None:
    """A frozen layer in half precision with a small one beside it, and averaged weights."""
    base = nn.Linear(16, 16).to(device).bfloat16().requires_grad_(False)
    small = nn.Sequential(nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)).to(device)
    mean = torch.optim.swa_utils.AveragedModel(
        small, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    x = _randn(device, 4, 16)
    _train(small, lambda: (base(x.bfloat16()).float() + small(x)).square().mean())
    mean.update_parameters(small)
    mean.update_parameters(small)


PROGRAMS: dict[str, Callable[[str], None]] = {
    made.__name__: made
    for made in (
        spectral, double_backward, checkpointed, compiled, loaded, per_sample, packed_sequences,
        graph_network, pictures, volumes, decompositions, distributions, order_statistics, losses,
        optimizers, words, sparse_matrices, ragged, in_place, nothing_much, wide_numbers, generated,
        encoder_with_padding, adapted,
    )
}  # fmt: skip
