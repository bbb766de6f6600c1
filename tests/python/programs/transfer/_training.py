# SPDX-License-Identifier: Apache-2.0
import torch, torch.nn as nn, torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

assert torch.cuda.is_available()
torch.cuda.manual_seed_all(1)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
torch.cuda.set_device(device)
torch.backends.cudnn.benchmark = True
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).cuda()
assert next(model.parameters()).is_cuda
model = model.to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scaler = GradScaler()
data = TensorDataset(torch.randn(64, 4), torch.zeros(64, dtype=torch.long))
losses = []
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for epoch in range(5):
    for x, y in DataLoader(data, batch_size=16, pin_memory=True):
        x, y = x.cuda(non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        with autocast():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) > 0
assert losses[-1] < losses[0] / 2
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    z = torch.ones(3, device="cuda") * 2
torch.cuda.current_stream().wait_stream(side)
g = torch.Generator(device="cuda").manual_seed(3)
r = torch.rand(2, device="cuda:0", generator=g)
assert isinstance(g, torch.Generator)
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert (z[None] @ z[:, None]).dtype == torch.bfloat16
assert torch.cuda.max_memory_allocated() > 0
assert torch.cuda.memory.mem_get_info() == torch.cuda.mem_get_info()
torch.save(model.state_dict(), "model.pt")
state = torch.load("model.pt", map_location="cuda:0")
assert state["0.weight"].is_cuda
assert torch.load("model.pt", map_location=torch.device("cpu"))["0.weight"].device.type == "cpu"
assert torch.cuda.FloatTensor([1.0]).is_cuda and torch.ones(1).type("torch.cuda.HalfTensor").is_cuda
assert torch.cuda.device_count() >= 1 and torch.cuda.get_device_name(device)
torch.cuda.empty_cache()
print("trained on", z.device)
