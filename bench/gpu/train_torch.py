"""A small GPT with AdamW and bf16 autocast on PyTorch, deterministic; prints a loss per step and a digest of the weights at the
end. Knows nothing of snapshots. usage: train_torch.py [--steps N] [--pace-ms N]"""
import argparse
import hashlib
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

WIDTH, HEADS, LAYERS, LENGTH, BATCH = 256, 8, 4, 128, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.before(x)).split(WIDTH, 2))
        attention = (q @ k.transpose(2, 3) * (WIDTH // HEADS) ** -0.5 + mask).softmax(-1).to(v.dtype)
        x = x + self.out((attention @ v).transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.after(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(256, WIDTH), nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, 256)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), float("-inf")).triu(1))

    def forward(self, x):
        h = self.token(x) + self.place
        for block in self.blocks:
            h = block(h, self.mask)
        return self.head(h)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--pace-ms", type=float, default=15)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    with open(__file__, "rb") as source:
        data = torch.frombuffer(bytearray(source.read() * 4), dtype=torch.uint8).long()
    for step in range(options.steps):
        at = torch.randint(0, len(data) - LENGTH - 1, (BATCH,))
        x = torch.stack([data[i:i + LENGTH] for i in at]).pin_memory().cuda(non_blocking=True)
        y = torch.stack([data[i + 1:i + LENGTH + 1] for i in at]).pin_memory().cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step + 1} loss {loss.item().hex()}", flush=True)
        time.sleep(options.pace_ms / 1e3)
    content = hashlib.sha256()
    for value in model.state_dict().values():
        content.update(value.cpu().numpy().tobytes())
    print(f"digest {content.hexdigest()[:32]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
