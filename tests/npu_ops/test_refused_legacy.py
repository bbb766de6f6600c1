# SPDX-License-Identifier: Apache-2.0
"""What RoPE caches, boxes, images, recurrent networks and samplers refuse; nothing is written then."""

import sys
import types

import pytest
import torch
import torch_npu
from table import DEVICE
from torch._subclasses.fake_tensor import FakeTensorMode


def x(*size, dtype=torch.float32):
    return torch.ones(*size, dtype=dtype, device=DEVICE)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def crop(images, boxes=(0.0, 0.0, 1.0, 1.0), index=(0,), size=(2, 2), **rest):
    return torch_npu.crop_and_resize(images, boxes, index, size, **rest)


def assign(**changes):
    call = {
        "input": x(3), "overlaps": x(2, 3), "box_responsible_flags": x(3, dtype=torch.uint8),
        "max_overlaps": x(3), "argmax_overlaps": ints(0, 1, 0), "gt_max_overlaps": x(2),
        "gt_argmax_overlaps": ints(0, 2), "num_gts": 2, "pos_iou_thr": 0.5, "min_pos_iou": 0.1,
        "gt_max_assign_all": False,
    }  # fmt: skip
    return torch_npu.npu_grid_assign_positive(*{**call, **changes}.values())


def lstm(weight=(7, 16), state=(1, 2, 4)):
    flags = (True, 1, 0.0, True, False, False, False, False)
    states = x(*state), x(*state)
    return torch_npu.npu_lstm(x(5, 2, 3), x(*weight), x(16), x(5, 2, 4), *states, *flags)


def sample(**changes):
    call = {"logits": x(2, 5), "top_k": ints(1, 2), "top_p": x(2), **changes}
    return torch_npu.npu_top_k_top_p_sample(**call)


YOLO = torch.ops.npu.npu_yolo_boxes_encode
CASES = [
    (lambda: YOLO(x(0, 4), x(2, 4), ints(1, 1)), "Non-empty 2D anchor_boxes tensor expected but got a tensor with sizes [0, 4]"),
    (lambda: YOLO(x(2, 4), x(8), ints(1, 1)), "Non-empty 2D gt_bboxes tensor expected but got a tensor with sizes [8]"),
    (lambda: YOLO(x(2, 4), x(2, 4), x(2, 1)), "Non-empty 1D stride tensor expected but got a tensor with sizes [2, 1]"),
    (lambda: YOLO(x(2, 4), x(2, 4), ints(1, 1, 1)), "stride's length should be equal gt_bboxes' num, but got stride length 3"),
    (lambda: YOLO(x(2, 4), x(2, 4), x(2)), "int32 strdie tensor expected but got a tensor with dtype: torch.float32"),
    (lambda: crop(x(1, 2, 3, 3), None), "[boxes] should be mandatory"),
    (lambda: crop(x(2, 3, 3)), "input x dim must be 4, but got 3"),
    (lambda: crop(x(1, 2, 3, 3), size=(2,)), "crop_size size must be 2"),
    (lambda: crop(x(1, 2, 3, 3), index=(1,)), "box_index is [1]; allowed: 0 to 0"),
    (lambda: crop(x(1, 2, 3, 3), method="cubic"), "method is cubic; allowed: bilinear, nearest, bilinear_v2"),
    (lambda: torch_npu.decode_jpeg(x(9, dtype=torch.uint8), [4, 4]), "image_shape size must be 3, but got [4, 4]"),
    (lambda: torch_npu.decode_jpeg(x(9), [4, 4, 3]), "the input is torch.float32 [9]"),
    (lambda: assign(gt_argmax_overlaps=ints(0, 3)), "gt_argmax_overlaps holds numbers from 0 to 3; allowed: 0 to 2"),
    (lambda: assign(overlaps=x(3, 2)), "overlaps has shape [3, 2]; it must be [num_gts, boxes], [2, 3]"),
    (lambda: torch_npu.npu_rotated_iou(x(1, 2, 5), x(1, 3, 5), is_cross=False), "2 boxes and 3 query_boxes"),
    (lambda: torch_npu.npu_rotated_overlaps(x(1, 5, 2), x(1, 3, 5)), "self has shape [1, 5, 2]; allowed: (1, n, 5)"),
    (lambda: torch_npu.npu_rotated_box_encode(x(1, 5, 2), x(1, 5, 3), x(5)), "gt_bboxes [1, 5, 3]"),
    (lambda: torch_npu.npu_nms_rotated(x(2, 5), x(3), 0.5), "scores [3]"),
    (lambda: lstm(weight=(8, 16)), "weight has shape [8, 16]; input [5, 2, 3] and a state of 4 need [7, 16]"),
    (lambda: lstm(state=(1, 3, 4)), "a state has shape [1, 3, 4]; the input needs (1, 2, 4)"),
    (lambda: sample(top_k=ints(1)), "top_k has shape [1]; it must be [2]"),
    (lambda: sample(post_sample="best"), "post_sample is best; allowed: None, qSample, multiNomial"),
    (lambda: sample(ks_max=2000), "ks_max is 2000; allowed: 1 to 1024"),
    (lambda: torch_npu.npu_stride_add(x(1, 16), x(1, 16), -1, 0, 1), "offset1 is -1"),
    (lambda: torch_npu.npu_random_choice_with_mask(x(3)), "x is torch.float32; allowed: torch.bool"),
    (lambda: torch_npu.npu_sub_sample(ints(1, 0), 2, 1.5), "positive_fraction 1.5"),
]  # fmt: skip


