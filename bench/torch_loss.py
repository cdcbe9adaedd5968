"""The peer of bench/loss_curve.py: plain PyTorch goes the way that `lockstep train` goes, from the same weights over the same batches.

Usage: torch_loss.py FOLDER TOKENS.bin STEPS [--seq 1024 --batch 16 --lr 6e-4 --warmup 50 --seed 1 --eval VAL.bin --device cuda]
FOLDER holds a GPT-2 as Hugging Face keeps it (config.json, model.safetensors). Prints one JSON object: the loss of every
step, and the loss on VAL.bin at the end. Weights are fp32 and products bf16 (autocast), as in `precision.compute = "bf16"`."""
import argparse, contextlib, json, math, pathlib, struct
import torch, torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("tokens")
parser.add_argument("steps", type=int)
parser.add_argument("--eval")
parser.add_argument("--device", default="cuda")
for name, value in [("seq", 1024), ("batch", 16), ("lr", 6e-4), ("warmup", 50), ("min-lr", 0.1), ("seed", 1), ("eval-batches", 8)]:
    parser.add_argument("--" + name, type=type(value), default=value)
a = parser.parse_args()
MASK, GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def sample_at(position, samples):
    """Which sample stands at this position of the endless sequence of epochs (docs/data.md, data/permutation.cc)."""
    epoch, value = divmod(position, samples)
    key, bits = mix((mix(a.seed + GOLDEN & MASK) + GOLDEN * (epoch + 1)) & MASK), 0
    while 4**bits < samples:
        bits += 1
    while True:
        left, right, k = value >> bits, value & 2**bits - 1, key
        for _ in range(8):
            k = k + GOLDEN & MASK
            left, right = right, (left ^ mix(k + right & MASK)) & 2**bits - 1
        value = left << bits | right
        if value < samples:
            return value


def read_tokens(path):
    return torch.frombuffer(bytearray(pathlib.Path(path).read_bytes()), dtype=torch.uint16).to(torch.int32)


def windows(tokens, numbers):
    rows = torch.stack([tokens[n * a.seq:(n + 1) * a.seq + 1] for n in numbers]).to(a.device, torch.int64)
    return rows[:, :-1], rows[:, 1:]


def read_weights(path):
    data = bytearray(path.read_bytes())
    size, = struct.unpack("<Q", data[:8])
    return {name: torch.frombuffer(data, dtype=torch.float32, count=math.prod(one["shape"]), offset=8 + size + one["data_offsets"][0])
            .view(one["shape"]).clone() for name, one in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


def learning_rate(step):
    if step < a.warmup:
        return a.lr * (step + 1) / a.warmup
    share = (step - a.warmup) / max(1, a.steps - a.warmup)
    return a.lr * (a.min_lr + (1 - a.min_lr) * 0.5 * (1 + math.cos(math.pi * share)))


torch.manual_seed(0)
config = json.loads((a.folder / "config.json").read_text())
width, heads, layers = config["n_embd"], config["n_head"], config["n_layer"]
w = {k.removeprefix("transformer."): v.to(a.device).requires_grad_() for k, v in read_weights(a.folder / "model.safetensors").items()}


def loss_of(x, y):
    def norm(h, name):
        return F.layer_norm(h, (width,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def linear(h, name):  # Conv1D: [in, out]
        return F.linear(h, w[name + ".weight"].t(), w[name + ".bias"])

    b, t = x.shape
    h = F.embedding(x, w["wte.weight"]) + w["wpe.weight"][:t]
    for i in range(layers):
        q, k, v = (z.view(b, t, heads, -1).transpose(1, 2) for z in linear(norm(h, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(width, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, width)
        h = h + linear(attended, f"h.{i}.attn.c_proj")
        h = h + linear(F.gelu(linear(norm(h, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh"), f"h.{i}.mlp.c_proj")
    logits = F.linear(norm(h, "ln_f"), w["wte.weight"])
    return F.cross_entropy(logits.view(b * t, -1), y.reshape(-1))


autocast = torch.autocast("cuda", torch.bfloat16) if a.device == "cuda" else contextlib.nullcontext()
decayed = [p for p in w.values() if p.dim() > 1]
others = [p for p in w.values() if p.dim() == 1]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                              lr=a.lr, betas=(0.9, 0.95), eps=1e-8, fused=a.device == "cuda")
tokens = read_tokens(a.tokens)
samples = (len(tokens) - 1) // a.seq
losses = []
for step in range(a.steps):
    x, y = windows(tokens, [sample_at(step * a.batch + j, samples) for j in range(a.batch)])
    with autocast:
        loss = loss_of(x, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.detach())
result = {"peer": "torch " + torch.__version__, "losses": torch.stack(losses).tolist()}
if a.eval:
    tokens = read_tokens(a.eval)
    count = min(a.eval_batches * a.batch, (len(tokens) - 1) // a.seq)
    with torch.no_grad(), autocast:
        parts = [(loss_of(*windows(tokens, range(n, min(n + a.batch, count)))).item(), min(a.batch, count - n)) for n in range(0, count, a.batch)]
    result["eval_loss"] = sum(loss * size for loss, size in parts) / count
print(json.dumps(result))
