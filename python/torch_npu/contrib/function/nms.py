# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression for every class of an image, or of a batch of images."""

import torch
from torch import Tensor

import torch_npu

__all__ = ["npu_batched_multiclass_nms", "npu_multiclass_nms"]


def npu_batched_multiclass_nms(
    multi_bboxes: Tensor, multi_scores: Tensor, score_thr: float = 0.05, nms_thr: float = 0.45,
    max_num: int = 50, score_factors: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Boxes with scores (batch, max_num, 5) and classes (batch, max_num), best first, then zeros.

    Boxes are (batch, n, 4) or (batch, n, classes, 4); the last column of the scores
    (batch, n, classes + 1) is the background, which does not count.
    """
    if multi_scores.dim() != 3 or multi_bboxes.shape[:2] != multi_scores.shape[:2]:
        raise ValueError(
            f"expected boxes and scores of the same batch and number, but got {tuple(multi_bboxes.shape)} "
            f"and {tuple(multi_scores.shape)}"
        )
    scores = multi_scores[..., :-1]
    if score_factors is not None:
        scores = scores * score_factors[..., None]
    boxes = multi_bboxes.unsqueeze(2) if multi_bboxes.dim() == 3 else multi_bboxes
    boxes, scores, classes, _ = torch_npu.npu_batch_nms(
        boxes.half(), scores.half(), score_thr, nms_thr, max_num, max_num
    )
    return torch.cat([boxes, scores[..., None]], -1), classes


def npu_multiclass_nms(
    multi_bboxes: Tensor, multi_scores: Tensor, score_thr: float = 0.05, nms_thr: float = 0.45,
    max_num: int = 50, score_factors: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """npu_batched_multiclass_nms of one image: boxes (max_num, 5), classes (max_num)."""
    if multi_bboxes.dim() == 2 and multi_bboxes.size(1) != 4:
        multi_bboxes = multi_bboxes.unflatten(1, (-1, 4))
    factors = None if score_factors is None else score_factors[None]
    found = npu_batched_multiclass_nms(
        multi_bboxes[None], multi_scores[None], score_thr, nms_thr, max_num, factors
    )
    return found[0][0], found[1][0]
