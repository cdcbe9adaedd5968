"""A run folder: what a run was, what it measured and what it saved."""
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

from . import _tensors
from ._rows import row_of
from ._program import DataError, PathLike, RecipeError, Value, as_text, ask, json_of, key_values, key_words, option_words


class Metrics(List[Dict[str, Any]]):
    """Lines of metrics.jsonl: a list of dictionaries, and a table when it is printed."""

    def tail(self, count: int = 5) -> "Metrics":
        return Metrics(self[-count:])

    def column(self, name: str) -> List[Any]:
        """Values of lines that have one."""
        return [row[name] for row in self if row.get(name) is not None]

    def to_pandas(self) -> Any:
        import pandas  # type: ignore
        return pandas.DataFrame(list(self))

    def to_numpy(self, name: str = "loss") -> Any:
        """[lines, 2]: the step and that value."""
        import numpy
        return numpy.array([(row["step"], row[name]) for row in self if row.get(name) is not None], dtype=float)

    def __repr__(self) -> str:
        names = ["step", "loss", "eval_loss", "lr", "tokens_per_s"]
        lines = ["  ".join(f"{name:>12}" for name in names)]
        for row in self:
            cells = (row.get(name) for name in names)
            lines.append("  ".join(f"{'' if cell is None else format(cell, '.6g'):>12}" for cell in cells))
        return "\n".join(lines)


class Picture(str):
    """An SVG picture, shown by notebooks."""

    def _repr_svg_(self) -> str:
        return str(self)


class Run:
    """A run folder, of a run that is done, trains elsewhere or was stopped."""

    def __init__(self, folder: PathLike):
        self.folder = Path(folder)
        if not (self.folder / "config.toml").exists():
            raise DataError(f"{self.folder} is no run folder: it has no config.toml", 3)

    def __repr__(self) -> str:
        return f"lockstep.Run({str(self.folder)!r})"

    def _lines(self, name: str) -> Iterator[Dict[str, Any]]:
        path = self.folder / name
        if not path.exists():
            return
        with open(path, encoding="utf-8") as file:
            for line in file:
                row = row_of(line) if line.endswith("\n") else None  # the last one may be on its way
                if row is not None:
                    yield row

    def metrics(self) -> Metrics:
        return Metrics(self._lines("metrics.jsonl"))

    def follow(self, every: float = 1.0, timeout: Optional[float] = None) -> Iterator[Metrics]:
        """All rows so far, again whenever there are new ones, until the run has ended, or `timeout` seconds have brought none.

        for rows in lockstep.Run("runs/first").follow():  # a run that trains elsewhere; it does not notice
            print(rows.tail(1))
        """
        began, seen = time.monotonic(), -1
        while True:
            ended = any(event.get("event") in ("finished", "preempted") for event in self.events()[-3:])
            rows = self.metrics()
            if len(rows) != seen:
                seen, began = len(rows), time.monotonic()
                yield rows
            elif ended or (timeout is not None and time.monotonic() - began >= timeout):
                return
            else:
                time.sleep(every)

    def histograms(self, block: Optional[str] = None) -> List[Dict[str, Any]]:
        """Of gradients, with log.histograms: rows with step, block, edges and counts (matplotlib: stairs(counts, edges))."""
        return [row for row in self._lines("histograms.jsonl") if block is None or row.get("block") == block]

    def events(self) -> List[Dict[str, Any]]:
        return list(self._lines("events.jsonl"))

    def finished(self) -> bool:
        """Whether its last step is done."""
        return any(event.get("event") == "finished" for event in self.events())

    def checkpoints(self) -> List[Path]:
        """Those that are complete, oldest first."""
        return sorted(path.parent for path in self.folder.glob("checkpoints/step-*/manifest.json"))

    def checkpoint(self, step: Optional[int] = None) -> Path:
        """That of a step, or the newest."""
        found = self.checkpoints()
        if step is not None:
            found = [path for path in found if path.name == f"step-{step:08d}"]
        if not found:
            raise DataError(f"{self.folder} has no complete checkpoint" + ("" if step is None else f" of step {step}"), 3)
        return found[-1]

    def state_dict(self, step: Optional[int] = None, framework: str = "auto") -> Dict[str, Any]:
        """Weights by name: torch tensors where torch is imported, else NumPy arrays; mapped, not copied.

        module.load_state_dict(run.state_dict()) for a model of your own; BatchNorm's statistics are among them.
        """
        return _tensors.state_dict(self.checkpoint(step), framework)

    def transformers(self, step: Optional[int] = None, **options: Any) -> Any:
        """The checkpoint of a built-in family as a transformers model."""
        from transformers import AutoModelForCausalLM  # type: ignore
        return AutoModelForCausalLM.from_pretrained(str(self.checkpoint(step)), **options)

    def generate(self, prompt: Union[str, Sequence[str]] = "", tokens: int = 100, **options: Any) -> Any:
        """Text with the prompt in front; a list for a list of prompts, or with samples=3. Options are those of
        `lockstep generate` (temperature=0.7, top_p=0.9); tokens may also be called max_new_tokens."""
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        if not all(isinstance(one, str) for one in prompts):
            raise RecipeError("prompts are texts: generate(\"The dog\") or generate([\"The dog\", \"A cat\"])", 2)
        tokens = options.pop("max_new_tokens", options.pop("max_tokens", tokens))
        words = ["generate", str(self.folder), "--tokens", as_text(tokens), "--json"]
        if prompts != [""]:
            words += ["--prompt=" + one for one in prompts]  # one word: a prompt may begin with a dash
        said = ask(words + option_words(options)) if prompts else ""
        texts = [str(json.loads(line)["text"]) for line in said.splitlines() if line.startswith("{")]
        return texts[0] if isinstance(prompt, str) and len(texts) == 1 else texts

    def eval(self, overrides: Optional[Dict[str, Value]] = None, **keys: Value) -> Dict[str, Any]:
        """What `lockstep eval` reports; keys name other data: eval(data__path="held-out.txt")."""
        return json_of(ask(["eval", str(self.folder), "--json", *key_words(key_values(overrides, keys))]))

    def export(self, folder: PathLike, **options: Value) -> Path:
        """Weights as a Hugging Face folder; options are those of `lockstep export` (merge=True for LoRA)."""
        ask(["export", str(self.folder), os.fspath(folder), *option_words(options)])
        return Path(folder)

    def plot(self, metric: str = "loss") -> Picture:
        """Its curve as SVG; a notebook shows it."""
        return Picture(ask(["plot", str(self.folder), "--metric", metric, "--out", "-"]))

    def resume(self, **options: Any) -> "Run":
        """Resumes where it stopped; when it is done, nothing changes."""
        from ._train import train
        return train(self.folder / "config.toml", run=self.folder, **options)


def open_run(folder: Union[str, "os.PathLike[str]"]) -> Run:
    return Run(folder)
