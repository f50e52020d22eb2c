"""A small GPT with AdamW and bf16 autocast on PyTorch, deterministic; prints "step N loss HEX" for each step and a digest of the
weights at the end. Knows nothing of snapshots.
usage: train_torch.py [--steps N] [--pace-ms N] [--width N] [--layers N] [--compile] [--times FILE] [--compare torch.save|async_save --at N --to DIR]

Without a GPU it trains on the CPU, for rehearsals. --times writes the seconds of each step. --compare takes one checkpoint of
its own at step N in the way named and writes its times to FILE.json beside --times: what the same job costs with PyTorch's means."""
import argparse
import hashlib
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

HEADS, LENGTH, BATCH = 8, 128, 16


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        b, t, width = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.before(x)).split(width, 2))
        attention = (q @ k.transpose(2, 3) * (width // HEADS) ** -0.5 + mask).softmax(-1).to(v.dtype)
        x = x + self.out((attention @ v).transpose(1, 2).reshape(b, t, width))
        return x + self.mlp(self.after(x))


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.token, self.place = nn.Embedding(256, width), nn.Parameter(torch.zeros(LENGTH, width))
        self.blocks, self.head = nn.ModuleList(Block(width) for _ in range(layers)), nn.Linear(width, 256)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), float("-inf")).triu(1))

    def forward(self, x):
        h = self.token(x) + self.place
        for block in self.blocks:
            h = block(h, self.mask)
        return self.head(h)


class Own:
    """One checkpoint with PyTorch's own means, and what it cost."""

    def __init__(self, options):
        self.options, self.future, self.figures = options, None, {}

    def take(self, model, optimizer):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        self.begin = time.perf_counter()
        if self.options.compare == "torch.save":
            torch.save(state, os.path.join(self.options.to, "state.pt"))
        else:
            import torch.distributed.checkpoint as dcp
            try:
                self.future = dcp.async_save(state, checkpoint_id=os.path.join(self.options.to, "dcp"))
            except Exception:  # noqa: BLE001: older versions want a process group even for one process
                import torch.distributed as dist
                dist.init_process_group("gloo", init_method=f"file://{self.options.to}/group", rank=0, world_size=1)
                self.begin = time.perf_counter()
                self.future = dcp.async_save(state, checkpoint_id=os.path.join(self.options.to, "dcp"))
        self.figures["stall_seconds"] = time.perf_counter() - self.begin
        if self.future is None:
            self.figures["durable_seconds"] = self.figures["stall_seconds"]

    def look(self, step):
        if self.future is not None and self.future.done():
            self.future.result()
            self.figures["durable_seconds"], self.figures["steps_meanwhile"] = time.perf_counter() - self.begin, step - self.options.at
            self.future = None

    def finish(self):
        if self.future is not None:
            self.future.result()
            self.figures["durable_seconds"] = time.perf_counter() - self.begin
        size = sum(os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(self.options.to) for name in names)
        self.figures["stored_bytes"] = size
        return self.figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--pace-ms", type=float, default=15)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--compile", action="store_true", help="train torch.compile(model)")
    parser.add_argument("--times")
    parser.add_argument("--compare", choices=["torch.save", "async_save"])
    parser.add_argument("--at", type=int, default=10)
    parser.add_argument("--to")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="default: the GPU when there is one")
    options = parser.parse_args()
    where = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    if where == "cpu":
        torch.set_num_threads(1)
    model = Model(options.width, options.layers).to(where)
    if options.compile:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=where == "cuda")
    with open(__file__, "rb") as source:
        data = torch.frombuffer(bytearray(source.read() * 2), dtype=torch.uint8).long()
    own = Own(options) if options.compare else None
    times = []

    def batch(begin, at):
        rows = torch.stack([data[i + begin:i + begin + LENGTH] for i in at])
        return rows.pin_memory().cuda(non_blocking=True) if where == "cuda" else rows

    for step in range(1, options.steps + 1):
        begin = time.perf_counter()
        at = torch.randint(0, len(data) - LENGTH - 1, (BATCH,))
        x, y = batch(0, at), batch(1, at)
        with torch.autocast(where, dtype=torch.bfloat16, enabled=where == "cuda"):
            loss = F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item().hex()}", flush=True)
        times.append(time.perf_counter() - begin)
        if own:
            if step == options.at:
                own.take(model, optimizer)
            own.look(step)
        time.sleep(options.pace_ms / 1e3)
    content = hashlib.sha256()
    for value in model.state_dict().values():
        content.update(value.cpu().numpy().tobytes())
    print(f"digest {content.hexdigest()[:32]}", flush=True)
    if options.times:
        figures = {"seconds": times, "device": where, "parameters": sum(p.numel() for p in model.parameters())}
        if where == "cuda":
            free, total = torch.cuda.mem_get_info()
            figures |= {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(),
                        "used": total - free}
        if own:
            figures["own"] = own.finish()
        with open(options.times, "w") as sink:
            json.dump(figures, sink)


if __name__ == "__main__":
    sys.exit(main())
