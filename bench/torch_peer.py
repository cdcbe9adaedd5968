"""The default recipe's model in plain PyTorch (eager, CPU): what bench/cpu_step.py compares with.

Usage: torch_peer.py STEPS [--layers 4 --hidden 128 --heads 4 --seq 64 --batch 64 --vocab 192]
Prints one JSON line: median milliseconds a step, tokens a second, threads, versions."""
import argparse, json, statistics, time
import torch, torch.nn as nn, torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
for name, value in [("layers", 4), ("hidden", 128), ("heads", 4), ("seq", 64), ("batch", 64), ("vocab", 192), ("threads", 0)]:
    parser.add_argument("--" + name, type=int, default=value)
a = parser.parse_args()
if a.threads:
    torch.set_num_threads(a.threads)
torch.manual_seed(1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(a.hidden), nn.LayerNorm(a.hidden)
        self.qkv, self.out = nn.Linear(a.hidden, 3 * a.hidden), nn.Linear(a.hidden, a.hidden)
        self.up, self.down = nn.Linear(a.hidden, 4 * a.hidden), nn.Linear(4 * a.hidden, a.hidden)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, a.heads, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(a.vocab, a.hidden), nn.Embedding(a.seq, a.hidden)
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(a.layers)), nn.LayerNorm(a.hidden)

    def forward(self, x, y):
        h = self.tokens(x) + self.positions(torch.arange(a.seq))
        for layer in self.layers:
            h = layer(h)
        return F.cross_entropy(F.linear(self.norm(h), self.tokens.weight).view(-1, a.vocab), y.view(-1))


model = Gpt()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
x, y = (torch.randint(0, 137, (a.batch, a.seq)) for _ in range(2))
times = []
for step in range(a.steps + 3):
    began = time.perf_counter()
    loss = model(x, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    times.append((time.perf_counter() - began) * 1e3)
ms = statistics.median(times[3:])
print(json.dumps({"peer": "torch " + torch.__version__, "ms": ms, "tokens_per_s": a.batch * a.seq / ms * 1e3,
                  "threads": torch.get_num_threads()}))
