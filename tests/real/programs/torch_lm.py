"""torch_lm.py STEPS PACE_MS [WORKERS]: a small transformer on the CPU; prints every loss exactly."""
import sys, time
import torch, torch.nn as nn
from torch.utils.data import DataLoader, Dataset

steps, pace = int(sys.argv[1]), float(sys.argv[2]) / 1000
workers = int(sys.argv[3]) if len(sys.argv) > 3 else 0
torch.manual_seed(7)
torch.set_num_threads(2)
TEXT = open("/usr/share/common-licenses/GPL-3", "rb").read()
T, D = 48, 64

class Windows(Dataset):
    def __len__(self): return len(TEXT) - T - 1
    def __getitem__(self, i):
        x = torch.tensor(list(TEXT[i:i + T + 1]), dtype=torch.long)
        return x[:-1], x[1:]

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(256, D), nn.Embedding(T, D)
        layer = nn.TransformerEncoderLayer(D, 4, 128, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(D, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(T))
    def forward(self, x):
        h = self.embed(x) + self.place(torch.arange(x.size(1)))
        return self.head(self.body(h, mask=self.mask, is_causal=True))

model = Model()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
loader = DataLoader(Windows(), 8, shuffle=True, num_workers=workers,
                    generator=torch.Generator().manual_seed(3))
done = 0
while done < steps:
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        done += 1
        print(f"step {done} loss {loss.item().hex()}", flush=True)
        time.sleep(pace)
        if done == steps: break
print("digest", sum(p.double().sum().item() for p in model.parameters()).hex())
