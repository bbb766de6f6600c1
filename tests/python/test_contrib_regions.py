# SPDX-License-Identifier: Apache-2.0
"""torch_npu.contrib on npu operators: attention, regions, quantised layers, against float64 and PyTorch's own."""

import random

import numpy as np
import pytest
import torch
import torch_npu
from torch import nn
from torch.nn import functional as F
from torch_npu import contrib


def close(got, wanted, tolerance=1e-5):
    torch.testing.assert_close(
        got.cpu().double(), wanted.double(), rtol=tolerance, atol=tolerance, check_dtype=False
    )


def draw(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("norm", [False, True])
def test_attention_of_bert(norm):
    hidden, mask = draw(8, 128), draw(2, 1, 4, 4, seed=1)
    weights = [draw(128, 128, seed=i) / 11 for i in (2, 3, 4)]
    biases = [draw(128, seed=i) for i in (5, 6, 7)]
    gamma, beta = draw(128, seed=8), draw(128, seed=9)
    leaves = [hidden, *weights, *biases] + ([gamma, beta] if norm else [])
    results = []
    for make in (lambda x: x.float().npu().requires_grad_(), lambda x: x.clone().requires_grad_()):
        h, *rest = [make(x) for x in leaves]
        w, b = rest[:3], rest[3:6]
        if h.device.type == "npu":
            call = (
                contrib.npu_fused_attention_with_layernorm if norm else contrib.npu_fused_attention
            )
            out = call(h, mask.float().npu(), *w, *b, *rest[6:], scale=0.125)
            out = out if norm else (out,)
        else:
            x = F.layer_norm(h, [128], *rest[6:]) if norm else h
            q, k, v = ((x @ wi + bi).view(2, 4, 2, 64).transpose(1, 2) for wi, bi in zip(w, b))
            p = torch.softmax(q @ k.mT * 0.125 + mask, -1)
            out = ((p @ v).transpose(1, 2).reshape(8, 128), *([x] if norm else []))
        grads = torch.autograd.grad([o.sin().sum() for o in out], [h, *rest])
        results.append((out, grads))
    for got, want in zip(*results, strict=True):
        for a, b in zip(got, want, strict=True):
            close(a.detach(), b.detach(), 1e-4)
    with pytest.raises(RuntimeError, match=r"keep_prob is 0.0; allowed: above 0[^$]*ERR01003"):
        contrib.npu_fused_attention(
            *[x.float().npu() for x in (hidden, mask, *weights, *biases)], keep_prob=0
        )
    with pytest.raises(ValueError, match="a multiple of 64"):
        contrib.npu_fused_attention(
            *[x.float().npu()[..., :100] for x in (hidden, mask, *weights, *biases)]
        )


def test_multiclass_nms():
    boxes = torch.tensor([[0, 0, 4, 4], [0, 0, 4, 5], [8, 8, 9, 9], [0, 0, 4, 4.5]])
    scores = torch.tensor([[0.5, 0.25, 0.9], [0.75, 0, 0.9], [0.25, 0.5, 0], [0, 0.0625, 0]])
    found, labels = contrib.npu_multiclass_nms(boxes.npu(), scores.npu(), 0.1, 0.5, 5)
    want = [[0, 0, 4, 5, 0.75], [8, 8, 9, 9, 0.5], [0, 0, 4, 4, 0.25], [8, 8, 9, 9, 0.25], [0] * 5]
    assert sorted(found.tolist()) == sorted(want) and found[:, 4].tolist() == [
        0.75,
        0.5,
        0.25,
        0.25,
        0,
    ]
    assert labels.tolist()[:2] == [0, 1] and sorted(labels.tolist()[2:4]) == [0, 1]
    factors = torch.tensor([1, 0.0, 1, 1])
    found, labels = contrib.npu_batched_multiclass_nms(
        boxes[None].npu(), scores[None].npu(), 0.1, 0.5, 2, factors[None].npu()
    )
    assert found.shape == (1, 2, 5) and found[0, 0].tolist() == [0, 0, 4, 4, 0.5]
    with pytest.raises(ValueError, match="same batch and number"):
        contrib.npu_batched_multiclass_nms(boxes[None].npu(), scores[None, :2].npu())


def test_responsible_flags():
    flags = contrib.npu_single_level_responsible_flags(
        (2, 3), torch.tensor([[10, 3, 14, 5], [0, 20, 1, 21]]).npu(), (8, 8), 2
    )
    # Centres (12, 4) and (0.5, 20.5): cells (0, 1) and, beyond the map, (1, 0).
    assert flags.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0]


