# SPDX-License-Identifier: Apache-2.0
"""torch_npu.contrib's functions and modules, against what they mean."""

import numpy as np
import pytest
import torch
from torch_npu import contrib
from torch_npu.contrib import function, module


def close(got, wanted, **kwargs):
    torch.testing.assert_close(got.cpu(), torch.as_tensor(wanted), check_dtype=False, **kwargs)


def test_names_are_found_in_contrib():
    for folder in (function, module):
        for name in folder.__all__:
            assert getattr(contrib, name) is getattr(folder, name)
    assert not hasattr(contrib, "nonsense")


def test_small_functions():
    x, y = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    close(function.roll(x.npu(), (1, 2), (0, 2)), torch.roll(x, (1, 2), (0, 2)))
    close(function.matmul_transpose(x.npu(), y.npu()), x @ y.mT)
    close(function.npu_fast_condition_index_put(x.npu(), x.npu() < 0, 3.0), x.where(x >= 0, 3.0))
    with pytest.raises(ValueError, match="expected a bool tensor"):
        function.npu_fast_condition_index_put(x.npu(), x.npu(), 3.0)
    scores, mask = torch.randn(2, 4, 4), torch.randn(2, 4, 4)
    wanted = torch.softmax(mask + scores / 8, -1)
    dropped = function.fuse_add_softmax_dropout(True, None, mask.npu(), scores.npu(), 64, 0.0)
    close(dropped, wanted)
    evaluated = function.fuse_add_softmax_dropout(
        False, torch.nn.Identity(), mask.npu(), scores.npu(), 64
    )
    close(evaluated, wanted)
    assert torch.nn.functional.dropout_with_byte_mask(x.npu(), 1.0).abs().sum() == 0
    assert torch.nn.DropoutWithByteMask(1.0)(x.npu()).abs().sum() == 0


