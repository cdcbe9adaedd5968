"""Reading batches side by side: `lockstep bench data`, PyTorch's DataLoader over Hugging Face datasets, and nanoGPT's get_batch.

    pip install torch datasets numpy && python3 bench/loader.py build/lockstep [ROUNDS] [TOKENS]

Random tokens in samples of 1024, 32 a batch, shuffled: a token file for Lockstep and nanoGPT, and for datasets (and Lockstep
again) a folder of save_to_disk with a column of samples. Two workers each, three seconds a round, the tools take turns. Medians of
wall time and of processor time, of workers too, are printed: on a busy machine only the latter compares. Each sample is whole
and on the CPU; nothing is tokenized on the way."""
import json, os, pathlib, resource, shutil, statistics, subprocess, sys, tempfile, time

LENGTH, BATCH, WORKERS, SECONDS = 1024, 32, 2, 3.0


def busy():
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def make(folder, tokens):
    import datasets, numpy
    samples = tokens // (LENGTH + 1)
    all_tokens = numpy.random.default_rng(1).integers(0, 50000, samples * (LENGTH + 1), dtype=numpy.uint16)
    all_tokens.tofile(folder / "tokens.bin")
    rows = all_tokens.astype(numpy.int32).reshape(samples, LENGTH + 1)
    datasets.Dataset.from_dict({"input_ids": list(rows)}).save_to_disk(folder / "saved")


def child(kind, folder):
    """In a process of its own, so that its workers' time is counted when it has ended them: tokens and seconds of reading."""
    import numpy, torch
    torch.set_num_threads(1)
    if kind == "nanogpt":
        data = numpy.memmap(folder + "/tokens.bin", dtype=numpy.uint16, mode="r")
        def batches():
            while True:
                places = torch.randint(len(data) - LENGTH, (BATCH,))
                yield torch.stack([torch.from_numpy(data[i : i + LENGTH].astype(numpy.int64)) for i in places]), \
                    torch.stack([torch.from_numpy(data[i + 1 : i + 1 + LENGTH].astype(numpy.int64)) for i in places])
    else:
        import datasets
        rows = datasets.load_from_disk(folder + "/saved").with_format("torch")
        loader = torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True, num_workers=WORKERS, prefetch_factor=4, persistent_workers=True)
        def batches():
            while True:
                for batch in loader:
                    yield batch["input_ids"][:, :-1], batch["input_ids"][:, 1:]
    source = batches()
    for _ in range(2 * WORKERS):
        next(source)
    tokens, begun, before = 0, time.perf_counter(), busy()
    while time.perf_counter() - begun < SECONDS:
        tokens += next(source)[0].numel()
    seconds = time.perf_counter() - begun
    source.close()
    loader = None  # ends the workers, whose time counts from then on
    print(json.dumps([tokens / seconds, tokens / (busy() - before)]))


def lockstep(program, path):
    out = subprocess.run([program, "bench", "data", f"data.path={path}", f"data.seq_len={LENGTH}", f"batch.global={BATCH}", f"data.workers={WORKERS}",
                          "data.field=input_ids", "--seconds", str(SECONDS), "--json"], check=True, stdout=subprocess.PIPE)
    row = json.loads(out.stdout)
    return [row["tokens_per_s"], row["tokens_per_processor_s"]]


def main():
    program, rounds, tokens = sys.argv[1], int((sys.argv[2:] or [3])[0]), int((sys.argv[3:] or [20_000_000])[0])
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        make(folder, tokens)
        peer = lambda kind: json.loads(subprocess.run([sys.executable, __file__, "--child", kind, str(folder)], check=True, stdout=subprocess.PIPE).stdout)
        tools = {"lockstep, token file": lambda: lockstep(program, folder / "tokens.bin"), "lockstep, saved folder": lambda: lockstep(program, folder / "saved"),
                 "DataLoader, datasets": lambda: peer("datasets"), "nanoGPT's get_batch": lambda: peer("nanogpt")}
        rows = {name: [] for name in tools}
        for _ in range(rounds):
            for name, run in tools.items():
                rows[name].append(run())
        for name, all_rows in rows.items():
            wall, processor = (statistics.median(row[i] / 1e6 for row in all_rows) for i in (0, 1))
            low, high = (pick(row[1] / 1e6 for row in all_rows) for pick in (min, max))
            print(f"{name:24} {wall:9.2f} million tokens/s   {processor:9.2f} million per processor second ({low:.2f} to {high:.2f})")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    child(*sys.argv[2:]) if sys.argv[1] == "--child" else main()
