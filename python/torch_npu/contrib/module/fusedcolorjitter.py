# SPDX-License-Identifier: Apache-2.0
"""Brightness, contrast, saturation and hue of an image, changed by one matrix and one offset."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:  # torch_npu is imported where there is no numpy: torch does without
    import numpy as np

__all__ = ["FusedColorJitter"]

# RGB as brightness Y and two colour differences I and Q, the signals of NTSC television.
_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


def _colour_matrix(hue: float, saturation: float) -> np.ndarray:
    """Turns I and Q by hue * 255 degrees and stretches them by saturation; for columns of RGB."""
    import numpy as np

    angle = math.radians(hue * 255)
    cos, sin = saturation * math.cos(angle), saturation * math.sin(angle)
    turn = np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]])
    return np.linalg.inv(_YIQ) @ turn @ _YIQ


def _range(value, name: str, centre: float, low: float, high: float) -> tuple[float, float]:
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        value = (max(centre - value, low), min(centre + value, high))
    elif not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
    if not low <= value[0] <= value[1] <= high:
        raise ValueError(f"{name} values should be between {(low, high)}")
    return float(value[0]), float(value[1])


class FusedColorJitter(nn.Module):
    """torchvision's ColorJitter as one product: for images of PIL and arrays (height, width, channels).

    Each factor is drawn by Python's `random`: from [max(0, 1 - value), 1 + value] or the range given, the hue
    from [-value, value] or its range. Arrays of floats have values from 0 to 1, others to 255.
    """

    def __init__(self, brightness=0, contrast=0, saturation=0, hue=0):
        super().__init__()
        self.brightness = _range(brightness, "brightness", 1, 0, math.inf)
        self.contrast = _range(contrast, "contrast", 1, 0, math.inf)
        self.saturation = _range(saturation, "saturation", 1, 0, math.inf)
        self.hue = _range(hue, "hue", 0, -0.5, 0.5)

    def forward(self, img):
        import numpy as np

        pixels = np.asarray(img)
        if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
            raise ValueError(
                f"expected an image of size (height, width, 1, 3 or 4), but got {pixels.shape}"
            )
        pixels = pixels.repeat(3, 2) if pixels.shape[2] == 1 else pixels[:, :, :3]
        top = 1.0 if np.issubdtype(pixels.dtype, np.floating) else 255.0
        brightness, contrast, saturation, hue = (
            random.uniform(*r) for r in (self.brightness, self.contrast, self.saturation, self.hue)
        )
        matrix = _colour_matrix(hue, saturation) * brightness * contrast
        offset = (1 - contrast) * brightness * top / 2
        found = np.clip(pixels @ matrix.T + offset, 0, top).astype(pixels.dtype)
        # An image of PIL comes back as one, without PIL being needed for arrays.
        return found if isinstance(img, np.ndarray) else _image(found)

    def extra_repr(self) -> str:
        return f"brightness={self.brightness}, contrast={self.contrast}, saturation={self.saturation}, hue={self.hue}"


def _image(pixels: np.ndarray):
    from PIL import Image

    return Image.fromarray(pixels)
