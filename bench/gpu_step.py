"""Claim: on one GPU, bf16 and exact, a step of Lockstep is 1.04 (1B) to 1.15 (124M) times as fast as the same model's in torch.compile.

Usage: bench/gpu_step.py [--python PYTHON_WITH_TORCH] [--compile] [--models 124m,1b] [--rounds 3] [--steps 15] [--json] [key=value ...]
Without --compile the peer is PyTorch eager.
Runs both in turn, several rounds, so that clocks and neighbours disturb both alike; prints tokens a second, memory and
the first step of each, and the median ratio with its spread. `--device cpu --models tiny` tries the program itself.
Further words are recipe keys for Lockstep only."""
import argparse, json, pathlib, statistics, sys
from command import run

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--program", default=str(root / "build" / "lockstep"))
parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
parser.add_argument("--models", default="124m,1b")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=15)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--json", action="store_true")
parser.add_argument("keys", nargs="*")
a = parser.parse_args()

# recipe keys; what the peer is told; samples; tokens of a sample
MODELS = {
    "124m": (["model.family=gpt2", "model.preset=124m"],
             "--family gpt2 --layers 12 --hidden 768 --heads 12 --vocab 50304", 32, 1024),
    "1b": (["model.family=llama", "model.preset=1b"],
           "--family llama --layers 16 --hidden 2048 --heads 32 --kv-heads 8 --ffn 8192 --vocab 128256", 8, 2048),
    "tiny": (["model.family=gpt2", "model.layers=2", "model.hidden=64", "model.heads=2", "model.vocab=50304"],
             "--family gpt2 --layers 2 --hidden 64 --heads 2 --vocab 50304", 4, 64),
}


def ours(model):
    keys, _, batch, seq = MODELS[model]
    row = json.loads(run([a.program, "bench", "step", "--json", "--steps", str(a.steps), f"run.device={a.device}", f"data.seq_len={seq}",
                          f"batch.global={batch}", "batch.slices=1", "batch.strands=1", *keys, *a.keys]))
    return {"ms": row["step_ms"], "gib": row["memory_gib"], "first_step_s": row["first_step_s"]}


def peer(model):
    _, words, batch, seq = MODELS[model]
    return json.loads(run([a.python, str(root / "bench" / "torch_peer.py"), str(a.steps), "--device", a.device, *words.split(),
                           *(["--compile"] if a.compile else []), "--batch", str(batch), "--seq", str(seq)]))


def compare(model):
    rounds = [(ours(model), peer(model)) for _ in range(a.rounds)]
    ratios = sorted(p["ms"] / o["ms"] for o, p in rounds)
    tokens_a_step = MODELS[model][2] * MODELS[model][3]

    def both(key):
        columns = [[side[key] for side in column] for column in zip(*rounds)]
        return [None if None in column else statistics.median(column) for column in columns]

    ms = both("ms")
    return {"claim": "gpu_step", "model": model, "ratio": statistics.median(ratios), "ratio_low": ratios[0], "ratio_high": ratios[-1],
            "ms": ms, "tokens_per_s": [tokens_a_step / m * 1e3 for m in ms], "gib": both("gib"),
            "first_step_s": both("first_step_s"), "peer": rounds[0][1]["peer"], "device": a.device, "rounds": a.rounds, "compiled": a.compile, "keys": a.keys}


def line(name, result, side):
    gib = result["gib"][side]
    memory = "" if gib is None else f", {gib:.1f} GiB"
    return (f"  {name:<22}{result['ms'][side]:8.1f} ms a step, {result['tokens_per_s'][side] / 1e3:7.1f} k tokens/s{memory}, "
            f"first step after {result['first_step_s'][side]:.2f} s")


for model in a.models.split(","):
    result = compare(model)
    if a.json:
        print(json.dumps(result), flush=True)
        continue
    print(f"{model}, {MODELS[model][2]} x {MODELS[model][3]} tokens, {a.device}")
    print(line("lockstep", result, 0))
    print(line(result["peer"] + (" compile" if a.compile else " eager"), result, 1))
    print(f"  ratio {result['ratio']:.2f} (from {result['ratio_low']:.2f} to {result['ratio_high']:.2f} in {a.rounds} rounds)", flush=True)
