#!/usr/bin/env python3
"""Drills with random faults, models and layouts until so many faults have struck: tools/soak.py --faults 1000 --jobs 4

Each drill compares the bits with those of an undisturbed run. Nothing may be left over, neither a process nor a folder: each
drill has a mark in its environment and a temporary folder of its own, so that drills, and whole soaks, run side by side.
What a drill does follows from the seed and its number alone; a failure prints the command that repeats it and keeps its files.
Also from a build folder that was copied elsewhere: --program build/lockstep, with LOCKSTEP_TORCH as for ./dev.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMALL = ("model.layers=2 model.hidden=64 model.heads=4 data.seq_len=32 batch.global=16 batch.slices=8 batch.strands=8 "
         "run.device=cpu").split()



def faults_of(program, variables):
    """The kinds of faults that this program knows: what it says to one that it does not."""
    ran = subprocess.run([str(program), "drill", "--faults", "?"], capture_output=True, text=True, check=False, env=variables)
    found = re.search(r"they are ([a-z, -]+)", " ".join(ran.stderr.split()))
    if not found:
        sys.exit(f"{program} does not say which faults it knows: {ran.stderr.strip()}")
    return [name.strip() for name in found[1].split(",") if name.strip()]


def layout(rng):
    """Keys of a random layout, with the number of ranks that it takes."""
    ranks = rng.randint(2, 8)
    keys = [f"model.family={rng.choice(['gpt2', 'llama', 'qwen3'])}", f"parallel.engine={rng.choice(['shm', 'gloo'])}",
            f"parallel.zero={rng.randint(0, 3)}"]
    axes = ["tensor", "pipeline", "context"]
    if ranks % 2 == 0 and rng.random() < 0.75:
        axis = rng.choice(axes)
        keys.append(f"parallel.{axis}=2")
        if axis == "tensor" and rng.random() < 0.5:
            keys.append("parallel.sequence=true")
        if ranks % 4 == 0 and rng.random() < 0.4:
            keys.append(f"parallel.{rng.choice([other for other in axes if other != axis])}=2")
    elif ranks in (4, 8) and rng.random() < 0.5:
        keys.append("parallel.shard=2")
    if rng.random() < 0.3:
        keys.append("precision.compute=bf16")
    if rng.random() < 0.1:  # above 64 MiB, copies that all ranks hold alike are kept once
        keys.append("model.vocab=200000")
    return ranks, keys


def environment(temporary, mark):
    """What a drill runs in: its mark, its own temporary folder, and the libraries of a build that was moved."""
    variables = {name: value for name, value in os.environ.items() if name != "SOAK"}
    variables.update(SOAK=mark, TMPDIR=str(temporary))
    if "LOCKSTEP_TORCH" in variables:
        places = [variables.get("LD_LIBRARY_PATH", ""), f"{variables['LOCKSTEP_TORCH']}/lib"]
        variables["LD_LIBRARY_PATH"] = ":".join(place for place in places if place)
    return variables


def processes_of(mark):
    """Everything that a drill has started and that lives."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"SOAK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass  # it ended, or is the kernel's
    return found


def unmount_below(folder):
    for line in pathlib.Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        if line.split()[1].startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", line.split()[1]], check=False)