def test_roi_align_of_a_plane():
    """Of a plane a + b x + c y the mean in a bin is its value in the middle."""
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    plane = (1 + 2 * x + 3 * y)[None, None].npu().requires_grad_()
    rois = torch.tensor([[0, 2.0, 3.0, 10.0, 7.0]])
    for aligned, shift in ((True, 0.5), (False, 0.0)):
        for ratio in (0, 2):
            pool = contrib.ROIAlign((2, 4), 1.0, ratio, aligned=aligned)
            got = pool(plane, rois.npu())
            want = [
                [1 + 2 * (2 + 2 * j + 1 - shift) + 3 * (3 + 2 * i + 1 - shift) for j in range(4)]
                for i in range(2)
            ]
            close(got.detach()[0, 0], torch.tensor(want))
    (grad,) = torch.autograd.grad(got.sum(), plane)
    assert grad.sum().item() == pytest.approx(8)
    with pytest.raises(ValueError, match="expected rois of size"):
        pool(plane, rois.npu()[:, :4])


def test_ps_roi_pool():
    maps = torch.arange(8.0)[None, :, None, None].expand(1, 8, 6, 6).contiguous().npu()
    rois = torch.tensor([[[0.0], [0], [0], [3], [3]]]).npu()
    pool = contrib.PSROIPool(2, 2, 1.0, 2, 2)
    assert pool(maps, rois).tolist() == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]
    with pytest.raises(ValueError, match="must be the same"):
        contrib.PSROIPool(2, 3, 1.0, 2, 2)


def test_deformable_convolution():
    """Without offsets and with factors of a half it is half a convolution; a whole pixel moves the image."""
    conv = contrib.DCNv2(4, 6, 3, stride=2, padding=1, bias=True).npu()
    x = draw(2, 4, 7, 7).float()
    plain = F.conv2d(x, conv.weight.detach().cpu(), stride=2, padding=1)
    close(conv(x.npu()).detach(), plain / 2)
    conv(x.npu()).square().sum().backward()
    assert all(p.grad is not None for p in conv.parameters())
    bare = contrib.ModulatedDeformConv(4, 6, 3, padding=1, bias=False, pack=False).npu()
    offsets = torch.zeros(2, 18, 7, 7)
    offsets[:, 1::2] = 1.0  # one pixel along x at each point of the kernel
    got = bare((x.npu(), offsets.npu(), torch.ones(2, 9, 7, 7).npu()))
    moved = F.pad(x, (0, 1))[..., 1:]
    want = F.conv2d(F.pad(moved, (1, 1, 1, 1)), bare.weight.detach().cpu())
    # The first column reads a pixel that moving cut off.
    close(got.detach()[..., 1:], want[..., 1:])


def test_multihead_attention():
    torch.manual_seed(0)
    ours = contrib.MultiheadAttention(16, 4, self_attention=True).eval()
    theirs = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(
            torch.cat([p.weight for p in (ours.q_proj, ours.k_proj, ours.v_proj)])
        )
        theirs.in_proj_bias.copy_(
            torch.cat([p.bias for p in (ours.q_proj, ours.k_proj, ours.v_proj)])
        )
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    x = draw(2, 5, 16).float()
    want = theirs(x, x, x)[0]
    got, weights = ours.npu()(x.view(10, 16).npu(), None, None, 2, 5)
    assert weights is None
    close(got.detach(), want.detach().reshape(10, 16))
    with pytest.raises(NotImplementedError, match="attn_mask not supported"):
        ours(x.view(10, 16).npu(), None, None, 2, 5, attn_mask=3)


