"""Claim: from process start to the end of the first step, the default recipe needs under 0.6 s on a CPU, and GPT-2 124M
under 1.5 s on an H200 with a warm page cache.

Usage: bench/first_step.py [--device cpu|cuda] [--rounds 7] [--program lockstep] [--json] [key=value ...]
The clock starts before the process is made and stops at the time that the event `first_step` carries, so loading the
program and LibTorch is counted. One run beforehand warms the page cache. On CUDA the recipe is GPT-2 124M on random
tokens. Further words are recipe keys."""
import argparse, datetime, json, pathlib, platform, statistics, subprocess, tempfile, time
from token_file import write_tokens

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--program", default=str(root / "build" / "lockstep"))
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--json", action="store_true")
parser.add_argument("keys", nargs="*")
a = parser.parse_args()
GOAL = {"cpu": 0.6, "cuda": 1.5}[a.device]


def seconds(folder, words):
    """(as seen from outside, as the program says)"""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        began = time.time()
        subprocess.run([a.program, "train", "run.steps=1", f"run.device={a.device}", "log.eval_every=0", "log.eval_batches=1",
                        "checkpoint.every=0", "--run", run + "/run", *words], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        events = [json.loads(line) for line in open(run + "/run/events.jsonl")]
    event = next(e for e in events if e["event"] == "first_step")
    return datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp() - began, event["seconds"]


with tempfile.TemporaryDirectory() as folder:
    words = a.keys
    if a.device == "cuda":
        tokens = write_tokens(folder + "/tokens.bin", 1_000_000)
        words = ["data.kind=tokens", "data.path=" + tokens, "model.preset=124m", "data.seq_len=1024", "batch.global=32",
                 "batch.slices=1", "batch.strands=1", *a.keys]
    seconds(folder, words)
    rows = [seconds(folder, words) for _ in range(a.rounds)]
outside = sorted(r[0] for r in rows)
result = {"claim": "first_step", "device": a.device, "seconds": statistics.median(outside), "seconds_low": outside[0],
          "seconds_high": outside[-1], "said_s": statistics.median(r[1] for r in rows), "goal_s": GOAL,
          "machine": platform.processor() or platform.machine(), "rounds": a.rounds, "keys": a.keys}
if a.json:
    print(json.dumps(result))
else:
    print(f"process start to end of first step, {a.device} {' '.join(a.keys)}: {result['seconds']:.2f} s "
          f"(from {outside[0]:.2f} to {outside[-1]:.2f} in {a.rounds} rounds; the program says {result['said_s']:.2f}); goal {GOAL}")
