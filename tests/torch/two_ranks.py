"""What each rank of ranks_test.py runs, under torchrun: data-parallel training with gloo. It knows nothing of gpuckpt.

two_ranks.py STEPS cpu|cuda by_hand|wrapped      wrapped: by DistributedDataParallel
"""
import gc
import hashlib
import sys
import time

import torch
import torch.distributed as dist

steps, device, wrapped = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "wrapped"
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7 + rank)
layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32)).to(device)
model = torch.nn.parallel.DistributedDataParallel(layers) if wrapped else layers
if not wrapped:
    for parameter in layers.parameters():
        dist.broadcast(parameter.data, 0)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.05, momentum=0.9)
data = torch.Generator().manual_seed(100 + rank)
for step in range(1, steps + 1):
    x = torch.randn(16, 32, generator=data).to(device)
    loss = ((model(x) - x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    if not wrapped:
        for parameter in layers.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(ranks)
    optimizer.step()
    if rank == 0 and step % 10 == 0:
        print("step", step, "loss", loss.item().hex(), flush=True)
own = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in layers.parameters())).hexdigest()
digests = [None] * ranks
dist.all_gather_object(digests, own)
if rank == 0:
    print("digests", *digests, flush=True)
# The wrapper keeps the process group, and PyTorch aborts now and then when gloo's threads outlive Python: the thread that gathered
# the digests frees its tensors under Python's lock, and is ended in a destructor if Python's own end has begun (a core showed it).
del model, loss
gc.collect()
dist.destroy_process_group()
time.sleep(0.5)
