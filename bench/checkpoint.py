"""Claim: a save stops training for at most 1.1x the plain copy of its bytes, writes at 80 % of a plain writer with fsync
and loads at 80 % of a plain reader; side by side with torch.save, torch.load and torch.distributed.checkpoint (async).

Usage: bench/checkpoint.py [--python PYTHON_WITH_TORCH] [--folder DIR] [--rounds 5] [--json] [key=value ...]
Words are recipe keys: they give the model whose weights and moments are saved. The peers save tensors of the same
bytes in the same folder, each in a process of its own, in turn. Reads come from the disk, not from its pages in memory."""
import argparse, json, os, pathlib, statistics, sys, tempfile, time
from command import run

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--program", default=str(root / "build" / "lockstep"))
parser.add_argument("--folder", default=tempfile.gettempdir())
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--json", action="store_true")
parser.add_argument("--peer", type=int, help=argparse.SUPPRESS)
parser.add_argument("keys", nargs="*")
a = parser.parse_args()
KEYS = a.keys or ["model.hidden=512", "model.layers=8", "model.heads=8", "run.device=cpu"]


def forget(path):
    """The pages of a file, out of memory."""
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            with open(file, "rb") as f:
                os.fsync(f.fileno())
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(action):
    began = time.perf_counter()
    result = action()
    return time.perf_counter() - began, result


def peer(total):
    """torch's own ways, on 96 tensors of the same bytes in all; one line of JSON."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    state = {f"t{k}": torch.rand(total // 96 // 4) for k in range(96)}
    rows = {"save": [], "load": [], "dcp_pause": [], "dcp_save": [], "dcp_load": []}
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        folder = pathlib.Path(folder)
        for k in range(a.rounds + 1):
            path = folder / "state.pt"

            def save():
                with open(path, "wb") as file:
                    torch.save(state, file)
                    file.flush()
                    os.fsync(file.fileno())

            rows["save"].append(timed(save)[0])
            forget(path)
            rows["load"].append(timed(lambda: torch.load(path, weights_only=True))[0])
            checkpoint = folder / f"dcp-{k}"
            began = time.perf_counter()
            future = dcp.async_save(state, checkpoint_id=str(checkpoint))
            rows["dcp_pause"].append(time.perf_counter() - began)
            future.result()
            rows["dcp_save"].append(time.perf_counter() - began)
            forget(checkpoint)
            rows["dcp_load"].append(timed(lambda: dcp.load(state, checkpoint_id=str(checkpoint)))[0])
    print(json.dumps({name: statistics.median(values[1:]) for name, values in rows.items()} | {"torch": torch.__version__}))


if a.peer:
    peer(a.peer)
    sys.exit()
ours = json.loads(run([a.program, "bench", "checkpoint", *KEYS, "--folder", a.folder, "--rounds", str(a.rounds), "--json"]))
theirs = json.loads(run([a.python, __file__, "--peer", str(ours["bytes"]), "--rounds", str(a.rounds), "--folder", a.folder]))
size = ours["bytes"] / 1e6
result = {"claim": "checkpoint", "pause_ratio": ours["pause_ms"] / ours["copy_ms"], "write_ratio": ours["plain_write_s"] / ours["write_s"],
          "load_ratio": ours["plain_read_s"] / ours["load_s"], "lockstep": ours, "torch": theirs, "rounds": a.rounds, "keys": KEYS}
if a.json:
    print(json.dumps(result))
    sys.exit()
print(f"{size:.0f} MB of weights and moments on {ours['device']}, medians of {a.rounds} rounds, torch {theirs['torch']}")
print(f"pause: lockstep {ours['pause_ms']:.1f} ms, plain copy {ours['copy_ms']:.1f} ms, ratio {result['pause_ratio']:.2f} (goal 1.1); "
      f"dcp.async_save {theirs['dcp_pause'] * 1e3:.1f} ms, torch.save {theirs['save'] * 1e3:.0f} ms")
print(f"write: lockstep {size / ours['write_s']:.0f} MB/s, plain writer {size / ours['plain_write_s']:.0f} MB/s, {result['write_ratio']:.0%} (goal 80 %); "
      f"torch.save {size / theirs['save']:.0f}, dcp {size / theirs['dcp_save']:.0f}")
print(f"load:  lockstep {size / ours['load_s']:.0f} MB/s, plain reader {size / ours['plain_read_s']:.0f} MB/s, {result['load_ratio']:.0%} (goal 80 %); "
      f"torch.load {size / theirs['load']:.0f}, dcp {size / theirs['dcp_load']:.0f}")