def overlap(a, b):
    """Intersection over union of two boxes by corners, one at a time."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    return width * height / (sum(areas) - width * height)


def some_boxes(count, seed):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 50, (count, 2))
    return np.concatenate([low, low + rng.uniform(5, 50, (count, 2))], axis=1)


def test_iou():
    a, b = some_boxes(3, 1), some_boxes(4, 2)
    wanted = [[overlap(x, y) for y in b] for x in a]
    close(function.npu_iou(torch.tensor(a).npu(), torch.tensor(b).npu()), wanted)
    scaled = function.npu_iou(
        torch.tensor(a / 100).npu(), torch.tensor(b / 100).npu(), "iou", True, 100.0
    )
    close(scaled, wanted)
    with pytest.raises(ValueError, match="mode"):
        function.npu_iou(torch.tensor(a), torch.tensor(b), mode="giou")


def middles(boxes):
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], axis=1)


def test_relatives_of_iou():
    a, b = some_boxes(4, 3), some_boxes(4, 4)
    plain = np.array([overlap(x, y) for x, y in zip(a, b)])
    low, high = np.minimum(a[:, :2], b[:, :2]), np.maximum(a[:, 2:], b[:, 2:])
    hull = (high - low).prod(1)
    areas = [(x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b)]
    union = (areas[0] + areas[1]) / (1 + plain)
    ta, tb = (torch.tensor(middles(x)).npu().requires_grad_() for x in (a, b))
    giou = function.npu_giou(ta, tb)
    close(giou.detach()[:, 0], plain - (hull - union) / hull)
    giou.sum().backward()
    assert ta.grad.abs().sum() > 0
    far = ((a[:, :2] + a[:, 2:] - b[:, :2] - b[:, 2:]) ** 2).sum(1) / 4
    diou = plain - far / ((high - low) ** 2).sum(1)
    close(function.npu_diou(ta.detach().t(), tb.detach().t())[0], diou)
    close(function.npu_diou(ta.detach().t(), tb.detach().t(), is_cross=True).diag(), diou)
    angles = [np.arctan((x[:, 2] - x[:, 0]) / (x[:, 3] - x[:, 1])) for x in (a, b)]
    shape = 4 / np.pi**2 * (angles[0] - angles[1]) ** 2
    ciou = diou - shape**2 / (1 - plain + shape)
    close(function.npu_ciou(ta.detach().t(), tb.detach().t())[0], ciou)
    with pytest.raises(ValueError, match="as many boxes"):
        function.npu_diou(ta.detach().t(), tb.detach().t()[:, :2])


def test_box_coders():
    a, b = some_boxes(5, 5), some_boxes(5, 6)
    ta, tb = torch.tensor(a).float().npu(), torch.tensor(b).float().npu()
    deltas = function.npu_bbox_coder_encode_xyxy2xywh(ta, tb)
    back = function.npu_bbox_coder_decode_xywh2xyxy(ta, deltas, max_shape=(1000, 1000))
    close(back, tb.cpu(), rtol=1e-4, atol=1e-3)
    boxes = torch.tensor([[1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0]]).npu()
    wanted = torch.tensor([[5.0, 6.0, 7.0, 8.0], [7.0, 8.0, 9.0, 6.0]]).npu()
    got = function.npu_bbox_coder_encode_xyxy2xywh(boxes, wanted)
    close(got, [[4 / 3, 4 / 3, 0, 0], [4 / 3, 2 / 3, 0, np.nan]], equal_nan=True)
    clipped = function.npu_bbox_coder_decode_xywh2xyxy(ta, deltas * 100, max_shape=(40, 30))
    assert clipped.min() >= 0 and clipped[:, 0::2].max() <= 29 and clipped[:, 1::2].max() <= 39
    yolo = function.npu_bbox_coder_encode_yolo(ta, ta, torch.full((5,), 8.0).npu())
    close(yolo, [[0.5, 0.5, 0.0, 0.0]] * 5)
    with pytest.raises(ValueError, match=r"size \[n, 4\]"):
        function.npu_bbox_coder_encode_xyxy2xywh(ta[:, :3], tb)


def test_modules():
    x = torch.randn(4, 6, 8, 8)
    for name, wanted in (("Mish", torch.nn.Mish()), ("SiLU", torch.nn.SiLU())):
        close(getattr(module, name)()(x.npu()), wanted(x))
    close(module.Swish()(x.npu()), x * torch.sigmoid(x))
    first, second = module.ChannelShuffle(12)(x.npu(), x.npu() + 1)
    close(first, torch.stack([x, x + 1], 2).flatten(1, 2)[:, :6])
    close(second, torch.stack([x, x + 1], 2).flatten(1, 2)[:, 6:])
    mixed = module.ChannelShuffle(12, 3, split_shuffle=False)(x.npu(), x.npu())
    close(mixed, torch.nn.functional.channel_shuffle(torch.cat([x, x], 1), 3))
    focus = module.Focus(6, 5).npu()
    assert focus(x.npu()).shape == (4, 5, 4, 4)
    parts = module.focus.fast_slice(x.npu())
    close(parts[1], x[..., 1::2, ::2])
    norm, plain = module.FastBatchNorm2d(6).npu(), torch.nn.BatchNorm2d(6)
    close(norm(x.npu()).detach(), plain(x).detach(), rtol=1e-4, atol=1e-5)
    assert norm.num_batches_tracked.dtype == torch.int32 and norm.num_batches_tracked.item() == 1


def test_modules_that_drop():
    x = torch.ones(200, 3, device="npu")
    drop = module.NpuDropPath(0.5)
    out = drop(x)
    kept = out[:, 0] != 0
    assert 50 < int(kept.sum()) < 150 and torch.equal(out[kept], torch.full_like(out[kept], 2))
    assert torch.equal(drop.eval()(x), x) and torch.equal(module.NpuDropPath(0)(x), x)
    for name in ("NpuFairseqDropout", "NpuCachedDropout", "NpuPreGenDropout"):
        kind = getattr(module, name)
        kind.enable_dropout_ensemble(torch.nn.Linear(2, 2))
        layer = kind(1.0, "attention")
        assert layer(x).sum() == 0 and torch.equal(layer.eval()(x), x)
        layer.make_generation_fast_("", retain_dropout=True, retain_dropout_modules=["attention"])
        assert layer(x).sum() == 0


def test_bilstm_and_smooth_cross_entropy():
    torch.manual_seed(0)
    mine = module.BiLSTM(8, 4)
    theirs = torch.nn.LSTM(8, 4, bidirectional=True)
    for name, parameter in theirs.named_parameters():
        source = mine.bw_rnn if name.endswith("_reverse") else mine.fw_rnn
        parameter.data.copy_(getattr(source, name.removesuffix("_reverse")))
    x = torch.randn(5, 2, 8)
    close(mine.npu()(x.npu()).detach(), theirs(x)[0].detach(), rtol=1e-4, atol=1e-5)
    scores, target = torch.randn(6, 10), torch.randint(0, 10, (6,))
    for factor in (0.0, 0.1):
        loss = module.LabelSmoothingCrossEntropy(10, factor)(scores.npu(), target.float().npu())
        # PyTorch's smoothing gives the target a share of the rest as well.
        wanted = torch.nn.functional.cross_entropy(scores, target, label_smoothing=factor * 10 / 9)
        close(loss, wanted)


def test_prefetcher():
    batches = [(torch.full((2,), float(i)), torch.tensor([i])) for i in range(3)]
    loader = module.Prefetcher(batches)
    seen = []
    while (batch := loader.next())[0] is not None:
        assert batch[0].device.type == "npu" and batch[1].device.type == "npu"
        seen.append(int(batch[1]))
    assert seen == [0, 1, 2] and loader.next() == (None, None)
