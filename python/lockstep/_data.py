"""Data from Python: arrays, or anything that can be iterated over, written as files that the program reads.

Samples are drawn in an order that a seed decides, by their numbers, so that a run can stop and resume at any step with the
same bits. So what an iterator gives is written down once; an endless one needs an end (itertools.islice).
"""
import filecmp
import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Tuple, Type

from ._program import RecipeError, Value


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, (str, bytes))


def _as_numpy(value: Any) -> Any:
    import numpy
    if hasattr(value, "detach"):  # torch
        value = value.detach().cpu()
    if not isinstance(value, numpy.ndarray) and hasattr(value, "__dlpack__"):
        try:
            return numpy.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError):
            pass  # a type that NumPy does not have: np.asarray says it
    return numpy.asarray(value)


def _save(path: Path, array: Any) -> None:
    import numpy
    kind = array.dtype.kind
    if kind == "f":
        array = array.astype(numpy.float32, copy=False)
    elif kind not in "iub":
        raise RecipeError(f"data: values of type {array.dtype} are neither floats nor integers", 2)
    numpy.save(path, numpy.ascontiguousarray(array))


def _write_arrays(folder: Path, inputs: Any, labels: Any) -> Dict[str, Value]:
    inputs, labels = _as_numpy(inputs), _as_numpy(labels)
    if inputs.ndim < 1 or labels.ndim < 1 or len(inputs) != len(labels):
        raise RecipeError(f"data: {list(inputs.shape)} inputs and {list(labels.shape)} labels; "
                          "row i of both is sample i", 2)
    _save(folder / "inputs.npy", inputs)
    _save(folder / "labels.npy", labels)
    return {"data.kind": "arrays", "data.path": str(folder)}


def _plain(value: Any) -> Any:
    """What json does not know: NumPy's and torch's numbers and arrays, and their like."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is no JSON")


def _write_lines(folder: Path, kind: Type[Any], rows: Iterator[Any]) -> Dict[str, Value]:
    with open(folder / "data.jsonl", "w", encoding="utf-8", errors="replace") as file:
        for number, row in enumerate(rows, 1):
            if not isinstance(row, kind):
                raise RecipeError(f"data: item {number} is a {type(row).__name__}, and those before it are of type "
                                  f"{kind.__name__}; all must be of one type", 2)
            try:
                file.write(json.dumps({"text": row} if kind is str else row, ensure_ascii=False, default=_plain) + "\n")
            except (TypeError, ValueError) as error:
                raise RecipeError(f"data: item {number} cannot be written as JSON: {error}", 2) from None
    return {"data.path": str(folder / "data.jsonl")}


def _write_tokens(folder: Path, parts: Iterator[Any]) -> Dict[str, Value]:
    import numpy
    whole = numpy.concatenate([numpy.asarray(part).reshape(-1) for part in parts])
    if whole.dtype.kind not in "iu" or (len(whole) and whole.min() < 0):
        raise RecipeError("data: tokens must be integers that are not negative", 2)
    largest = int(whole.max()) if len(whole) else 0
    if largest >= 2**31:
        raise RecipeError(f"data: token {largest} is beyond 31 bits", 2)
    numpy.save(folder / "tokens.npy", whole.astype(numpy.uint16 if largest < 65536 else numpy.uint32))
    return {"data.kind": "tokens", "data.path": str(folder / "tokens.npy")}


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _rows_of(data: Any) -> Any:
    """Tables as their rows: iterated over, they would give the names of their columns."""
    if hasattr(data, "to_pylist"):  # pyarrow
        return data.to_pylist()
    if hasattr(data, "iter_rows"):  # polars
        return data.iter_rows(named=True)
    if hasattr(data, "to_dict") and hasattr(data, "columns") and hasattr(data, "iloc"):  # pandas
        return data.to_dict("records")
    if isinstance(data, Mapping):
        raise RecipeError("data: a dictionary is no list of samples; give a list of dictionaries, one for each row", 2)
    if hasattr(data, "dataset") and hasattr(data, "batch_size"):
        raise RecipeError("data: a DataLoader makes batches, and so does the program (batch.global); give its dataset", 2)
    return data


def _write(folder: Path, data: Any) -> Dict[str, Value]:
    """The recipe's keys for it."""
    data = _rows_of(data)
    if _is_array(data) and _as_numpy(data).dtype.kind in "OSU":  # an array, or a column, of texts
        data = _as_numpy(data).reshape(-1).tolist()
    if isinstance(data, tuple) and len(data) == 2 and all(_is_array(one) for one in data):
        return _write_arrays(folder, *data)
    if _is_array(data):
        return _write_tokens(folder, iter([_as_numpy(data)]))
    rows = iter(data)
    first = next(rows, None)
    if first is None:
        raise RecipeError("data: the iterator is empty", 2)
    every = _chained(first, rows)
    if isinstance(first, (str, dict)):
        return _write_lines(folder, str if isinstance(first, str) else dict, every)
    if isinstance(first, tuple) and len(first) == 2:
        import numpy
        pairs = [(_as_numpy(x), _as_numpy(y)) for x, y in every]
        return _write_arrays(folder, numpy.stack([x for x, _ in pairs]), numpy.stack([y for _, y in pairs]))
    if _is_array(first) or isinstance(first, (list, range)):
        return _write_tokens(folder, (_as_numpy(one) for one in every))
    raise RecipeError(f"data: a {type(first).__name__} is no sample; expected text, dictionaries, lists of tokens, or "
                      "pairs of an input and a label", 2)


def _same(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    return names == sorted(path.name for path in other.iterdir()) and all(
        filecmp.cmp(one / name, other / name, shallow=False) for name in names)


def keys_of(data: Any, run: Path, name: str = "data") -> Dict[str, Value]:
    """Writes data into the run folder, unless it is a path. A run that has begun keeps what it began with."""
    if isinstance(data, (str, os.PathLike)):
        return {"data.path": os.fspath(data)}
    folder, new = run / name, run / (name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        keys = _write(new, data)
        if folder.exists() and (run / "config.toml").exists() and not _same(folder, new):
            raise RecipeError(f"the data differs from what the run in {run} began with; give another run=, or remove "
                              "that folder", 2)
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return {key: str(value).replace(str(new), str(folder)) for key, value in keys.items()}


def shapes_of(run: Path, name: str = "data") -> Tuple[Any, Any]:
    """(shape, dtype) of a sample's inputs and of its labels, where the data is arrays; else (None, None)."""
    import numpy
    folder = run / name
    if not (folder / "inputs.npy").exists():
        return None, None
    return tuple((array.shape[1:], array.dtype) for array in
                 (numpy.load(folder / file, mmap_mode="r") for file in ("inputs.npy", "labels.npy")))  # type: ignore
