#!/usr/bin/env python3
"""Drills with random faults, models and layouts until so many faults have struck: tools/soak.py --faults 1000

Each drill compares the bits with those of an undisturbed run. Nothing may be left over: processes and temporary folders are
counted before and after. A failure prints the command that repeats it and keeps its output.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMALL = "model.layers=2 model.hidden=64 model.heads=4 data.seq_len=32 batch.global=16 batch.slices=8 batch.strands=8".split()
FAULTS = ["kill", "kill-save", "kill-recovery", "term", "hangup", "term-start", "term-save", "kill-term", "stop-term", "stop",
          "corrupt", "disk", "connection"]


def layout(rng):
    """Keys of a random layout, with the number of ranks that it takes."""
    ranks = rng.randint(2, 8)
    keys = [f"model.family={rng.choice(['gpt2', 'llama', 'qwen3'])}", f"parallel.engine={rng.choice(['shm', 'gloo'])}",
            f"parallel.zero={rng.randint(0, 3)}"]
    if ranks % 2 == 0:
        axis = rng.choice(["data", "tensor", "pipeline", "context"])
        if axis != "data":
            keys.append(f"parallel.{axis}=2")
    if rng.random() < 0.1:  # above 64 MiB, copies that all ranks hold alike are kept once
        keys.append("model.vocab=200000")
    return ranks, keys


TEMPORARY = tempfile.mkdtemp(prefix="soak-")
MARK = f"SOAK={os.getpid()}"  # in the environment of everything that a drill starts


def leftovers():
    """Processes that drills have started, and folders."""
    mine = set()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if MARK.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    mine.add(f"process {entry.name}")
            except OSError:
                pass  # it ended, or is the kernel's
    mine.update(f"folder {f}" for place in (TEMPORARY, "/dev/shm") for f in pathlib.Path(place).glob("lockstep*"))
    return mine


def drill(program, rng, times):
    ranks, keys = layout(rng)
    faults = rng.sample(FAULTS, k=5)
    words = [str(program), "drill", *SMALL, *keys, "--nproc", str(ranks), "--seed", str(rng.randint(1, 10**9)), "--json",
             "--patience", "300", "--faults", ",".join(f"{name}:{rng.randint(1, times)}" for name in faults)]
    started = time.time()
    mark = dict([MARK.split("=")]) | {"TMPDIR": TEMPORARY}
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | mark)
    try:
        rows = json.loads(ran.stdout)["faults"]
    except (ValueError, KeyError):
        rows = []
    return words, ran, rows, time.time() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randint(1, 10**9))
    parser.add_argument("--times", type=int, default=4, help="the most strikes of one kind in one run")
    parser.add_argument("--minutes", type=float, default=0, help="end after so long; 0: when all faults have struck")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "lockstep")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    before, begun = leftovers(), time.time()
    struck, kinds, bad, drills = 0, {}, 0, 0
    while struck < options.faults and not (options.minutes and time.time() - begun > 60 * options.minutes):
        words, ran, rows, seconds = drill(options.program, rng, options.times)
        drills += 1
        for row in rows:
            struck += row.get("strikes", 0)
            kinds[row["fault"]] = kinds.get(row["fault"], 0) + row.get("strikes", 0)
        left = leftovers() - before
        if ran.returncode != 0 or left:
            bad += 1
            pathlib.Path(f"soak-failure-{bad}.txt").write_text(ran.stdout + ran.stderr)
            print(f"FAILED (exit {ran.returncode}{''.join(f', left: {x}' for x in sorted(left))}): {' '.join(words)}\n"
                  f"  soak-failure-{bad}.txt", flush=True)
            before |= left
        print(f"{struck} faults in {drills} drills, {bad} failed ({seconds:.0f} s)", flush=True)
    print(json.dumps({"faults": struck, "drills": drills, "failed": bad, "kinds": kinds, "seed": options.seed}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
