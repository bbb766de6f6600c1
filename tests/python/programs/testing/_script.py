# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu, numpy as np
from torch_npu.testing.testcase import TestCase, run_tests

class TestSeeds(TestCase):
    drawn = []
    def draw(self):
        self.drawn.append((torch.rand(1).item(), torch.rand(1, device="npu").item(),
                           np.random.rand()))
    def test_one(self):
        self.draw()
    def test_two(self):
        self.draw()
        assert len(set(self.drawn)) == 1, self.drawn
    def test_wrong(self):
        self.assertRtolEqual(torch.ones(1), torch.zeros(1))

run_tests()
