#!/usr/bin/env python3
"""Trains a small GPT in PyTorch, as one does: AdamW, clipping, warm-up and cosine, dropout, gradient accumulation, a data
loader with workers and pinned memory, mixed precision, CUDA graphs, checkpoint files of its own. It knows nothing of gpuckpt.

    python examples/train_gpt.py                                                        on a GPU
    gpuckpt run --store DIR -- python examples/train_gpt.py                             on a GPU, to be snapshotted
    gpuckpt run --sim=torch --store DIR -- python examples/train_gpt.py --log train.log on the simulated one

Prints the loss of every step exactly, and a digest of all weights and of the optimizer's state at the end.
"""
import argparse
import hashlib
import math
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    """Every stretch of `length` characters of a text, and the same one character later."""

    def __init__(self, text, length):
        self.text, self.length = torch.tensor(list(text), dtype=torch.long), length

    def __len__(self):
        return len(self.text) - self.length

    def __getitem__(self, i):
        window = self.text[i:i + self.length + 1]
        return window[:-1], window[1:]


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.project_in, self.project_out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.project_in(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.project_out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, characters, length, width, heads, layers, dropout):
        super().__init__()
        self.token, self.place = nn.Embedding(characters, width), nn.Embedding(length, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters, bias=False)
        self.head.weight = self.token.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x):
        h = self.drop(self.token(x) + self.place(torch.arange(x.shape[1], device=x.device)))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def rate_factor(step, steps, warmup=10):
    """Linear warm-up, then a cosine down to a tenth."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, steps - warmup))))


def digest(model, optimizer):
    content = hashlib.sha256()
    for tensor in model.state_dict().values():
        content.update(tensor.cpu().numpy().tobytes())
    for state in optimizer.state_dict()["state"].values():
        for name in sorted(state):
            content.update(state[name].cpu().numpy().tobytes())
    return content.hexdigest()[:32]


def save(path, model, optimizer, schedule, step):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "step": step},
               path + ".new")
    os.replace(path + ".new", path)


def load(path, model, optimizer, schedule, device):
    """Returns the step that the file was saved after."""
    saved = torch.load(path, map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    return saved["step"]


def forever(loader):
    while True:
        yield from loader


def copied(batches, device):
    """Each batch on the device."""
    for batch in batches:
        yield [t.to(device, non_blocking=True) for t in batch]


def copied_ahead(batches, device):
    """The same; a stream of its own copies the next batch while this one is computed with."""
    side = torch.cuda.Stream(device)

    def begin():
        with torch.cuda.stream(side):
            return [t.to(device, non_blocking=True) for t in next(batches)], side.record_event()

    following = begin()
    while True:
        batch, arrived = following
        torch.cuda.current_stream().wait_event(arrived)
        for t in batch:
            t.record_stream(torch.cuda.current_stream())
        following = begin()
        yield batch


def captured(compute, batch):
    """`compute` as a CUDA graph: called with a batch it copies that to where the graph reads, and launches the graph."""
    read = [t.clone() for t in batch]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is allocated or compiled at first
        for _ in range(2):
            compute(*read)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute(*read)

    def launch(*batch):
        for target, t in zip(read, batch):
            target.copy_(t, non_blocking=True)
        graph.replay()
        return result

    return launch


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2, help="batches whose gradients make one step")
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2, help="processes of the data loader")
    precision = parser.add_mutually_exclusive_group()
    precision.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    precision.add_argument("--fp16", action="store_true", help="autocast to float16, with a scaled loss")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--mode", help="of torch.compile, such as reduce-overhead")
    parser.add_argument("--graph", action="store_true", help="forward and backward as one CUDA graph, begun with the second batch")
    parser.add_argument("--ahead", action="store_true", help="copy the next batch by a stream of its own")
    parser.add_argument("--memory", action="store_true", help="log what the allocator has, too")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", help="file for a checkpoint of its own, every --save-every steps")
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--resume", help="begin from this checkpoint")
    parser.add_argument("--pace-ms", type=float, default=0, help="wait at least this long from step to step")
    parser.add_argument("--log", help="write the log there instead of to standard output")
    return parser.parse_args()


def main():
    options = read_options()
    torch.manual_seed(options.seed)
    with open(options.text, "rb") as file:
        data = file.read()
    letters = sorted(set(data))
    number = {letter: i for i, letter in enumerate(letters)}
    windows = Windows([number[letter] for letter in data], options.length)
    if len(windows) < options.batch:
        sys.exit(f"train_gpt.py: {options.text} is too short")
    loader = DataLoader(windows, options.batch, shuffle=True, drop_last=True, num_workers=options.workers,
                        pin_memory=options.device == "cuda", generator=torch.Generator().manual_seed(options.seed),
                        persistent_workers=options.workers > 0)
    model = GPT(len(letters), options.length, options.width, options.heads, options.layers, options.dropout).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), options.rate, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, options.steps))
    device_type = torch.device(options.device).type
    scaler = torch.amp.GradScaler(device_type, init_scale=2.0 ** 12, growth_interval=20, enabled=options.fp16)
    run = torch.compile(model, mode=options.mode) if options.compile else model
    log = open(options.log, "w", buffering=1) if options.log else sys.stdout
    print(f"train_gpt.py: {len(data)} characters, {len(letters)} different; {sum(p.numel() for p in model.parameters())} parameters; "
          f"{options.steps} steps on {options.device}", file=log, flush=True)
    done = load(options.resume, model, optimizer, schedule, options.device) if options.resume else 0
    batches = (copied_ahead if options.ahead and device_type == "cuda" else copied)(forever(loader), options.device)

    def compute(x, y):
        with torch.autocast(device_type, torch.float16 if options.fp16 else torch.bfloat16, enabled=options.bf16 or options.fp16):
            loss = F.cross_entropy(run(x).flatten(0, 1), y.flatten()) / options.accumulate
        scaler.scale(loss).backward()
        return loss.detach()

    # Graphs add to gradients that stay where they are.
    keep = options.graph or options.mode is not None
    if keep:
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
    if options.graph:
        first = next(batches)
        compute = captured(compute, first) if device_type == "cuda" else compute
        optimizer.zero_grad(set_to_none=False)  # computed with before the capture
    for step in range(done + 1, options.steps + 1):
        begin = time.monotonic()
        total = torch.zeros((), device=options.device)
        for _ in range(options.accumulate):
            total += compute(*next(batches))
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad(set_to_none=not keep)
        print(f"step {step} loss {total.item().hex()} norm {norm.item().hex()}", file=log, flush=True)
        if options.memory:
            print(f"memory {torch.cuda.memory_allocated()} peak {torch.cuda.max_memory_allocated()}", file=log, flush=True)
        if options.save and step % options.save_every == 0:
            save(options.save, model, optimizer, schedule, step)
        time.sleep(max(0.0, options.pace_ms / 1e3 - (time.monotonic() - begin)))
    print(f"digest {digest(model, optimizer)}", file=log, flush=True)
    if options.save and os.path.exists(options.save):
        step = load(options.save, model, optimizer, schedule, options.device)
        print(f"saved after step {step}: {digest(model, optimizer)}", file=log, flush=True)


if __name__ == "__main__":
    main()
