#!/usr/bin/env python3
"""One recipe in many layouts: one loss and one hash in every row.

    bench/one_hash.py [--program ./lockstep] [--steps 100] [--json] [key=value ...]

Trains a small Llama with `batch.product_strands = 4` in twenty layouts on 1 to 8 ranks of this machine, and with
`batch.sequence_strands = 4` beside it in nine with context ranks, and prints the last loss, to its last bit, and `params_hash` of each. Exits with 1 if any row differs from one rank's.
"""
import argparse
import json
import subprocess
import sys
import tempfile

RECIPE = [
    "model.family=llama", "model.layers=4", "model.hidden=64", "model.heads=8", "model.kv_heads=4", "model.ffn=128",
    "data.seq_len=32", "batch.global=16", "batch.slices=8", "batch.strands=8", "batch.product_strands=4",
    "run.device=cpu", "log.eval_every=0", "log.every=1", "checkpoint.every=0",
]
LAYOUTS = [
    (1, ""),
    (1, "memory.recompute=full"),
    (2, "parallel.data=2"),
    (8, "parallel.data=8"),
    (4, "parallel.zero=1"),
    (3, "parallel.zero=2"),
    (4, "parallel.zero=3"),
    (4, "parallel.zero=3 parallel.shard=2"),
    (2, "parallel.tensor=2"),
    (4, "parallel.tensor=4"),
    (2, "parallel.tensor=2 parallel.sequence=true"),
    (4, "parallel.tensor=4 parallel.sequence=true"),
    (2, "parallel.pipeline=2 parallel.schedule=gpipe"),
    (2, "parallel.pipeline=2 parallel.schedule=1f1b"),
    (2, "parallel.pipeline=2 parallel.schedule=interleaved"),
    (4, "parallel.pipeline=4 parallel.schedule=zero-bubble"),
    (4, "parallel.tensor=2 parallel.data=2"),
    (4, "parallel.tensor=2 parallel.zero=3"),
    (4, "parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true"),
    (8, "parallel.tensor=2 parallel.pipeline=2 parallel.zero=3 parallel.sequence=true"),
]
PIECES = ["batch.sequence_strands=4", "model.kv_heads=8"]  # another contract, with bits of its own
CONTEXT_LAYOUTS = [
    (1, ""),
    (2, "parallel.context=2"),
    (4, "parallel.context=4"),
    (2, "parallel.context=2 parallel.context_form=heads"),
    (4, "parallel.context=2 parallel.zero=3"),
    (4, "parallel.context=2 parallel.pipeline=2"),
    (4, "parallel.tensor=2 parallel.context=2"),
    (8, "parallel.tensor=2 parallel.context=2 parallel.context_form=heads parallel.zero=1"),
    (8, "parallel.tensor=2 parallel.context=2 parallel.pipeline=2"),
]


def train(options, folder, number, ranks, words):
    command = [options.program, "train", "--run", f"{folder}/{number}", "--nproc", str(ranks), "--json",
               f"run.steps={options.steps}", *RECIPE, *options.keys, *words.split()]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        return {"ranks": ranks, "layout": words, "failed": run.stderr.strip().splitlines()[-1:]}
    with open(f"{folder}/{number}/metrics.jsonl") as lines:
        last = [row for row in map(json.loads, lines) if "loss_hex" in row][-1]
    return {"ranks": ranks, "layout": words, "loss_hex": last["loss_hex"], "loss": last["loss"],
            "params_hash": json.loads(run.stdout.splitlines()[-1])["params_hash"]}


def compare(options, folder, keys, layouts):
    """Trains in all of them; returns how many differ from the first."""
    rows = []
    if keys and not options.json:
        print(" ".join(["with", *keys]))
    for number, (ranks, words) in enumerate(layouts):
        rows.append(train(options, folder, number, ranks, " ".join([*keys, words])))
        if options.json:
            print(json.dumps(rows[-1]), flush=True)
            continue
        shown = rows[-1].get("failed") or f"{rows[-1]['loss_hex']}  {rows[-1]['params_hash']}"
        print(f"{ranks}  {words.replace('parallel.', '') or 'one rank':62}{shown}", flush=True)
    different = [row for row in rows if "failed" in row or row["params_hash"] != rows[0].get("params_hash")
                 or row["loss_hex"] != rows[0].get("loss_hex")]
    if not options.json:
        print(f"{len(rows) - len(different)} of {len(rows)} rows are those of one rank, bit for bit")
    return len(different)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="./lockstep")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("keys", nargs="*", help="recipe keys, such as precision.compute=bf16")
    options = parser.parse_args()
    groups = [([], LAYOUTS), (PIECES, CONTEXT_LAYOUTS)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for group, (keys, layouts) in enumerate(groups):
            wrong += compare(options, f"{folder}/{group}", keys, layouts)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
