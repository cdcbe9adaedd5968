"""Modules and data of Python, trained by the program: python module_peer.py ROW, each in an empty folder.

Beside the program's own word stands PyTorch's: the same module, trained by a plain loop here.
"""
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import torch
from torch import nn

import lockstep

QUIET = {"quiet": True}
SMALL = {"run.device": "cpu", "run.threads": 1, "log.eval_every": 0, "optim.warmup": 0, "optim.schedule": "constant",
         "optim.weight_decay": 0.0, "optim.clip": 0.0, "data.eval_fraction": 0.0, "log.fingerprint": True}


def points(count=64, width=8, classes=3):
    rng = np.random.default_rng(1)
    labels = rng.integers(0, classes, count)
    inputs = (np.eye(classes, width)[labels] * 2 + rng.normal(size=(count, width)) * 0.5).astype(np.float32)
    return inputs, labels


def layers(drop=0.0, norm=False):
    torch.manual_seed(3)
    middle = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(8, 16), *middle, nn.Tanh(), nn.Dropout(drop), nn.Linear(16, 3))


def train(run, **options):
    overrides = {**SMALL, **options.pop("overrides", {})}
    return lockstep.train(run=run, overrides=overrides, **QUIET, **options)


def hash_of(run):
    return run.metrics().column("params_hash")[-1]


