"""The recipes' models in plain PyTorch eager: what bench/cpu_step.py and bench/gpu_step.py compare with.

Usage: torch_peer.py STEPS [--family gpt2|llama] [--device cpu|cuda] [--layers 4 --hidden 128 --heads 4 --seq 64 ...]
On CUDA it computes in bf16 with fp32 weights (autocast), as Lockstep's `precision.compute = "bf16"` does.
Prints one JSON line: median milliseconds a step, tokens a second, seconds from the program's start to the end of the
first step, peak memory, threads, versions."""
import time

STARTED = time.time()
import argparse, contextlib, json, statistics
import torch, torch.nn as nn, torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
parser.add_argument("--family", choices=["gpt2", "llama"], default="gpt2")
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--compile", action="store_true")
for name, value in [("layers", 4), ("hidden", 128), ("heads", 4), ("kv-heads", 0), ("ffn", 0), ("seq", 64), ("batch", 64),
                    ("vocab", 192), ("threads", 0)]:
    parser.add_argument("--" + name, type=int, default=value)
a = parser.parse_args()
gpt2, cuda = a.family == "gpt2", a.device == "cuda"
kv_heads, ffn, width = a.kv_heads or a.heads, a.ffn or 4 * a.hidden, a.hidden // a.heads
if a.threads:
    torch.set_num_threads(a.threads)
torch.manual_seed(1)
Norm = nn.LayerNorm if gpt2 else nn.RMSNorm


def turned(x, angles):
    """Rotary positions, as Llama lays them out: the two halves of a head are the real and imaginary parts."""
    cos, sin = angles
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(a.hidden), Norm(a.hidden)
        self.qkv = nn.Linear(a.hidden, (a.heads + 2 * kv_heads) * width, bias=gpt2)
        self.out = nn.Linear(a.hidden, a.hidden, bias=gpt2)
        self.up = nn.Linear(a.hidden, ffn if gpt2 else 2 * ffn, bias=gpt2)
        self.down = nn.Linear(ffn, a.hidden, bias=gpt2)

    def forward(self, x, angles):
        b, t, d = x.shape
        parts = self.qkv(self.norm1(x)).split([a.heads * width, kv_heads * width, kv_heads * width], -1)
        q, k, v = (z.view(b, t, -1, width).transpose(1, 2) for z in parts)
        if not gpt2:
            q, k = turned(q, angles), turned(k, angles)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != a.heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        h = self.up(self.norm2(x))
        if gpt2:
            return x + self.down(F.gelu(h, approximate="tanh"))
        gate, value = h.chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(a.vocab, a.hidden)  # the output layer's weights too
        if gpt2:
            self.positions = nn.Embedding(a.seq, a.hidden)
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(a.layers)), Norm(a.hidden)

        # Computed once: inside a compiled model it would be computed again for every layer and element.
        rates = 1.0 / 500000.0 ** (torch.arange(0, width, 2).float() / width)
        turns = torch.outer(torch.arange(a.seq).float(), rates)
        self.angles = None if gpt2 else (turns.cos(), turns.sin())

    def forward(self, x, y):
        h = self.tokens(x)
        if gpt2:
            h = h + self.positions(torch.arange(a.seq, device=x.device))
        for layer in self.layers:
            h = layer(h, self.angles)
        return F.cross_entropy(F.linear(self.norm(h), self.tokens.weight).view(-1, a.vocab), y.view(-1))


def wait():
    if cuda:
        torch.cuda.synchronize()


with torch.device(a.device):
    model = Lm()
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.02)
    x, y = (torch.randint(0, a.vocab, (a.batch, a.seq)) for _ in range(2))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
run = torch.compile(model) if a.compile else model
times, first = [], 0
for step in range(a.steps + 3):
    x.random_(0, a.vocab), y.random_(0, a.vocab)  # fresh tokens: on a batch that it knows the loss and its gradients vanish
    wait()
    began = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16) if cuda else contextlib.nullcontext():
        loss = run(x, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    wait()
    times.append((time.perf_counter() - began) * 1e3)
    first = first or time.time() - STARTED
ms = statistics.median(times[3:])
print(json.dumps({"peer": "torch " + torch.__version__, "ms": ms, "tokens_per_s": a.batch * a.seq / ms * 1e3, "first_step_s": first,
                  "gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else None, "threads": torch.get_num_threads()}))
