"""A torch module from Python as a file that the program trains: TorchScript.

Of what LibTorch 2.11 carries, TorchScript is the form that autograd can differentiate without Python; AOTInductor's
packages run forward only, and want a compiler. Scripting keeps control flow and the difference between training and
evaluation; a module that cannot be scripted is refused with the line of its code.
"""
import json
import os
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence

from ._program import PathLike, RecipeError


class ExportError(RecipeError):
    """A module that cannot be exported; the message names the file and line of your code."""

    def __init__(self, message: str):
        super().__init__(message, 2)


def _spoken(error: BaseException) -> str:
    """One sentence of TorchScript's long report: what is wrong, and where in the user's file."""
    text = str(error)
    place = ""
    for found in re.finditer(r'File "([^"]+)", line (\d+)((?:\n(?!\s*File ).*)*)', text):
        if f"{os.sep}torch{os.sep}" in found.group(1) and place:
            continue
        lines = found.group(3).splitlines()
        here = [lines[k - 1].strip() for k, line in enumerate(lines) if "<--- HERE" in line and k > 0]
        place = f" ({found.group(1)}, line {found.group(2)}" + (f": {here[0]}" if here else "") + ")"
    what = next((line.strip() for line in text.splitlines() if line.strip() and "File " not in line), type(error).__name__)
    return what.rstrip(":") + place


def _scripted(module: Any) -> Any:
    import torch
    if isinstance(module, torch.jit.ScriptModule):
        return module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that TorchScript is no longer developed: LibTorch 2.11 still runs it
        try:
            return torch.jit.script(module)
        except ExportError:
            raise
        except Exception as error:  # many kinds: torch's own, NotImplementedError, OSError without source
            raise ExportError(f"{type(module).__name__} cannot be exported: {_spoken(error)}") from error


def _traced(module: Any, example: Any) -> Any:
    import torch
    changing = [name for name, child in module.named_modules()
                if "Dropout" in type(child).__name__ and getattr(child, "p", 0) > 0 or "BatchNorm" in type(child).__name__]
    if changing:
        raise ExportError(f"a trace of {type(module).__name__} would freeze what differs between training and evaluation "
                          f"({', '.join(changing)}); leave `example` out to script it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.jit.trace(module,  # type: ignore
                                   (example,), check_trace=False)
        except Exception as error:
            raise ExportError(f"{type(module).__name__} cannot be traced: {_spoken(error)}") from error


def _with_loss(module: Any, loss: Any) -> Any:
    """The scripted module with a method `loss`, kept as if it were its own: names of parameters stay."""
    import torch
    name = getattr(loss, "__name__", type(loss).__name__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function = loss if isinstance(loss, torch.jit.ScriptFunction) else torch.jit.script(loss)
        except Exception as error:
            raise ExportError(f"the loss {name} cannot be exported: {_spoken(error)}") from error
    # A method of the same compiled code: its own text, so that no Python is needed to run it.
    module.define("def loss(self, outputs, labels):\n" + _body_of(function))
    return module


def _body_of(function: Any) -> str:
    """The body of a script function with the arguments (outputs, labels)."""
    code = str(function.code)
    found = re.match(r"def \w+\((\w+): Tensor,\s*(\w+): Tensor\) -> Tensor:\n", code)
    if not found:
        raise ExportError(f"a loss takes two tensors (outputs, labels) and gives one; this one is\n{code.splitlines()[0]}")
    body = code[found.end():]
    for given, wanted in zip(found.groups(), ("outputs", "labels")):
        body = re.sub(rf"\b{given}\b", wanted, body)
    return body


def _blocks(module: Any) -> Sequence[str]:
    """Children that are called one after the other: what ZeRO and pipelines cut between."""
    import torch
    if type(module) is torch.nn.Sequential and len(module) > 1:
        return [name for name, _ in module.named_children()]
    return []


def export_module(module: Any, path: PathLike, input: Optional[Sequence[int]] = None,
                  labels: Optional[Sequence[int]] = None, targets: bool = False,
                  loss: Optional[Callable[..., Any]] = None, example: Any = None) -> Path:
    """Writes a torch module as a file for `model.from`: everything that the program needs to train it.

    input: the shape of one sample of floats; None: the module takes token numbers, [samples, seq_len].
    labels: the shape of one sample's labels; None: one label (with tokens: one for each).
    targets: labels are floats (regression).
    loss: a function (outputs, labels) that gives one value per label or per sample (reduction="none"), and bears labels
    of -1, which do not count; a method `loss` of the module counts too. None: cross-entropy of the last dimension.
    example: an input to trace the module with, if it cannot be scripted.
    """
    scripted = _scripted(module) if example is None else _traced(module, example)
    if loss is not None:
        scripted = _with_loss(scripted, loss)
    said: Dict[str, Any] = {"targets": bool(targets)}
    if input is not None:
        said["input"] = [int(size) for size in input]
    if labels is not None:
        said["labels"] = [int(size) for size in labels]
    if _blocks(module):
        said["blocks"] = list(_blocks(module))
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(target.name + ".new")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted.save(str(new), _extra_files={"lockstep.json": json.dumps(said, sort_keys=True)})
    new.replace(target)
    return target


def code_of(path: Path) -> Dict[str, bytes]:
    """What a module file computes, without the values of its parameters."""
    with zipfile.ZipFile(path) as archive:
        return {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()
                if "/code/" in name and not name.endswith(".debug_pkl") or name.endswith("lockstep.json")}