def test_quantised_layers():
    x, w = (
        torch.randint(-9, 9, (3, 8), dtype=torch.int8),
        torch.randint(-9, 9, (5, 8), dtype=torch.int8),
    )
    bias = torch.arange(5, dtype=torch.int32)
    want = (x.double() @ w.double().T + bias) * 0.5
    for kind in (contrib.LinearQuant, contrib.LinearA8W8Quant):
        layer = kind(8, 5, output_dtype=torch.float16).npu()
        layer.weight.data, layer.bias.data = w.npu(), bias.npu()
        layer.scale.data = torch.full((5,), 0.5).npu()
        close(layer(x.npu()), want, 1e-3)
    with pytest.raises(ValueError, match=r"both torch.int32 or both torch.int8[^$]*ERR01002"):
        layer(x.npu().float())
    layer = contrib.LinearWeightQuant(8, 5, bias=False).npu()
    layer.weight.data, layer.antiquant_scale.data = (
        w.T.contiguous().npu(),
        torch.full((5,), 0.25).half().npu(),
    )
    close(layer(x.half().npu()), x.double() @ w.double().T * 0.25, 2e-3)
    conv = contrib.QuantConv2d(2, 3, 3, torch.float16, padding=1).npu()
    image, kernel = (
        torch.randint(-9, 9, (1, 2, 4, 4), dtype=torch.int8),
        torch.randint(-9, 9, (3, 2, 3, 3), dtype=torch.int8),
    )
    conv.weight.data, conv.bias.data = kernel.npu(), torch.arange(3, dtype=torch.int32).npu()
    conv.scale.data = torch.full((3,), 0.125).npu()
    want = F.conv2d(image.double(), kernel.double(), torch.arange(3.0).double(), padding=1) / 8
    close(conv(image.npu()), want, 2e-3)


def test_colour_jitter():
    image = np.random.default_rng(0).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    same = contrib.FusedColorJitter()(image)
    assert np.abs(same.astype(int) - image).max() <= 1
    grey = contrib.FusedColorJitter(saturation=(0, 0))(image / 255.0)
    assert np.allclose(grey, (image / 255.0) @ [[0.299] * 3, [0.587] * 3, [0.114] * 3], atol=2e-3)
    random.seed(1)
    jitter = contrib.FusedColorJitter(brightness=0.5, contrast=0.5, saturation=0.5, hue=0.1)
    one, two = jitter(image), jitter(image)
    assert (one != two).any() and one.dtype == np.uint8
    bright = contrib.FusedColorJitter(brightness=(0.5, 0.5))(image / 255.0)
    assert np.allclose(bright, image / 510.0, atol=1e-6)
    with pytest.raises(ValueError, match="hue values should be between"):
        contrib.FusedColorJitter(hue=(-1, 0))
    with pytest.raises(ValueError, match="expected an image of size"):
        jitter(image[0])


def test_masks_of_dropout():
    mask = torch_npu.npu_dropout_gen_mask([100, 130], 0.25, device="npu")
    assert mask.dtype == torch.uint8 and mask.numel() == -(-13000 // 128) * 16
    bits = ((mask.cpu()[:, None] >> torch.arange(8)) & 1).flatten()
    assert 0.72 < bits[:13000].float().mean() < 0.78 and not bits[13000:].any()
    ones = torch.ones(100, 130).npu()
    kept, _ = torch_npu.npu_dropout_do_mask(ones, mask, 0.25)
    close(kept.flatten(), bits[:13000] / 0.75)

    def made(seed, offset):
        return torch_npu._npu_dropout_gen_mask(ones, [100, 130], 0.25, seed, offset)

    assert torch.equal(made(3, 4), made(3, 4))
    assert not torch.equal(made(3, 4), made(3, 5)) and not torch.equal(made(3, 4), made(4, 4))
    with pytest.raises(RuntimeError, match="ERR0100"):
        torch_npu.npu_dropout_gen_mask([4], 1.5)
