"""Lockstep from Python: starts the native program and reads what it writes. Needs no other package.

    import lockstep
    run = lockstep.train("first", steps=50)       # a recipe file, or "first": the built-in one
    print(run.metrics().tail())
    print(run.generate("this dog"))

Keys are the recipe's: steps=50 is run.steps (a last part that only one section has), optim__lr=1e-3 is optim.lr, and
overrides={"optim.lr": 1e-3} takes any of them. What the program refuses is a LockstepError with its sentence.
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Union

__all__ = ["LockstepError", "Metrics", "Run", "program", "train", "version"]

Value = Union[str, int, float, bool]


class LockstepError(RuntimeError):
    """What the program said, with its exit code: 1 failed, 2 rejected, 3 unusable data, 75 preempted and saved."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


def program() -> str:
    """The path of the native program; LOCKSTEP_PROGRAM names another."""
    own = Path(__file__).resolve().parent / "bin" / "lockstep"
    found = os.environ.get("LOCKSTEP_PROGRAM") or str(own)
    if not os.access(found, os.X_OK):
        raise LockstepError(f"there is no program at {found}; install lockstep-trainer again", 1)
    return found


def version() -> str:
    return subprocess.run([program(), "--version"], check=True, capture_output=True, text=True).stdout.split()[1]


class Metrics(List[Dict[str, Any]]):
    """Lines of metrics.jsonl: a list of dictionaries."""

    def tail(self, count: int = 5) -> "Metrics":
        return Metrics(self[-count:])

    def column(self, name: str) -> List[Any]:
        """Values of lines that have one."""
        return [row[name] for row in self if row.get(name) is not None]

    def to_pandas(self) -> Any:
        import pandas
        return pandas.DataFrame(self)

    def __repr__(self) -> str:
        names = ["step", "loss", "eval_loss", "lr", "tokens_per_s"]
        lines = ["  ".join(f"{name:>12}" for name in names)]
        for row in self:
            cells = (row.get(name) for name in names)
            lines.append("  ".join(f"{'' if cell is None else format(cell, '.6g'):>12}" for cell in cells))
        return "\n".join(lines)


class Run:
    """A run folder."""

    def __init__(self, folder: Union[str, os.PathLike]):
        self.folder = Path(folder)
        if not (self.folder / "config.toml").exists():
            raise LockstepError(f"{self.folder} is no run folder: it has no config.toml", 3)

    def __repr__(self) -> str:
        return f"lockstep.Run({str(self.folder)!r})"

    def _lines(self, name: str) -> Iterator[Dict[str, Any]]:
        path = self.folder / name
        if not path.exists():
            return
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):  # the last one may be on its way
                    yield json.loads(line)

    def metrics(self) -> Metrics:
        return Metrics(self._lines("metrics.jsonl"))

    def events(self) -> List[Dict[str, Any]]:
        return list(self._lines("events.jsonl"))

    def checkpoints(self) -> List[Path]:
        """Those that are complete, oldest first."""
        return sorted(path.parent for path in self.folder.glob("checkpoints/step-*/manifest.json"))

    def generate(self, prompt: str = "", tokens: int = 100, **options: Value) -> str:
        """Text with the prompt in front; options are those of `lockstep generate` (temperature=0.7, top_p=0.9)."""
        words = ["generate", str(self.folder), "--tokens", str(tokens), "--json"]
        if prompt:
            words += ["--prompt", prompt]
        for name, value in options.items():
            words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
        return _json_of(_ask(words))["text"]

    def eval(self, **overrides: Value) -> Dict[str, Any]:
        return _json_of(_ask(["eval", str(self.folder), "--json", *_keys(overrides)]))

    def resume(self, **options: Any) -> "Run":
        """Goes on where it stopped; run again when it is done, it changes nothing."""
        return train(str(self.folder / "config.toml"), run=self.folder, **options)


def train(recipe: Union[str, os.PathLike] = "first", run: Optional[Union[str, os.PathLike]] = None,
          nproc: Optional[int] = None, overrides: Optional[Mapping[str, Value]] = None,
          on_step: Optional[Callable[[Dict[str, Any]], None]] = None, quiet: bool = False,
          **keys: Value) -> Run:
    """Trains a recipe and returns its run. Ctrl-C stops it as on a terminal: it saves, and the same call goes on.

    on_step is called with each new line of metrics while it trains.
    """
    words = ["train", *([] if str(recipe) == "first" else [os.fspath(recipe)]), "--json"]
    if run is not None:
        words += ["--run", os.fspath(run)]
    if nproc is not None:
        words += ["--nproc", str(nproc)]
    words += [f"{name}={_text(value)}" for name, value in (overrides or {}).items()] + _keys(keys)
    process = subprocess.Popen([program(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said: List[str] = []
    follow = _Follow(on_step)
    try:
        assert process.stderr is not None and process.stdout is not None
        for line in process.stderr:
            said.append(line.rstrip("\n"))
            if not quiet:
                print(line, end="", file=sys.stderr, flush=True)
            follow.look(line)
        out = process.stdout.read()
    except KeyboardInterrupt:  # the program got the same signal: it saves
        process.wait()
        raise
    code = process.wait()
    if code != 0:
        raise LockstepError(_sentence(said) or f"lockstep train ended with {code}", code)
    made = Run(_json_of(out)["folder"])
    follow.finish(made)
    return made


class _Follow:
    """Hands new metrics on whenever the program says something, and at the end."""

    def __init__(self, use: Optional[Callable[[Dict[str, Any]], None]]):
        self.use, self.folder, self.seen = use, None, 0

    def look(self, line: str) -> None:
        if self.use is None:
            return
        found = re.match(r"folder\s+(\S+?),", line)
        if found:
            self.folder = found.group(1)
        if self.folder and (Path(self.folder) / "config.toml").exists():
            self.finish(Run(self.folder))

    def finish(self, run: Run) -> None:
        if self.use is None:
            return
        rows = run.metrics()
        for row in rows[self.seen:]:
            self.use(row)
        self.seen = len(rows)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _known_keys() -> List[str]:
    schema = json.loads(_ask(["schema"]))
    return [f"{section}.{name}" for section, body in schema["properties"].items()
            for name in body.get("properties", {})]


def _keys(given: Mapping[str, Value]) -> List[str]:
    words, known = [], None
    for name, value in given.items():
        key = name.replace("__", ".")
        if "." not in key:
            known = known or _known_keys()
            fits = [one for one in known if one.split(".")[1] == key]
            if len(fits) != 1:
                raise LockstepError(f"{name} could be {' or '.join(fits)}; write it as {fits[0].replace('.', '__')}" if fits
                                    else f"no recipe key is called {name}; `lockstep explain` lists them", 2)
            key = fits[0]
        words.append(f"{key}={_text(value)}")
    return words


def _sentence(lines: List[str]) -> str:
    """The program's last word, without its name."""
    said = [line for line in lines if line.startswith("lockstep:")]
    return said[-1][len("lockstep:"):].strip() if said else (lines[-1] if lines else "")


def _ask(words: List[str]) -> str:
    done = subprocess.run([program(), *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise LockstepError(_sentence(done.stderr.splitlines()) or f"lockstep {words[0]} ended with {done.returncode}",
                            done.returncode)
    return done.stdout


def _json_of(text: str) -> Dict[str, Any]:
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])
