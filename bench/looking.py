"""What looking costs the run that is looked at: a training that several others read, against one alone.

Two runs of one recipe take turns, a few seconds each, while the other is stopped (SIGSTOP), so that whatever else the machine
does disturbs both alike. Both log every step, more often than a run does by itself. One of them has log.chain=true and these around it: `lockstep top` on a terminal, the dashboard with a
browser's event stream and its questions, `metrics --listen` asked every five seconds, and `metrics -f` to TensorBoard, CSV, W&B
and MLflow. They are stopped with their run. Two figures:

  time        how much longer a step is: the median over pairs of neighbouring turns
  processors  the processor time of a step and of all that looks on while it runs, against that of the other: what other
              programs on the machine take away does not count

Usage: bench/looking.py [--pairs 60] [--turn 2] [--null] [--json] [KEY=VALUE ...]
--null leaves chain and lookers out, on both sides: what the machine alone makes of the comparison."""
import argparse, json, os, pathlib, pty, random, shutil, signal, statistics, subprocess, sys, tempfile, threading, time, urllib.request

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("keys", nargs="*", help="of the recipe")
parser.add_argument("--program", default=str(root / "build" / "lockstep"))
parser.add_argument("--pairs", type=int, default=60)
parser.add_argument("--turn", type=float, default=2, help="seconds")
parser.add_argument("--null", action="store_true")
parser.add_argument("--json", action="store_true")
a = parser.parse_args()

MODEL = ["model.layers=2", "model.hidden=128", "model.heads=4", "data.seq_len=128", "batch.global=16", "run.device=cpu", "run.threads=1",
         "log.every=1", "log.eval_every=0", "checkpoint.every=0", "run.steps=1000000"]
SINKS = ["tensorboard", "csv", "wandb", "mlflow"]
TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds(pids):
    total = 0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rpartition(") ")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICK
    return total


class Side:
    """A run and, perhaps, those who look at it; they go and stand together."""

    def __init__(self, folder, name, looked_at):
        self.folder, self.name, self.lookers = f"{folder}/{name}", name, []
        words = ["log.chain=true"] if looked_at else []
        self.run = self.start("train", *MODEL, *a.keys, *words, f"run.name={name}", f"log.folder={folder}", "-q")
        until(lambda: os.path.exists(self.metrics()) and len(self.rows()) > 2)
        if looked_at:
            self.look(folder)
        self.stop()

    def metrics(self):
        return self.folder + "/metrics.jsonl"

    def rows(self):
        with open(self.metrics()) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def start(self, *words, **streams):
        streams = {"stdout": subprocess.DEVNULL, "stdin": subprocess.DEVNULL, **streams}
        process = subprocess.Popen([a.program, *words], stderr=subprocess.DEVNULL, **streams)
        started.append(process)
        return process

    def look(self, folder):
        for kind in SINKS:
            self.lookers.append(self.start("metrics", self.folder, "--to", kind, "--out", f"{folder}/{self.name}-{kind}", "-f"))
        screen, theirs = pty.openpty()
        threading.Thread(target=drain, args=(screen,), daemon=True).start()
        self.lookers.append(self.start("top", self.folder, stdout=theirs, stdin=theirs))
        exporter = self.start("metrics", self.folder, "--listen", "0", stdout=subprocess.PIPE)
        dash = self.start("dash", folder, "--port", "0", "--json", stdout=subprocess.PIPE)
        self.lookers += [exporter, dash]
        threading.Thread(target=scrape, args=(exporter.stdout.readline().decode().strip(),), daemon=True).start()
        page = json.loads(dash.stdout.readline())
        threading.Thread(target=browse, args=(page, self.name), daemon=True).start()
        time.sleep(3)
        for one in self.lookers:
            if one.poll() is not None:
                sys.exit(f"{' '.join(one.args)} has ended with {one.returncode}")

    def pids(self):
        return [self.run.pid, *(one.pid for one in self.lookers)]

    def stop(self):
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)

    def turn(self):
        """Seconds of processors per step, and the wall time of a step in ms, of steps that lie in this turn as a whole."""
        rows, used = len(self.rows()), processor_seconds(self.pids())
        for pid in self.pids():
            os.kill(pid, signal.SIGCONT)
        time.sleep(a.turn)
        self.stop()
        new = self.rows()[rows:]
        used = processor_seconds(self.pids()) - used
        # The first step began before the turn.
        return used / max(len(new), 1), statistics.mean(row["step_ms"] for row in new[1:]) if len(new) > 2 else None


def until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            sys.exit("a run does not begin")
        time.sleep(0.1)


def drain(screen):
    while os.read(screen, 65536):
        pass


def scrape(address):
    while True:
        try:
            urllib.request.urlopen(address, timeout=60).read()
        except OSError:
            pass
        time.sleep(5)


def browse(page, run):
    """The event stream, and a question for the curve whenever it tells of something new, once a second at most."""
    base = page["url"].split("?")[0].rstrip("/")
    ask = lambda path: urllib.request.urlopen(
        urllib.request.Request(base + path, headers={"Authorization": "Bearer " + page["token"]}), timeout=600)
    asked = 0
    for line in ask("/api/live"):
        if line.startswith(b"data") and time.monotonic() - asked > 1:
            asked = time.monotonic()
            ask(f"/api/series?run={run}&metric=loss&points=500").read()


def median_and_range(values):
    """With the middle 90 % of medians of values drawn again from these."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return {"median": statistics.median(values), "low": medians[100], "high": medians[1900]}


started = []
folder = tempfile.mkdtemp(prefix="lockstep-looking.")
try:
    alone, watched = Side(folder, "alone", False), Side(folder, "watched", not a.null)
    times, processors = [], []
    for pair in range(a.pairs):
        order = (alone, watched) if pair % 2 == 0 else (watched, alone)
        turns = {side.name: side.turn() for side in order}
        if pair == 0:
            continue  # caches, first answers
        processors.append(turns["watched"][0] / turns["alone"][0] - 1)
        if turns["watched"][1] and turns["alone"][1]:  # enough steps in both
            times.append(turns["watched"][1] / turns["alone"][1] - 1)
    if len(times) < 2:
        sys.exit("too few steps fit into a turn: give more --pairs, a longer --turn or a smaller model")
    name_of = lambda words: " ".join([words[1], *(word for word in words[2:] if word in ("--listen", "--to") or word in SINKS)])
    lookers = {name_of(one.args): processor_seconds([one.pid]) for one in watched.lookers}
    result = {"time": median_and_range(times), "processors": median_and_range(processors), "pairs": len(times), "null": a.null,
              "step_ms": statistics.median(row["step_ms"] for row in alone.rows()), "load": os.getloadavg()[0], "goal": 0.005}
finally:
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)

if a.json:
    print(json.dumps(result | {"lookers_s": lookers}))
else:
    print(f"{result['pairs']} pairs of {a.turn:g} s, {result['step_ms']:.1f} ms per step, load {result['load']:.1f}")
    for name in ("time", "processors"):
        one = result[name]
        print(f"{name:10}  {100 * one['median']:+.2f} %  (90 % of redrawn medians: {100 * one['low']:+.2f} to {100 * one['high']:+.2f} %)")
    for name, seconds in sorted(lookers.items(), key=lambda item: -item[1]):
        print(f"  {100 * seconds / (a.turn * a.pairs):5.2f} % of a core  {name}")
