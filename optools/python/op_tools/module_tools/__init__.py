# SPDX-License-Identifier: Apache-2.0
"""Which layer differs: inputs, outputs and gradients of every module, dumped and compared.

model = CompLayerAcc(model, is_dump_benchmark=True, data_path="dump").insert_hook()
train_step(model)                                   # once where results are right
model = CompLayerAcc(model, is_dump_benchmark=False, data_path="dump").insert_hook()
train_step(model)                                   # once where they are not
compare_accuracy("dump")
"""

from op_tools.module_tools.compare import compare_accuracy, metrics
from op_tools.module_tools.dump import CompLayerAcc

__all__ = ["CompLayerAcc", "compare_accuracy", "metrics"]
