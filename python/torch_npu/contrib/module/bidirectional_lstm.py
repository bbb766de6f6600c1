# SPDX-License-Identifier: Apache-2.0
"""An LSTM in each direction."""

import torch
from torch import Tensor, nn

__all__ = ["BiLSTM"]


class BiLSTM(nn.Module):
    """nn.LSTM(bidirectional=True) as two modules: [t, b, inputSize] to [t, b, 2 * hiddenSize]."""

    def __init__(self, inputSize: int, hiddenSize: int):
        super().__init__()
        self.fw_rnn = nn.LSTM(inputSize, hiddenSize)
        self.bw_rnn = nn.LSTM(inputSize, hiddenSize)

    def forward(self, inputs: Tensor) -> Tensor:
        forward, _ = self.fw_rnn(inputs)
        backward, _ = self.bw_rnn(inputs.flip(0))
        return torch.cat([forward, backward.flip(0)], dim=2)