@pytest.mark.parametrize("call, text", CASES, ids=[text[:40] for _, text in CASES])
def test_refused(call, text):
    with pytest.raises(RuntimeError) as caught:
        call()
    assert text in str(caught.value) and "ERR0100" in str(caught.value)


@pytest.mark.parametrize(
    "mode, indices, text",
    [
        ("contiguous", (0, 5), "indices holds numbers from 0 to 5; allowed: 0 to 4"),
        ("contiguous", (-1, 0), "indices holds numbers from -1 to 0; allowed: 0 to 4"),
        ("page", (0, 1, 2, 3, 4, 21), "indices holds numbers from 0 to 21; allowed: -1 to 20"),
        ("page", (0, 1), "with cache_mode page it must be [6]"),
        ("ring", (0, 1), "cache_mode is ring; allowed: contiguous, page"),
    ],
)
def test_rope_cache_refuses_rows_outside(mode, indices, text):
    caches = [torch.zeros(3, 7, 1, 4, dtype=torch.int8, device=DEVICE) for _ in range(2)]
    with pytest.raises(RuntimeError) as caught:
        torch_npu.npu_rope_quant_kvcache(
            x(2, 3, 16), x(2, 3, 1, 4), x(2, 3, 1, 4), *caches, ints(*indices), x(4), x(4),
            [8, 4, 4], cache_mode=mode,
        )  # fmt: skip
    assert text in str(caught.value)
    assert not any(c.any() for c in caches)


def test_qkv_cache_refuses_slots_outside():
    outs = [torch.zeros(size, device=DEVICE) for size in ((2, 16), (2, 1, 4, 16), (2, 1, 4, 16))]
    with pytest.raises(RuntimeError, match="index holds numbers from 0 to 8; allowed: -1 to 7"):
        torch_npu.npu_qkv_rms_norm_rope_cache(
            x(2, 48), x(16), x(16), x(2, 16), x(2, 16), ints(0, 8), *outs, [1, 2, 3, 16], [1, 1, 1]
        )
    assert not any(t.any() for t in outs)


def test_advance_step_refuses_pages_outside():
    tokens, positions, slots = ints(1, 2), ints(3, 4), ints(5, 6)
    lengths = ints(1, 9)
    with pytest.raises(RuntimeError, match="seq_lens holds numbers from 1 to 9; allowed: 0 to 7"):
        torch_npu.npu_advance_step_flashattn(
            tokens, ints(7, 8), positions, lengths, slots, ints(0, 1).view(2, 1), 2, 2, 4
        )
    assert [t.tolist() for t in (tokens, positions, lengths, slots)] == [[1, 2], [3, 4], [1, 9], [5, 6]]  # fmt: skip


def test_nms_rotated_cannot_be_traced():
    with FakeTensorMode(), pytest.raises(RuntimeError, match="depends on values"):
        torch.ops.npu.npu_nms_rotated(torch.ones(2, 5, device=DEVICE), torch.ones(2, device=DEVICE), 0.5)  # fmt: skip


# ---- the decoder is torchvision's
JPEG = torch.arange(9, dtype=torch.uint8)


def test_decode_jpeg_needs_torchvision(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.io", None)
    with pytest.raises(NotImplementedError, match=r"(?s)install torchvision.*ERR01007"):
        torch_npu.decode_jpeg(JPEG.to(DEVICE), [2, 4, 3])


@pytest.mark.parametrize("channels, count, mode", [(3, 3, "rgb"), (1, 1, "gray"), (0, 3, "rgb")])
def test_decode_jpeg_calls_torchvision(monkeypatch, channels, count, mode):
    """A stand-in for torchvision.io: which bytes and mode it gets, and what becomes of the image."""
    seen = []

    def decode(data, mode):
        seen.append((data, mode))
        return torch.arange(8 * count, dtype=torch.uint8).view(count, 2, 4)

    io = types.ModuleType("torchvision.io")
    io.decode_jpeg, io.ImageReadMode = decode, types.SimpleNamespace(GRAY="gray", RGB="rgb")
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.io", io)
    image = torch_npu.decode_jpeg(JPEG.to(DEVICE), [2, 4, 3], channels)
    assert image.device.type == DEVICE and image.dtype == torch.uint8
    assert torch.equal(image.cpu(), torch.arange(8 * count, dtype=torch.uint8).view(count, 2, 4))
    ((data, asked),) = seen
    assert torch.equal(data, JPEG) and asked == mode
    with pytest.raises(
        RuntimeError, match=r"image_shape is \[3, 4, 3\], but the image has the size"
    ):
        torch_npu.decode_jpeg(JPEG.to(DEVICE), [3, 4, 3], channels)
