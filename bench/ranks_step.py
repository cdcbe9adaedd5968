"""Claims about several CPU ranks on one machine:

  exact    a step with exact sums is at most 3 % slower than one in the engine's own order, strands equal to ranks
  overlap  on a slow link, a step takes at most 5 % longer than the larger of its computation and its communication

Usage: bench/ranks_step.py [exact|overlap ...] [--rounds 5] [--steps 30] [--json]
Both sides of a claim run in turn, several rounds, so that a noisy machine disturbs both alike."""
import argparse, json, os, pathlib, platform, statistics, subprocess, sys, tempfile, tomllib

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("claims", nargs="*", default=["exact", "overlap"])
parser.add_argument("--program", default=str(root / "build" / "lockstep"))
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--json", action="store_true")
a = parser.parse_args()

# Large enough for communication to count, small enough for two cores.
MODEL = ["model.layers=12", "model.hidden=192", "model.heads=4", "data.seq_len=64", "batch.global=16", "batch.slices=2",
         "batch.strands=2", "parallel.bucket_mib=1", "run.device=cpu", "log.eval_every=0", "log.eval_batches=1"]


def run(words, link_mbps=None):
    """The median step in ms, and the bytes that a step's reductions put on the pretended link: every gradient is lent
    once and gathered once, and a tied head has a gradient of its own."""
    environment = dict(os.environ)
    environment.pop("LOCKSTEP_LINK_MBPS", None)
    if link_mbps:
        environment["LOCKSTEP_LINK_MBPS"] = str(link_mbps)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([a.program, "train", "--nproc", "2", f"run.steps={a.steps + 3}", "--run", folder + "/run", *MODEL, *words],
                       check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
        lines = [json.loads(line) for line in open(folder + "/run/metrics.jsonl")]
        parameters = json.load(open(folder + "/run/record.json"))["parameters"]
        model = tomllib.load(open(folder + "/run/config.toml", "rb"))["model"]
    gradients = parameters + (model["vocab"] * model["hidden"] if model["tied"] else 0)
    return statistics.median(line["step_ms"] for line in lines[3:] if "step_ms" in line), 2 * 4 * gradients


def exact():
    ratios = []
    for _ in range(a.rounds):
        loose, strict = run(["run.exact=false"])[0], run([])[0]
        ratios.append(strict / loose)
    return {"claim": "exact", "ratio": statistics.median(ratios), "rounds": ratios, "goal": 1.03}


def overlap():
    ratios, rows = [], []
    for _ in range(a.rounds):
        computation, moved = run([])
        # A link on which communication takes half as long as computation, so that the backward pass can hide it.
        link = moved / (computation / 1e3 / 2) / 1e6
        both = run([], link)[0]
        communication = moved / link / 1e3
        ratios.append(both / max(computation, communication))
        rows.append({"computation_ms": computation, "communication_ms": communication, "step_ms": both})
    return {"claim": "overlap", "ratio": statistics.median(ratios), "rounds": ratios, "rows": rows, "goal": 1.05}


results = [{"exact": exact, "overlap": overlap}[claim]() for claim in a.claims]
if a.json:
    print(json.dumps({"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), "results": results}))
else:
    for r in results:
        spread = f"{min(r['rounds']):.3f} to {max(r['rounds']):.3f}"
        print(f"{r['claim']:8} {r['ratio']:.3f} of {len(r['rounds'])} rounds ({spread}); goal at most {r['goal']}")
        for row in r.get("rows", []):
            print("         " + ", ".join(f"{name} {value:.1f}" for name, value in row.items()))
sys.exit(any(r["ratio"] > r["goal"] for r in results))
