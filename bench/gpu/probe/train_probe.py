"""A small GPT on PyTorch, deterministic; prints what must not change under a preload. For experiments 1 and 2."""
import ctypes
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
begin = time.monotonic()


def stage(name, **values):
    print("@" + json.dumps({"stage": name, "at": round(time.monotonic() - begin, 3), **values}), flush=True)


try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    stage("no torch", why=str(error))
    sys.exit(3)
stage("torch", version=torch.__version__, cuda=torch.version.cuda)
if not torch.cuda.is_available():
    stage("no gpu")
    sys.exit(3)
torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
stage("device", called=torch.cuda.get_device_name(0))

D, HEADS, LAYERS, SEQ, BATCH, VOCAB = 512, 8, 4, 256, 16, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).split(D, 2))
        a = (q @ k.transpose(2, 3) * (D // HEADS) ** -0.5 + mask).softmax(-1)
        x = x + self.out((a.to(v.dtype) @ v).transpose(1, 2).reshape(b, t, D))
        return x + self.mlp(self.n2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCAB, D), nn.Parameter(torch.zeros(SEQ, D))
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(LAYERS)), nn.Linear(D, VOCAB)
        self.register_buffer("mask", torch.full((SEQ, SEQ), float("-inf")).triu(1))

    def forward(self, x):
        h = self.token(x) + self.place
        for block in self.blocks:
            h = block(h, self.mask)
        return self.head(h)


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
text = open(__file__, "rb").read() * 3
data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
stage("model")

losses, times = [], []
for step in range(40):
    at = torch.randint(0, len(data) - SEQ - 1, (BATCH,))
    x = torch.stack([data[i:i + SEQ] for i in at]).pin_memory().cuda(non_blocking=True)
    y = torch.stack([data[i + 1:i + SEQ + 1] for i in at]).pin_memory().cuda(non_blocking=True)
    torch.cuda.synchronize()
    start = time.perf_counter()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - start) * 1e3)
    losses.append(loss.item().hex())
    if step in (0, 9):
        stage(f"step {step + 1}", loss=loss.item())
free, total = torch.cuda.mem_get_info()
stage("trained", losses=losses, step_ms=round(sorted(times)[len(times) // 2], 4),
      allocated=torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved(), used=total - free)

static = torch.zeros(1 << 20, device="cuda")
graph = torch.cuda.CUDAGraph()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    static.add_(1).mul_(1.5)
torch.cuda.current_stream().wait_stream(side)
static.zero_()
with torch.cuda.graph(graph):
    static.add_(1).mul_(1.5)
for _ in range(3):
    graph.replay()
stage("graph", value=static.sum().item())
try:
    ctypes.CDLL("libcuda.so.1").probe_report()
except (OSError, AttributeError):
    pass
stage("done")
