"""The native program: where it is, how it is asked, and what it refuses."""
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

Value = Union[str, int, float, bool, Sequence[Union[str, int, float, bool]]]
PathLike = Union[str, "os.PathLike[str]"]


class LockstepError(RuntimeError):
    """What the program said. `code` is its exit code, `number` its LS code ("LS0107") if it named one."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code
        found = re.search(r"\bLS\d{4}\b", message)
        self.number: Optional[str] = found.group(0) if found else None


class RecipeError(LockstepError, ValueError):
    """A recipe, an option or an environment that is refused (exit code 2). Nothing was started."""


class DataError(LockstepError):
    """Data or a checkpoint that cannot be used (exit code 3)."""


class Preempted(LockstepError):
    """Asked to stop, and saved (exit code 75): the same call resumes."""


def error_of(message: str, code: int) -> LockstepError:
    kinds = {2: RecipeError, 3: DataError, 75: Preempted}
    return kinds.get(code, LockstepError)(message, code)


def program() -> str:
    """The path of the native program; LOCKSTEP_PROGRAM names another."""
    own = Path(__file__).resolve().parent / "bin" / "lockstep"
    found = os.environ.get("LOCKSTEP_PROGRAM") or str(own)
    if not os.access(found, os.X_OK):
        raise LockstepError(f"there is no program at {found}; install lockstep-trainer again")
    return found


def library() -> Path:
    """The path of liblockstep.so, which the program is made of."""
    binary = Path(program()).resolve()
    for place in (binary.parent.parent / "lib", binary.parent / "src" / "lockstep", binary.parent):
        if (place / "liblockstep.so").exists():
            return place / "liblockstep.so"
    raise LockstepError(f"there is no liblockstep.so beside {binary}; install lockstep-trainer again")


def version() -> str:
    return ask(["--version"]).split()[1]


def ask(words: List[str]) -> str:
    """Runs a command to its end and returns what it printed."""
    done = subprocess.run([program(), *words], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        raise error_of(sentence(done.stderr.splitlines()) or f"lockstep {words[0]} ended with {done.returncode}",
                       done.returncode)
    return done.stdout


def json_of(text: str) -> Dict[str, Any]:
    """The object in a report: all of it, or its last line."""
    text = text.strip()
    try:
        found = json.loads(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.startswith("{")]
        if not lines:
            raise LockstepError(f"the program gave no JSON: {text[:200]}") from None
        found = json.loads(lines[-1])
    return dict(found)


def sentence(lines: List[str]) -> str:
    """The program's last word, without its name."""
    said = [line for line in lines if line.startswith("lockstep:")]
    return said[-1][len("lockstep:"):].strip() if said else (lines[-1].strip() if lines else "")


def recipes() -> Dict[str, Path]:
    """The recipes that come with the package, by name."""
    here = Path(__file__).resolve().parent
    for folder in (here / "recipes", here.parents[1] / "recipes"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return {}


def recipe_words(recipe: PathLike) -> List[str]:
    """A file, or the name of a recipe of the package."""
    text = os.fspath(recipe)
    if os.path.exists(text):
        return [text]
    known = recipes()
    if text in known:
        return [str(known[text])]
    if text == "first":  # inside the program
        return []
    if text.endswith(".toml") or os.sep in text:
        return [text]  # the program says what is wrong with it
    raise RecipeError(f"there is no recipe {text!r}: neither a file nor one of {', '.join(known) or 'first'}", 2)


def as_text(value: Any) -> str:
    """As a recipe has it. NumPy's numbers and truths count as Python's."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return json.dumps([one.item() if hasattr(one, "item") else os.fspath(one) if isinstance(one, os.PathLike) else one
                           for one in value], ensure_ascii=False)
    return str(value)


_known: List[str] = []


def _known_keys() -> List[str]:
    if not _known:
        schema = json.loads(ask(["schema"]))
        _known.extend(f"{section}.{name}" for section, body in schema["properties"].items()
                      for name in body.get("properties", {}))
    return _known


def key_name(name: str) -> str:
    """optim__lr is optim.lr; steps is run.steps, because only one section has such a key."""
    key = name.replace("__", ".")
    if "." in key:
        return key
    fits = [one for one in _known_keys() if one.split(".")[1] == key]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise RecipeError(f"{name} could be {' or '.join(fits)}; write it as {fits[0].replace('.', '__')}", 2)
    raise RecipeError(_refusal_of(key), 2)


def _refusal_of(name: str) -> str:
    """What the program says of a name that is no key; the keys it proposes as Python writes them."""
    try:
        ask(["train", f"{name}=0", "--dry-run"])
    except RecipeError as refused:
        said = re.sub(r"did you mean (\w+)\.(\w+)\?", r"did you mean \1__\2 (\1.\2)?", str(refused))
        return re.sub(r"write (\w+)\.(\w+)=(\w+)", r'write \1__\2="\3"', said)
    return f"{name} is not a recipe key"


def key_values(overrides: Optional[Mapping[str, Value]], keys: Mapping[str, Value]) -> Dict[str, Value]:
    """Both by their full names."""
    found = dict(overrides or {})
    for name, value in keys.items():
        found[key_name(name)] = value
    return found


def key_words(values: Mapping[str, Value]) -> List[str]:
    return [f"{name}={as_text(value)}" for name, value in values.items()]


def option_words(options: Mapping[str, Any]) -> List[str]:
    """top_p=0.9 is --top-p=0.9, merge=True is --merge, and a list is the option as often as it has values."""
    words: List[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                words.append(option)
            elif one is not False and one is not None:
                words.append(f"{option}={as_text(one)}")
    return words
