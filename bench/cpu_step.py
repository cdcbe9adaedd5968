"""Claim: the default recipe trains on a CPU at least 1.15x as fast as the same model in PyTorch eager.

Usage: bench/cpu_step.py [--python PYTHON_WITH_TORCH] [--rounds 5] [--steps 40] [--json] [key=value ...]
Runs both in turn, several rounds, so that a noisy machine disturbs both alike; prints the median ratio and its spread.
Further words are recipe keys for Lockstep (model.hidden=256 and the like are given to the peer too)."""
import argparse, json, os, pathlib, platform, statistics, subprocess, sys, tempfile
from command import run

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--program", default=str(root / "build" / "lockstep"))
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--json", action="store_true")
parser.add_argument("keys", nargs="*")
a = parser.parse_args()

PEER = {"model.layers": "--layers", "model.hidden": "--hidden", "model.heads": "--heads", "data.seq_len": "--seq",
        "batch.global": "--batch"}
peer_words = [w for key in a.keys for name, flag in PEER.items() if key.startswith(name + "=") for w in (flag, key.split("=")[1])]


def ours():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([a.program, "train", f"run.steps={a.steps + 3}", "run.device=cpu", f"run.threads={a.threads}",
                        "log.eval_batches=1", "log.eval_every=0", "--run", folder + "/run", *a.keys], check=True,
                       stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in open(folder + "/run/metrics.jsonl")]
        first = [json.loads(line) for line in open(folder + "/run/events.jsonl") if "first_step" in line]
    return statistics.median(l["step_ms"] for l in lines[3:] if "step_ms" in l), first[0]["seconds"]


def peer():
    return json.loads(run([a.python, str(root / "bench" / "torch_peer.py"), str(a.steps), "--threads", str(a.threads), *peer_words]))


rows = []
for _ in range(a.rounds):
    mine, first = ours()
    other = peer()
    rows.append((other["ms"] / mine, mine, other["ms"], first))
ratios = sorted(r[0] for r in rows)
result = {"claim": "cpu_step", "ratio": statistics.median(ratios), "ratio_low": ratios[0], "ratio_high": ratios[-1],
          "lockstep_ms": statistics.median(r[1] for r in rows), "torch_ms": statistics.median(r[2] for r in rows),
          "first_step_s": statistics.median(r[3] for r in rows), "threads": a.threads, "peer": other["peer"],
          "machine": platform.processor() or platform.machine(), "rounds": a.rounds, "keys": a.keys}
if a.json:
    print(json.dumps(result))
else:
    print(f"default recipe {' '.join(a.keys)}: lockstep {result['lockstep_ms']:.1f} ms, {result['peer']} eager {result['torch_ms']:.1f} ms a step, "
          f"{a.threads} threads")
    print(f"ratio {result['ratio']:.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f} in {a.rounds} rounds); goal 1.15")
    print(f"process start to end of first step: {result['first_step_s']:.2f} s; goal 0.6")
