"""Claim: losses follow PyTorch's from the same weights over the same data, and fp8's stay within noise of bf16's.

Usage: bench/loss_curve.py TRAIN.bin [EVAL.bin] [--runs torch,bf16,fp8] [--python PYTHON_WITH_TORCH] [--steps 500] [--layers 12 ...] [--json OUT]
Writes a GPT-2 with random weights as Hugging Face keeps it (bench/random_gpt2.py), then trains from it several times: `torch` is bench/torch_loss.py,
any other word is a `precision.compute`, perhaps with keys behind it (`fp8:fp8_head=false`), and a number of the seed of the
weights (`bf16@2`: how far runs differ that begin elsewhere). Prints the mean loss of each fifth of the steps and of the
evaluation, and against the first run the mean and the largest difference of losses smoothed over 20 steps."""
import argparse, json, pathlib, shutil, sys, tempfile
from command import run

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("tokens")
parser.add_argument("eval", nargs="?")
parser.add_argument("--runs", default="torch,bf16,fp8")
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--program", default=str(root / "build" / "lockstep"))
parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
parser.add_argument("--json")
parser.add_argument("--keys", default="", help="more recipe keys for Lockstep, with commas")
for name, value in [("steps", 500), ("layers", 12), ("hidden", 768), ("heads", 12), ("vocab", 50304), ("seq", 1024), ("batch", 16),
                    ("lr", 6e-4), ("warmup", 50)]:
    parser.add_argument("--" + name, type=type(value), default=value)
a = parser.parse_args()


def torch_run(model):
    more = ["--eval", a.eval] if a.eval else []
    return json.loads(run([a.python, str(root / "bench" / "torch_loss.py"), str(model), a.tokens, str(a.steps), "--device", a.device,
                           *more, *[word for name in ("seq", "batch", "lr", "warmup") for word in (f"--{name}", str(getattr(a, name)))]]))


def lockstep_run(model, precision, folder):
    compute, _, keys = precision.partition(":")
    run([a.program, "train", f"model.from={model}", "data.kind=tokens", f"data.path={a.tokens}", f"data.seq_len={a.seq}",
         *([f"data.eval_path={a.eval}"] if a.eval else []), f"batch.global={a.batch}", "batch.slices=1", "batch.strands=1", "run.seed=1",
         f"run.steps={a.steps}", f"run.device={a.device}", f"precision.compute={compute}", *["precision." + k for k in keys.split("+") if k],
         f"optim.lr={a.lr}", f"optim.warmup={a.warmup}", "optim.schedule=cosine", "optim.min_lr=0.1", "optim.weight_decay=0.1",
         "log.eval_every=0", "log.eval_batches=8", f"log.folder={folder}", "run.name=it", *[k for k in a.keys.split(",") if k]])
    lines = [json.loads(line) for line in (folder / "it" / "metrics.jsonl").read_text().splitlines()]
    evals = [line["eval_loss"] for line in lines if "eval_loss" in line]
    return {"losses": [line["loss"] for line in lines if "loss" in line], "eval_loss": evals[-1] if evals else None}


def smoothed(losses):
    return [sum(losses[i:i + 20]) / 20 for i in range(len(losses) - 19)]


place = pathlib.Path(tempfile.mkdtemp(prefix="loss-"))
results = {}
try:
    for name in a.runs.split(","):
        what, _, seed = name.partition("@")
        model = place / f"model{seed or 1}"
        if not model.exists():
            run([a.python, str(root / "bench" / "random_gpt2.py"), str(model), seed or "1",
                 *[str(getattr(a, size)) for size in ("layers", "hidden", "heads", "vocab", "seq")]])
        results[name] = torch_run(model) if what == "torch" else lockstep_run(model, what, place / name.replace(":", "-"))
        if a.json:  # what there is, should a later run fail
            pathlib.Path(a.json).write_text(json.dumps(results))
finally:
    shutil.rmtree(place)
first = next(iter(results))
fifth = max(1, a.steps // 5)
print(f"{a.steps} steps of {a.batch} x {a.seq} tokens, {a.layers} layers of width {a.hidden}, {a.device}")
print(f"{'run':<34}" + "".join(f"{f'to {k * fifth}':>9}" for k in range(1, 6)) + f"{'eval':>9}{'mean diff':>11}{'largest':>9}")
for name, result in results.items():
    means = [sum(result["losses"][k * fifth:(k + 1) * fifth]) / fifth for k in range(5)]
    differences = [x - y for x, y in zip(smoothed(result["losses"]), smoothed(results[first]["losses"]))]
    held = f"{result['eval_loss']:9.4f}" if result.get("eval_loss") is not None else f"{'':>9}"
    print(f"{name:<34}" + "".join(f"{m:9.4f}" for m in means) + held + f"{sum(differences) / len(differences):+11.4f}{max(map(abs, differences)):9.4f}")
