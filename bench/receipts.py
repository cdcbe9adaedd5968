"""Forecasts against what runs took, for shapes and layouts that the profile never saw.

  cpu    30 layouts of CPU ranks: data, ZeRO 1 to 3, HSDP, tensor, context, pipelines, recomputation, slices
  gpu    20 shapes on one GPU: families, sizes, lengths, batches, precisions, recomputation

Usage: bench/receipts.py cpu|gpu [--rows N] [--steps 20] [--seconds 300] [--json] [--keep FOLDER]
Measures the machine once (`lockstep bench machine`), trains every row and reads its receipt. Goal: 3 % of the time of a
step and 1 % of memory. Rows that are not reached in --seconds are named. Run it on a machine that does nothing else."""
import argparse, json, os, pathlib, statistics, subprocess, sys, tempfile, time

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("where", choices=["cpu", "gpu"])
parser.add_argument("--program", default=str(root / "build" / "lockstep"))
parser.add_argument("--rows", type=int, default=1000, help="at most so many")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--seconds", type=float, default=1e9, help="begin no row later than this")
parser.add_argument("--keep", help="leave the runs here")
parser.add_argument("--json", action="store_true")
a = parser.parse_args()

# Wide enough that products count beside what a rank does for every instruction.
SMALL = ["model.layers=4", "model.hidden=256", "model.heads=4", "data.seq_len=128", "batch.global=16", "batch.slices=8", "batch.strands=8"]
# (ranks, keys)
CPU = [
    (1, []), (1, ["batch.slices=16"]), (1, ["batch.slices=8", "batch.strands=1"]), (1, ["memory.recompute=full"]),
    (1, ["memory.recompute=cheap"]), (1, ["model.family=llama"]), (1, ["model.layers=8"]), (1, ["data.seq_len=256"]),
    (2, []), (2, ["parallel.zero=1"]), (2, ["parallel.zero=2"]), (2, ["parallel.zero=3"]), (2, ["parallel.zero=3", "memory.recompute=full"]),
    (2, ["parallel.pipeline=2"]), (2, ["parallel.pipeline=2", "parallel.schedule=zero-bubble"]),
    (2, ["parallel.pipeline=2", "parallel.schedule=gpipe"]), (2, ["parallel.pipeline=2", "parallel.schedule=interleaved"]),
    (2, ["parallel.tensor=2"]), (2, ["parallel.tensor=2", "parallel.sequence=true"]), (2, ["parallel.context=2"]),
    (2, ["parallel.context=2", "parallel.context_form=heads"]), (2, ["model.family=llama", "parallel.zero=3"]),
    (4, []), (4, ["parallel.zero=1"]), (4, ["parallel.zero=3"]), (4, ["parallel.zero=3", "parallel.shard=2"]),
    (4, ["parallel.pipeline=2", "parallel.zero=1"]), (4, ["parallel.tensor=2", "parallel.zero=3"]), (4, ["parallel.pipeline=4"]),
    (4, ["parallel.tensor=2", "parallel.pipeline=2"]),
]
GPU = [(1, words.split()) for words in (
    "model.family=gpt2 model.preset=124m data.seq_len=1024 batch.global=32 batch.slices=2",
    "model.family=gpt2 model.preset=124m data.seq_len=1024 batch.global=64 batch.slices=8",
    "model.family=gpt2 model.preset=124m data.seq_len=512 batch.global=64 batch.slices=2",
    "model.family=gpt2 model.preset=124m data.seq_len=2048 batch.global=16 batch.slices=2 model.context=2048",
    "model.family=gpt2 model.preset=350m data.seq_len=1024 batch.global=16 batch.slices=2",
    "model.family=gpt2 model.preset=350m data.seq_len=1024 batch.global=16 batch.slices=2 memory.recompute=full",
    "model.family=gpt2 model.preset=124m data.seq_len=1024 batch.global=16 batch.slices=2 precision.compute=fp32",
    "model.family=llama model.preset=1b data.seq_len=2048 batch.global=8 batch.slices=2",
    "model.family=llama model.preset=1b data.seq_len=4096 batch.global=4 batch.slices=2",
    "model.family=llama model.preset=1b data.seq_len=8192 batch.global=2 batch.slices=2",
    "model.family=llama model.preset=1b data.seq_len=2048 batch.global=8 batch.slices=2 precision.compute=fp8",
    "model.family=llama model.preset=1b data.seq_len=2048 batch.global=8 batch.slices=8",
    "model.family=llama model.preset=1b data.seq_len=2048 batch.global=8 batch.slices=2 memory.recompute=full",
    "model.family=llama model.preset=1b data.seq_len=2048 batch.global=8 batch.slices=2 memory.recompute=none",
    "model.family=llama model.preset=1b model.layers=8 data.seq_len=2048 batch.global=16 batch.slices=2",
    "model.family=llama model.hidden=1024 model.heads=16 model.layers=24 model.vocab=32000 data.seq_len=2048 batch.global=8 batch.slices=1",
    "model.family=llama model.hidden=3072 model.heads=24 model.layers=8 model.vocab=32000 data.seq_len=2048 batch.global=8 batch.slices=2",
    "model.family=llama model.hidden=4096 model.heads=32 model.kv_heads=8 model.layers=6 model.vocab=32000 data.seq_len=4096 batch.global=4 batch.slices=2",
    "model.family=llama model.preset=1b data.seq_len=2048 batch.global=8 batch.slices=2 optim.name=sgd",
    "model.family=llama model.preset=1b data.seq_len=1024 batch.global=16 batch.slices=2 optim.moments=bf16",
)]


