# SPDX-License-Identifier: Apache-2.0
import json, torch, torch_npu
answers = {}
for word, half in {"float16": torch.float16, "bfloat16": torch.bfloat16}.items():
    a, b = torch.ones(64, 48, dtype=half), torch.ones(48, 40, dtype=half)
    a[::2] = 0
    wanted = (a.double() @ b.double()).tolist()
    product = torch.sparse.mm(a.npu().to_sparse(), b.npu())
    answers[word] = [str(product.dtype), product.tolist() == wanted]
    for wrong in (torch.float32, torch.float64, torch.int32):
        try:
            torch.mm(a.npu(), b.npu(), out=torch.empty(64, 40, dtype=wrong, device="npu"))
            answers[word].append("accepted")
        except RuntimeError as error:
            answers[word].append(str(error))
print(json.dumps(answers))