class Soak:
    def __init__(self, options):
        self.options = options
        self.begun = time.time()
        self.deadline = self.begun + 60 * options.minutes if options.minutes else None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
        self.known = options.kinds.split(",") if options.kinds else faults_of(options.program, environment(self.folder, "names"))
        self.lock = threading.Lock()
        self.ending = threading.Event()  # no drill is waited for any more
        self.next = 0
        self.faults = self.drills = self.abandoned = 0
        self.kinds, self.failed, self.skipped = {}, [], {}

    def kinds_of(self, number):
        """The faults of a drill: the next of all kinds, which are shuffled once they have all struck."""
        count = min(5, len(self.known))
        first = (number - 1) * count
        chosen = []
        for place in range(first, first + count):
            turn, at = divmod(place, len(self.known))
            chosen.append(random.Random(f"{self.options.seed} kinds {turn}").sample(self.known, k=len(self.known))[at])
        return list(dict.fromkeys(chosen))  # two shuffles may meet in one drill

    def wanted(self, number):
        """The words of a drill, from the seed and its number alone."""
        rng = random.Random(f"{self.options.seed} {number}")
        ranks, keys = layout(rng)
        faults = self.kinds_of(number)
        return ["drill", *SMALL, *keys, "--nproc", str(ranks), "--seed", str(rng.randint(1, 10**9)), "--json", "--patience", "300",
                *(["--steps", str(self.options.steps)] if self.options.steps else []),
                "--faults", ",".join(f"{name}:{rng.randint(1, self.options.times)}" for name in faults)]

    def take(self):
        """The number of the next drill; none: it is enough."""
        with self.lock:
            late = self.deadline is not None and time.time() > self.deadline
            if self.faults >= self.options.faults or late or self.ending.is_set():
                return None
            self.next += 1
            return self.next

    def drill(self, number):
        words = self.wanted(number)
        mark = f"{os.getpid()}-{self.options.seed}-{number}"
        temporary = self.folder / str(number)
        temporary.mkdir()
        started = time.time()
        ran = subprocess.Popen([str(self.options.program), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=environment(temporary, mark), cwd=temporary, start_new_session=True)
        output = []
        reader = threading.Thread(target=lambda: output.append(ran.stdout.read()), daemon=True)
        reader.start()
        while ran.poll() is None:
            if self.ending.wait(0.1) or (self.deadline and time.time() > self.deadline + self.options.last):
                break
        abandoned = ran.poll() is None
        if abandoned:
            ran.kill()  # its runs go with it
            ran.wait()
        left = [] if abandoned else self.left_over(mark, temporary)
        for process in processes_of(mark):
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                pass
        reader.join(10)
        self.judge(number, words, ran.returncode, "".join(output), left, abandoned, time.time() - started)
        unmount_below(temporary)
        shutil.rmtree(temporary, ignore_errors=True)

    @staticmethod
    def left_over(mark, temporary):
        """A process that is on its way out gets a moment."""
        until = time.time() + 20
        while (processes := processes_of(mark)) and time.time() < until:
            time.sleep(0.2)
        left = []
        for process in processes:
            try:
                words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                left.append(f"process {process} ({words[:120].strip()})")
            except OSError:
                pass
        return left + [f"folder {entry.name}" for entry in temporary.iterdir()]

    def judge(self, number, words, code, output, left, abandoned, seconds):
        try:
            rows = json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{")))["faults"]
        except (StopIteration, ValueError, KeyError):
            rows = []
        with self.lock:
            if abandoned:
                self.abandoned += 1
                return
            self.drills += 1
            for row in rows:
                self.faults += row.get("strikes", 0)
                self.kinds[row["fault"]] = self.kinds.get(row["fault"], 0) + row.get("strikes", 0)
                if row.get("skipped"):
                    self.skipped[row["fault"]] = row["skipped"]
            if code != 0 or left:
                self.failed.append(number)
                self.keep(number, words, code, output, left)
            print(f"{self.faults} faults in {self.drills} drills, {len(self.failed)} failed (drill {number}: {seconds:.0f} s)",
                  flush=True)

    def same_drills(self):
        kinds = f" --kinds {self.options.kinds}" if self.options.kinds else ""
        steps = f" --steps {self.options.steps}" if self.options.steps else ""
        return f"--seed {self.options.seed} --times {self.options.times}{steps}{kinds}"

    def keep(self, number, words, code, output, left):
        """What a failed drill printed and wrote, and how to repeat it."""
        kept = pathlib.Path(self.options.out) / f"soak-failure-{self.options.seed}-{number}"
        kept.mkdir(parents=True, exist_ok=True)
        alone = shlex.join([str(self.options.program), *words])
        whole = f"tools/soak.py {self.same_drills()} --only {number}"
        (kept / "output.txt").write_text("\n".join([alone, *left, output]), encoding="utf-8")
        shutil.copytree(self.folder / str(number), kept / "files", dirs_exist_ok=True, ignore_dangling_symlinks=True,
                        ignore=shutil.ignore_patterns("*.safetensors", "*.snapshot", "filler"))
        print(f"FAILED drill {number}, exit {code}{''.join(f', left: {one}' for one in left)}\n  again: {whole}\n"
              f"  alone: {alone}\n  files: {kept}", flush=True)

    def work(self):
        while (number := self.take()) is not None:
            self.drill(number)

    def run(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self.ending.set())
        try:
            if self.options.only:
                for number in self.options.only:
                    self.drill(number)
                return
            with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
                done = [pool.submit(self.work) for _ in range(self.options.jobs)]
            for one in done:
                one.result()
        finally:
            unmount_below(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)

    def summary(self):
        options = self.options
        kinds = " ".join(f"{name} {count}" for name, count in sorted(self.kinds.items()))
        parts = [f"soak: seed {options.seed}: {self.faults} faults in {self.drills} drills, {len(self.failed)} failed, "
                 f"{self.abandoned} not finished, {time.time() - self.begun:.0f} s", kinds]
        never = [name for name in self.known if not self.kinds.get(name)]
        if never and not options.only:
            parts.append("never struck: " + " ".join(never))
        if self.failed:
            parts.append(f"again: tools/soak.py {self.same_drills()} --only {' '.join(map(str, self.failed))}")
        return "; ".join(part for part in parts if part)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=1000, help="how many faults are to strike (1000)")
    parser.add_argument("--jobs", type=int, default=1, help="drills beside each other (1); each has 2 to 8 ranks")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randint(1, 10**9))
    parser.add_argument("--only", type=int, nargs="+", help="the drills of the seed with these numbers, nothing else")
    parser.add_argument("--kinds", help="only these kinds of faults, comma-separated (all that the program knows)")
    parser.add_argument("--times", type=int, default=4, help="the most strikes of one kind in one run (4)")
    parser.add_argument("--steps", type=int, default=0, help="the least steps of a run (as many as take some seconds)")
    parser.add_argument("--minutes", type=float, default=0, help="begin no drill after so long; 0: when all faults have struck")
    parser.add_argument("--last", type=float, default=60, help="with --minutes: seconds that drills then have to end (60)")
    parser.add_argument("--out", default=".", help="where folders of failed drills are kept (.)")
    parser.add_argument("--json", type=pathlib.Path, help="write the summary to this file too")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "lockstep")
    options = parser.parse_args()
    options.program = options.program.resolve()
    if not os.access(options.program, os.X_OK):
        parser.error(f"{options.program} is not there: build first, or name it with --program")
    soak = Soak(options)
    print(f"seed {options.seed}", flush=True)
    soak.run()
    print(soak.summary(), flush=True)
    if options.json:
        options.json.write_text(json.dumps({
            "seed": options.seed, "faults": soak.faults, "drills": soak.drills, "failed": soak.failed,
            "not_finished": soak.abandoned, "kinds": soak.kinds, "skipped": soak.skipped,
            "seconds": time.time() - soak.begun}) + "\n", encoding="utf-8")
    return 1 if soak.failed or (soak.drills == 0) else 0


if __name__ == "__main__":
    sys.exit(main())