def program(words, **more):
    return subprocess.run([a.program, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def row(number, ranks, keys, folder, environment):
    words = (SMALL if a.where == "cpu" else []) + keys
    fixed = [f"run.device={'cpu' if a.where == 'cpu' else 'cuda'}", f"run.steps={a.steps}", "log.every=1", "log.eval_every=0", "log.eval_batches=1",
             "checkpoint.minutes=0", "--run", f"{folder}/{number}", "--nproc", str(ranks)]
    made = program(["train", *words, *fixed], env=environment)
    if made.returncode != 0:
        return {"ranks": ranks, "keys": " ".join(keys), "failed": made.stderr.strip().splitlines()[-1:]}
    read = program(["receipt", f"{folder}/{number}", "--json"], env=environment)
    receipt = json.loads(read.stdout.splitlines()[0])
    return {"ranks": ranks, "keys": " ".join(keys), **receipt,
            "step_error": receipt["predicted_step_ms"] / receipt["actual_step_ms"] - 1,
            "memory_error": receipt["predicted_memory_gib"] / receipt["actual_memory_gib"] - 1}


with tempfile.TemporaryDirectory() as scratch:
    folder = a.keep or scratch
    environment = {**os.environ, "XDG_CONFIG_HOME": scratch + "/config"}
    began = time.monotonic()
    measured = program(["bench", "machine", "--device", "cpu" if a.where == "cpu" else "cuda"], env=environment)
    if measured.returncode != 0:
        sys.exit(measured.stderr)
    rows, left = [], []
    for number, (ranks, keys) in enumerate((CPU if a.where == "cpu" else GPU)[: a.rows]):
        if time.monotonic() - began > a.seconds:
            left.append(" ".join(keys))
            continue
        rows.append(row(number, ranks, keys, folder, environment))
        one = rows[-1]
        if not a.json:
            said = f"failed: {one['failed']}" if "failed" in one else (
                f"{one['predicted_step_ms']:9.1f} {one['actual_step_ms']:9.1f} ms {one['step_error']:+7.1%}   "
                f"{one['predicted_memory_gib']:8.3f} {one['actual_memory_gib']:8.3f} GiB {one['memory_error']:+7.2%}")
            print(f"{ranks} {said}  {' '.join(keys)}", flush=True)

done = [one for one in rows if "failed" not in one]
steps, memory = ([abs(one[key]) for one in done] for key in ("step_error", "memory_error"))
summary = {"rows": len(done), "failed": len(rows) - len(done), "not_reached": left,
           "step_error_median": statistics.median(steps) if steps else None, "step_within_3_percent": sum(e <= 0.03 for e in steps),
           "memory_error_median": statistics.median(memory) if memory else None, "memory_within_1_percent": sum(e <= 0.01 for e in memory)}
print(json.dumps({**summary, "receipts": rows}) if a.json else
      f"{len(done)} rows, {summary['failed']} failed, {len(left)} not reached: time within 3 % in {summary['step_within_3_percent']} "
      f"(median {summary['step_error_median'] or 0:.1%}), memory within 1 % in {summary['memory_within_1_percent']} "
      f"(median {summary['memory_error_median'] or 0:.2%})")
