"""Tokenizing a file side by side: `lockstep tokenize`, `tokenizers` and `gigatoken`, with two threads each.

    pip install tokenizers gigatoken && python3 bench/tokenize_files.py build/lockstep tokenizer.json corpus.txt [ROUNDS]

The tools take turns, so that they share whatever else the machine does; medians of wall time and of processor time are printed. Loading
the tokenizer counts for none of them. `tokenizers` gets the first 2 MB, in documents of 200 lines: its speed does not depend on the size.
Lockstep also writes its token file; gigatoken keeps the ids in memory."""
import json, os, pathlib, resource, statistics, subprocess, sys, tempfile, time

THREADS = "2"
SMALL = 2_000_000


def child(kind, tokenizer, corpus):
    """Runs in a process of its own: seconds, processor seconds, bytes, tokens."""
    if kind == "gigatoken":
        import gigatoken
        owner = gigatoken.Tokenizer(tokenizer)
        work = lambda: len(owner.encode_files(gigatoken.TextFileSource([corpus]))[0])
        owner.encode_files(gigatoken.TextFileSource([__file__]))  # what it imports when it is first used
        size = os.path.getsize(corpus)
    else:
        from tokenizers import Tokenizer
        owner = Tokenizer.from_file(tokenizer)
        lines = open(corpus, encoding="utf-8", errors="replace").read(SMALL).split("\n")
        documents = ["\n".join(lines[i : i + 200]) for i in range(0, len(lines), 200)]
        work = lambda: sum(len(one.ids) for one in owner.encode_batch_fast(documents))
        size = sum(len(one.encode()) for one in documents)
    before, begun = processor_seconds(resource.RUSAGE_SELF), time.perf_counter()
    tokens = work()
    print(json.dumps([time.perf_counter() - begun, processor_seconds(resource.RUSAGE_SELF) - before, size, tokens]))


def processor_seconds(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def lockstep(program, tokenizer, corpus):
    """What the command needs for the corpus, less what it needs for a file of one word."""
    def run(file):
        with tempfile.TemporaryDirectory() as folder:
            before = processor_seconds(resource.RUSAGE_CHILDREN)
            out = subprocess.run(["taskset", "-c", "0,1", program, "tokenize", file, "--tokenizer", tokenizer, "--out", folder + "/out", "--json"],
                                 check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            report = json.loads(out.stdout)
            return report["seconds"], processor_seconds(resource.RUSAGE_CHILDREN) - before, report["bytes"], report["tokens"]
    with tempfile.NamedTemporaryFile(suffix=".txt") as word:
        word.write(b"word")
        word.flush()
        idle = run(word.name)[1]
    seconds, busy, size, tokens = run(corpus)
    return [seconds, busy - idle, size, tokens]


def main():
    program, tokenizer, corpus = sys.argv[1:4]
    results = {"lockstep": [], "gigatoken": [], "tokenizers": []}
    environment = {**os.environ, "RAYON_NUM_THREADS": THREADS, "TOKENIZERS_PARALLELISM": "true"}
    for _ in range(int(sys.argv[4]) if len(sys.argv) > 4 else 3):
        for kind, rows in results.items():
            if kind == "lockstep":
                rows.append(lockstep(program, tokenizer, corpus))
            else:
                out = subprocess.run(["taskset", "-c", "0,1", sys.executable, __file__, "--child", kind, tokenizer, corpus], env=environment, check=True, stdout=subprocess.PIPE)
                rows.append(json.loads(out.stdout))
    for kind, rows in results.items():
        wall, busy = (statistics.median(row[2] / 1e6 / row[i] for row in rows) for i in (0, 1))
        print(f"{kind:11} {wall:8.1f} MB/s   {busy:8.1f} MB per processor second   {rows[0][3]} tokens")


if __name__ == "__main__":
    child(*sys.argv[2:]) if sys.argv[1] == "--child" else main()
