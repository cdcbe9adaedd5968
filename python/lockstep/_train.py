"""lockstep.train: starts the program, follows it, and behaves as a Python call does."""
import os
import queue
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

from . import _data, _module, _progress
from ._program import (LockstepError, PathLike, Preempted, RecipeError, Value, ask, error_of, json_of, key_values, key_words, program,
                       recipe_words, sentence)
from ._rows import row_of
from ._run import Run

OnStep = Callable[[Dict[str, Any]], Optional[bool]]


def train(recipe: PathLike = "first", run: Optional[PathLike] = None, *, model: Any = None, data: Any = None,
          eval_data: Any = None, loss: Optional[Callable[..., Any]] = None, nproc: Optional[int] = None,
          overrides: Optional[Mapping[str, Value]] = None, on_step: Optional[OnStep] = None, quiet: bool = False,
          **keys: Value) -> Run:
    """Trains a recipe and returns its run.

    recipe: a file, or the name of one that comes with the package ("first", "gpt2-124m").
    run: the run folder; the same call again resumes what is in it.
    model: a torch module of yours instead of the recipe's; `loss` its loss (export_module says which forms it has).
    data, eval_data: a path, (inputs, labels) as arrays or tensors, an array of tokens, or an iterable of texts,
      dictionaries (JSONL's rows), lists of tokens, or pairs (input, label).
    on_step: called with each new row of metrics while it trains; False stops the run, which saves (raises Preempted).
    Keys are the recipe's: steps=50, optim__lr=1e-3, or overrides={"optim.lr": 1e-3}.
    Ctrl-C saves and raises KeyboardInterrupt; an exception in on_step saves too and is raised again.
    """
    values = key_values(overrides, keys)
    if run is None and (model is not None or not _is_path_or_none(data) or not _is_path_or_none(eval_data)):
        run = os.path.join(str(values.get("log.folder", "runs")), str(values.get("run.name", "python")))
    folder = None if run is None else Path(run)
    if data is not None:
        values = {**_data.keys_of(data, folder or Path(), "data"), **values}
    if eval_data is not None:
        found = _data.keys_of(eval_data, folder or Path(), "eval_data")
        values = {"data.eval_path": found["data.path"], **values}
    if model is not None:
        values["model.from"] = str(_export(model, folder or Path(), loss).resolve())
    elif loss is not None:
        raise RecipeError("loss= is for a model of your own (model=); built-in families have theirs", 2)
    words = ["train", *recipe_words(recipe), "--json"]
    if folder is not None:
        words += ["--run", str(folder)]
    if nproc is not None:
        words += ["--nproc", str(nproc)]
    steps = values.get("run.steps")
    shown = (_progress.Notebook(int(steps) if steps is not None else None) if _progress.in_notebook() and not quiet
             else _progress.Lines(quiet))
    return _Training(words + key_words(values), folder, on_step, shown).run()


def plan(recipe: PathLike = "first", on: Optional[str] = None, overrides: Optional[Mapping[str, Value]] = None,
         **keys: Value) -> Dict[str, Any]:
    """What a run would take: with on="8xH100" time, memory and cost there, otherwise the memory on this machine."""
    words = (["plan", *recipe_words(recipe), "--json", "--on", on] if on is not None
             else ["train", *recipe_words(recipe), "--json", "--dry-run"])
    return json_of(ask(words + key_words(key_values(overrides, keys))))


def _is_path_or_none(data: Any) -> bool:
    return data is None or isinstance(data, (str, os.PathLike))


def _export(module: Any, folder: Path, loss: Any) -> Path:
    """Into the run folder. A run that has begun keeps its file: a new module has other first values, and they do not count."""
    inputs, labels = _data.shapes_of(folder)
    options: Dict[str, Any] = {"loss": loss}
    if inputs is not None and inputs[1].kind == "f":
        options["input"] = inputs[0]
    if labels is not None:
        options["labels"], options["targets"] = labels[0], labels[1].kind == "f"
    path = folder / "module.pt"
    if not (path.exists() and (folder / "config.toml").exists()):
        return _module.export_module(module, path, **options)
    again = _module.export_module(module, folder / "module.again.pt", **options)
    same = _module.code_of(again) == _module.code_of(path)
    again.unlink()
    if not same:
        raise RecipeError(f"the run in {folder} began with another module; give another run=, or remove that folder", 2)
    return path


class _Training:
    """One run of the program: its lines, its metrics and its end."""

    def __init__(self, words: List[str], folder: Optional[Path], on_step: Optional[OnStep], shown: _progress.Lines):
        self.words, self.folder, self.on_step, self.shown = words, folder, on_step, shown
        self.offset = self._metrics_size()  # what a run before this one has written is not new
        self.said: List[str] = []
        self.stopped = False

    def run(self) -> Run:
        process = subprocess.Popen([program(), *self.words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
        try:
            out = self._follow(process)
        except BaseException:  # Ctrl-C, or what on_step raises: the program saves and ends
            self._stop(process)
            raise
        finally:
            self.shown.end()
        if process.returncode == 0:
            return Run(json_of(out)["folder"])
        message = sentence(self.said) or f"lockstep train ended with {process.returncode}"
        if process.returncode == 75 and self.stopped:
            raise Preempted("on_step asked to stop: the run was saved, and the same call resumes it", 75)
        raise error_of(message, process.returncode)

    def _stop(self, process: "subprocess.Popen[str]") -> None:
        """On a terminal the program got the same Ctrl-C, in a notebook it did not; twice is the same request."""
        self.stopped = True
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            try:
                process.wait()
            except KeyboardInterrupt:  # again: at once
                process.kill()

    def _follow(self, process: "subprocess.Popen[str]") -> str:
        lines: "queue.Queue[Optional[str]]" = queue.Queue()
        out: List[str] = []
        readers = [threading.Thread(target=_pass_on, args=(process.stderr, lines), daemon=True),
                   threading.Thread(target=lambda: out.append(process.stdout.read() if process.stdout else ""), daemon=True)]
        for reader in readers:
            reader.start()
        while True:
            try:
                line = lines.get(timeout=0.1)
                if line is None:
                    break
                self._line(line)
            except queue.Empty:
                pass
            self._new_rows(process)
        for reader in readers:
            reader.join()
        process.wait()
        self._new_rows(process)
        return "".join(out)

    def _line(self, line: str) -> None:
        self.said.append(line)
        self.shown.say(line)
        found = re.match(r"folder\s+(.+?),", line)
        if found and self.folder is None:
            self.folder = Path(found.group(1))

    def _metrics_size(self) -> int:
        try:
            return (self.folder / "metrics.jsonl").stat().st_size if self.folder else 0
        except OSError:
            return 0

    def _new_rows(self, process: "subprocess.Popen[str]") -> None:
        size = self._metrics_size()
        if size < self.offset:  # a restart has taken back steps that it does again
            self.offset = size
        if size == self.offset or self.folder is None:
            return
        with open(self.folder / "metrics.jsonl", "rb") as file:
            file.seek(self.offset)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.splitlines():
            row = row_of(line)
            if row is None:
                continue
            self.shown.step(row)
            if self.on_step is not None and self.on_step(row) is False and not self.stopped:
                self.stopped = True
                process.send_signal(signal.SIGTERM)


def _pass_on(stream: Any, lines: "queue.Queue[Optional[str]]") -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)
