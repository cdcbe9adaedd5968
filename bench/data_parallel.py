"""Why one process for all devices is the wrong shape: a DataParallel-style step beside one process a device.

    python bench/data_parallel.py [--workers 4] [--steps 20] [--json]

Both train the same small GPT in PyTorch on CPU cores, one core a worker, the same samples a step:
- one process: the weights are copied to every replica, replicas run in threads, their logits are collected on
  the first, which makes the loss; gradients are added up on the first, which alone updates. Replicas' backward
  passes run in threads of their own, as they would on GPUs.
- one process a worker: torch.distributed's DistributedDataParallel over Gloo.
"""

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, LAYERS, HEADS, SEQ, SAMPLES = 8192, 256, 4, 4, 128, 4  # samples: of one worker


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True)
            for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(SEQ), persistent=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return self.head(x)


def samples(count):
    tokens = torch.randint(0, VOCAB, (count, SEQ + 1))
    return tokens[:, :-1], tokens[:, 1:]


def on_threads(calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def one_process(workers, steps):
    """Milliseconds of each phase of each step."""
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    replicas = [copy.deepcopy(model) for _ in range(workers)]
    rows = []
    for _ in range(steps):
        inputs, labels = samples(SAMPLES * workers)
        times, last = {}, time.perf_counter()

        def mark(name):
            nonlocal last
            now = time.perf_counter()
            times[name] = 1000 * (now - last)
            last = now

        for replica in replicas:
            replica.zero_grad()
            for to, weights in zip(replica.parameters(), model.parameters()):
                to.data.copy_(weights.data)
        mark("copy weights")
        logits = [None] * workers
        parts = inputs.chunk(workers)

        def forward(w):
            logits[w] = replicas[w](parts[w])

        on_threads([lambda w=w: forward(w) for w in range(workers)])
        mark("forward")
        collected = torch.cat([part.detach() for part in logits]).requires_grad_()
        loss = F.cross_entropy(collected.view(-1, VOCAB), labels.reshape(-1))
        loss.backward()
        mark("collect logits, loss")
        grads = collected.grad.chunk(workers)
        on_threads([lambda w=w: logits[w].backward(grads[w]) for w in range(workers)])
        mark("backward")
        for parameter, *copies in zip(model.parameters(), *(replica.parameters() for replica in replicas)):
            parameter.grad = sum(one.grad for one in copies)
        mark("add up gradients")
        optimizer.step()
        mark("update")
        rows.append(times)
    parameters = 4 * sum(p.numel() for p in model.parameters())
    whole_logits = 4 * SAMPLES * workers * SEQ * VOCAB
    return rows, {"first": 4 * parameters + workers * parameters + 2 * whole_logits,
                  "others": 2 * parameters + 2 * whole_logits // workers}


def one_of_many(steps):
    """A rank of DistributedDataParallel; the first prints its step times."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(Gpt())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    times = []
    for _ in range(steps):
        inputs, labels = samples(SAMPLES)
        dist.barrier()
        began = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs).view(-1, VOCAB), labels.reshape(-1)).backward()
        optimizer.step()
        dist.barrier()
        times.append(1000 * (time.perf_counter() - began))
    if dist.get_rank() == 0:
        print(json.dumps(times))
    dist.destroy_process_group()


def many_processes(workers, steps):
    started = []
    for rank in range(workers):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(workers), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT="29517", OMP_NUM_THREADS="1")
        started.append(subprocess.Popen([sys.executable, __file__, "--rank-of", str(steps)], env=environment,
                                        stdout=subprocess.PIPE, text=True))
    out = [process.communicate()[0] for process in started]
    return json.loads(out[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank-of", type=int, default=0, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    if wanted.rank_of:
        return one_of_many(wanted.rank_of)
    rows, memory = one_process(wanted.workers, wanted.steps)
    rows = rows[2:]
    ddp = many_processes(wanted.workers, wanted.steps)[2:]
    phases = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    one = statistics.median(sum(row.values()) for row in rows)
    many = statistics.median(ddp)
    if wanted.json:
        print(json.dumps({"workers": wanted.workers, "one_process_ms": one, "phases_ms": phases,
                          "process_each_ms": many, "ratio": one / many, "bytes": memory}))
        return
    print(f"{wanted.workers} workers on {os.cpu_count()} cores, {SAMPLES} samples each, median of {len(rows)} steps")
    for name, ms in phases.items():
        print(f"  {name:<22}{ms:8.1f} ms")
    print(f"one process           {one:8.1f} ms")
    print(f"a process each        {many:8.1f} ms   {one / many:.2f}x faster")
    print(f"bytes on the first {memory['first'] / 2**20:.0f} MiB, on the others {memory['others'] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