def same_as_pytorch():
    """Losses of SGD on whole batches, against a loop in PyTorch."""
    inputs, labels = points()
    steps, rate = 5, 0.5
    run = train("sgd", model=layers(), data=(inputs, labels),
                overrides={"run.steps": steps, "optim.name": "sgd", "optim.momentum": 0.0, "optim.lr": rate,
                           "batch.global": 64, "batch.slices": 4})
    net, wanted = layers(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(net(torch.from_numpy(inputs)), torch.from_numpy(labels))
        wanted.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = run.metrics().column("loss")
    assert np.allclose(found, wanted, atol=2e-5), (found, wanted)
    assert found[-1] < found[0] * 0.9, found
    state = run.state_dict()
    for name, value in net.state_dict().items():
        assert torch.allclose(state[name], value, atol=2e-5), name
    layers().load_state_dict(state)  # the names are the module's own


def every_layout():
    """Dropout and BatchNorm: the same bits on one rank and two, sharded, in a pipeline, recomputed."""
    data, batch = points(), {"run.steps": 6, "batch.global": 32, "batch.slices": 4, "batch.strands": 2}
    alone = hash_of(train("alone", model=layers(0.25, True), data=data, overrides=batch))
    for name, nproc, keys in (("two", 2, {}), ("zero", 2, {"parallel.zero": 3}), ("pipe", 2, {"parallel.pipeline": 2}),
                              ("again", 1, {"memory.recompute": "full"})):
        run = train(name, model=layers(0.25, True), data=data, nproc=nproc, overrides={**batch, **keys})
        assert hash_of(run) == alone, name
    assert hash_of(train("seed", model=layers(0.25, True), data=data, overrides={**batch, "run.seed": 2})) != alone


def resumes():
    """Stopped by on_step, by an exception and by Ctrl-C: the same call again gives the bits of an undisturbed run."""
    data, keys = points(), {"run.steps": 3000, "log.every": 5, "batch.global": 32, "batch.slices": 2}
    whole = hash_of(train("whole", model=layers(0.25, True), data=data, overrides=keys))
    again = lambda **more: train("cut", model=layers(0.25, True), data=data, overrides=keys, **more)

    def stop(row):
        return row["step"] < 100

    try:
        again(on_step=stop)
        raise SystemExit("it was not stopped")
    except lockstep.Preempted:
        pass

    def fail(row):
        raise ZeroDivisionError("mine")

    try:
        again(on_step=fail)
        raise SystemExit("the exception was lost")
    except ZeroDivisionError:
        pass
    threading.Thread(target=lambda: (time.sleep(1.0), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
    try:
        again(on_step=lambda row: time.sleep(0.1))
    except KeyboardInterrupt:
        pass
    assert hash_of(again()) == whole


class Heads(nn.Module):
    """Two heads, a loss of its own, a tied weight."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(8, 8, bias=False)
        self.second = nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))

    @torch.jit.export
    def loss(self, outputs, labels):
        kind = nn.functional.cross_entropy(outputs[:, :3], labels[:, 0], ignore_index=-1, reduction="none")
        odd = nn.functional.cross_entropy(outputs[:, 3:], labels[:, 1], ignore_index=-1, reduction="none")
        return torch.stack([kind, odd], 1)


def own_losses():
    inputs, labels = points()
    both = np.stack([labels, labels % 2], 1)
    both[5, 1] = -1  # does not count
    keys = {"run.steps": 3, "batch.global": 64, "batch.slices": 2, "optim.name": "sgd", "optim.momentum": 0.0, "optim.lr": 0.3}
    run = train("heads", model=Heads(), data=(inputs, both), overrides=keys)
    net, wanted = Heads(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    for _ in range(3):
        loss = net.loss(net(torch.from_numpy(inputs)), torch.from_numpy(both)).sum() / (both != -1).sum()
        wanted.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert np.allclose(run.metrics().column("loss"), wanted, atol=2e-5), (run.metrics().column("loss"), wanted)

    def squared(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return ((outputs - labels) ** 2).mean(1)

    torch.manual_seed(1)
    targets = (inputs[:, :2] * 0.5).astype(np.float32)
    fit = train("fit", model=nn.Linear(8, 2), data=(inputs, targets), loss=squared,
                overrides={**keys, "run.steps": 40, "optim.lr": 0.4})
    losses = fit.metrics().column("loss")
    assert losses[-1] < losses[0] / 5, losses


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.table, self.out = nn.Embedding(260, 16), nn.Linear(16, 260)

    def forward(self, x):
        return self.out(self.table(x))


def from_iterators():
    """Texts, tokens, pairs and a module over tokens."""
    texts = (f"line {k} of a text that is long enough\n" for k in range(200))
    keys = {"run.steps": 3, "data.seq_len": 16, "batch.global": 8}
    small = {**keys, "model.layers": 1, "model.hidden": 32, "model.heads": 2}
    assert train("texts", data=texts, overrides=small).metrics()
    assert train("ids", data=([k % 50] * 40 for k in range(30)), overrides=small).metrics()
    assert train("array", data=np.arange(5000) % 97, overrides=small).metrics()
    run = train("module", model=Tokens(), data=(f"line {k}\n" for k in range(500)), overrides={**keys, "run.steps": 30})
    losses = run.metrics().column("loss")
    assert abs(losses[0] - np.log(260)) < 0.5 and losses[-1] < losses[0], losses
    assert abs(run.eval(overrides={"data.eval_fraction": 0.2})["loss"] - losses[-1]) < 1.5
    x, y = points()
    assert train("pairs", model=layers(), data=zip(x, y), overrides={"run.steps": 2, "batch.global": 16}).metrics()


class Unscriptable(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(8, 3)

    def forward(self, x):
        return self.line(x * len(globals()))


class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(9, 3)

    def forward(self, x):
        return self.line(x)


def refusals():
    inputs, labels = points()
    quick = {"run.steps": 1, "batch.global": 16}

    def refused(kind, says, **options):
        try:
            train(options.pop("run", "refused"), overrides={**quick, **options.pop("keys", {})}, **options)
        except kind as error:
            missing = [word for word in says if word not in str(error)]
            assert not missing, (missing, str(error))
            return
        raise SystemExit(f"taken: {options}")

    refused(lockstep.ExportError, ["globals", "module_peer.py", "line "], model=Unscriptable(), data=(inputs, labels), run="a")
    refused(lockstep.RecipeError, ["mat1", "module_peer.py", "self.line(x)"], model=Narrow(), data=(inputs, labels), run="b")
    refused(lockstep.DataError, ["3 classes", "label 7"], model=layers(), data=(inputs, labels + 5), run="c")
    lockstep.export_module(Tokens(), "tokens.pt")
    refused(lockstep.RecipeError, ["inputs of the data are floats", "integers"], data=(inputs, labels), run="d",
            keys={"model.from": "tokens.pt", "data.seq_len": 8})
    refused(lockstep.RecipeError, ["row i"], model=layers(), data=(inputs, labels[:5]), run="e")
    refused(lockstep.LockstepError, ["parallel.tensor"], model=layers(), data=(inputs, labels), run="f", nproc=2,
            keys={"parallel.tensor": 2})
    with open("garbage.pt", "wb") as file:
        file.write(b"PK\3\4 this is no module")
    refused(lockstep.RecipeError, ["garbage.pt", "TorchScript"], data=(inputs, labels), run="g", keys={"model.from": "garbage.pt"})
    train("h", model=layers(), data=(inputs, labels), overrides=quick)
    refused(lockstep.RecipeError, ["another module"], model=Narrow(), data=(inputs, labels), run="h")
    refused(lockstep.RecipeError, ["data differs"], model=layers(), data=(inputs + 1, labels), run="h")
    refused(lockstep.RecipeError, ["floats"], data=(inputs, np.stack([labels] * 8, 1)), run="i", keys={"data.seq_len": 8})
    refused(lockstep.RecipeError, ["could be"], run="j", model=layers(), data=(inputs, labels), name="x")


def advice():
    """The command that a finished run proposes is one that its model can follow."""
    lockstep.export_module(nn.Sequential(nn.Embedding(137, 8), nn.Linear(8, 137)), "net.pt")
    train_it = [os.environ["LOCKSTEP_PROGRAM"], "train", "model.from=net.pt", "run.steps=2", "data.seq_len=8", "batch.global=4", "run.device=cpu"]
    said = subprocess.run(train_it, capture_output=True, text=True, check=True).stderr
    proposed = next(line for line in said.splitlines() if line.startswith("next: lockstep ")).split()[2:]
    subprocess.run([os.environ["LOCKSTEP_PROGRAM"], *proposed], check=True)


class Table:
    """Stands for pandas', polars' and pyarrow's tables, which are not all installed here: iterated over, it gives columns."""

    columns = ["text"]

    def __init__(self, method, rows):
        self.iloc = None
        setattr(self, method, lambda *_, **__: rows)

    def __iter__(self):
        return iter(self.columns)


def tables():
    """Rows of tables, arrays of texts, NumPy's values in rows and keys; what would be read as something else is refused."""
    texts = [f"line {k} of a text that is long enough\n" for k in range(40)]
    rows = [{"text": text, "score": np.float32(0.5), "tags": np.arange(2)} for text in texts]
    small = {"run.steps": np.int64(1), "data.seq_len": 16, "batch.global": 8, "model.layers": 1, "model.hidden": 32, "model.heads": 2,
             "log.fingerprint": np.bool_(True)}
    hashes = {hash_of(train(name, data=data, overrides=small)) for name, data in (
        ("to_dict", Table("to_dict", rows)), ("iter_rows", Table("iter_rows", rows)), ("to_pylist", Table("to_pylist", rows)),
        ("strings", np.array(texts)), ("objects", np.array(texts, dtype=object)))}
    assert len(hashes) == 1, hashes
    lines = [f"runs_{k}.jsonl" for k in range(2)]
    for name in lines:
        with open(name, "w", encoding="utf-8") as file:
            file.writelines('{"text": "some words and some more"}\n' for _ in range(20))
    run = train("paths", overrides={**small, "data.path": lines})  # a list of files
    assert run.generate("-a", tokens=2, temperature=0).startswith("-a")  # begins like an option
    assert run.generate("a", tokens=9, stop=["b", "c"]).startswith("a")
    for data, says in (({"text": texts}, "list of dictionaries"), (torch.utils.data.DataLoader([1, 2]), "its dataset"),
                       (["a", {"text": "b"}], "item 2 is a dict"), ([{"text": object()}], "item 1 cannot be written"),
                       (np.array([1, 2**31]), "31 bits")):
        try:
            train("refused", data=data, overrides=small)
            raise SystemExit(f"taken: {says}")
        except lockstep.RecipeError as error:
            assert says in str(error), error
    for name, says in (("stepz", "did you mean run__steps (run.steps)?"), ("learning_rate", "did you mean optim__lr"),
                       ("epochs", "run.steps = epochs"), ("bf16", 'write precision__compute="bf16"')):
        try:
            lockstep.train("first", quiet=True, **{name: 1})
            raise SystemExit(f"taken: {name}")
        except lockstep.RecipeError as error:
            assert says in str(error) and error.number == "LS0101", error
    assert lockstep.plan("first", steps=3)["steps"] == 3


def everything_else():
    """state_dict without torch, plans, recipes, tokenizers."""
    run = train("small", overrides={"run.steps": 2, "model.layers": 1, "model.hidden": 32, "model.heads": 2})
    texts = run.generate(["this dog", "the dog"], max_new_tokens=2, temperature=0)
    assert [text.startswith(begin) for text, begin in zip(texts, ("this dog", "the dog"))] == [True] * 2, texts
    assert len(run.generate("this dog", samples=3, tokens=2)) == 3 and run.generate([]) == []
    assert texts[0] == run.generate("this dog", tokens=2, temperature=0)
    arrays = run.state_dict(framework="numpy")
    tensors = run.state_dict(framework="torch")
    assert arrays.keys() == tensors.keys() and len(arrays) > 5
    for name, array in arrays.items():
        assert isinstance(array, np.ndarray) and np.array_equal(array, tensors[name].numpy()), name
    assert run.finished() and run.checkpoint(2).name == "step-00000002"
    assert "<svg" in run.plot()
    assert {"first", "gpt2-124m"} <= lockstep.recipes().keys()
    plan = lockstep.plan("gpt2-124m", on="8xH100")
    assert plan, plan
    from lockstep._progress import picture
    html = picture(list(run.metrics()), 2)
    assert "step 2 of 2" in html and "<svg" in html
    tokenizers = os.environ.get("LOCKSTEP_TOKENIZER")
    if tokenizers:
        tokenizer = lockstep.tokenizer(tokenizers)
        text = "Hello world, it's 2026!"
        ids = tokenizer.encode(text, add_special=False)
        assert ids and all(0 <= one < len(tokenizer) for one in ids)
        assert tokenizer.decode(ids) == text, tokenizer.decode(ids)
    try:
        lockstep.tokenizer("nowhere")
        raise SystemExit("taken")
    except lockstep.DataError as error:
        assert "nowhere" in str(error)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
