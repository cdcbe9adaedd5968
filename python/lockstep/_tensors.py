"""Tensors of a checkpoint where they lie: the file is mapped, and nothing is copied."""
import json
import mmap
import struct
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

from ._program import DataError

# safetensors' names, NumPy's and torch's. NumPy has no bfloat16 and no fp8: ml_dtypes' if it is installed, else the bits.
_TYPES = {"F64": ("<f8", "float64"), "F32": ("<f4", "float32"), "F16": ("<f2", "float16"), "BF16": ("<u2", "bfloat16"),
          "I64": ("<i8", "int64"), "I32": ("<i4", "int32"), "I16": ("<i2", "int16"), "I8": ("|i1", "int8"),
          "U8": ("|u1", "uint8"), "BOOL": ("|b1", "bool"), "F8_E4M3": ("|u1", "float8_e4m3fn"),
          "F8_E5M2": ("|u1", "float8_e5m2")}


def _entries(path: Path) -> Iterator[Tuple[str, Dict[str, Any], "memoryview"]]:
    with open(path, "rb") as file:
        # Copy on write: tensors may be written to, and the file stays as it is.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    try:
        (length,) = struct.unpack_from("<Q", mapped, 0)
        if length > len(mapped) - 8:
            raise ValueError("its header is longer than the file")
        header = json.loads(mapped[8:8 + length])
        body = memoryview(mapped)[8 + length:]
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end <= len(body):
                raise ValueError(f"{name} lies beyond its end")
            yield name, entry, body[begin:end]
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise DataError(f"{path} is no safetensors file: {error}", 3) from None


def _numpy(entry: Dict[str, Any], body: "memoryview") -> Any:
    import numpy
    name, torch_name = _TYPES[entry["dtype"]]
    if name[1:] != "b1" and torch_name.startswith(("bfloat", "float8")):
        try:
            import ml_dtypes  # type: ignore
            return numpy.frombuffer(body, dtype=getattr(ml_dtypes, torch_name)).reshape(entry["shape"])
        except ImportError:
            pass
    return numpy.frombuffer(body, dtype=name).reshape(entry["shape"])


def _torch(entry: Dict[str, Any], body: "memoryview") -> Any:
    import torch
    dtype = getattr(torch, _TYPES[entry["dtype"]][1])
    if not len(body):
        return torch.empty(entry["shape"], dtype=dtype)
    return torch.frombuffer(body, dtype=dtype).reshape(entry["shape"])


def state_dict(folder: Path, framework: str = "auto") -> Dict[str, Any]:
    """All of model-*.safetensors (or model.safetensors) of a folder. "auto": torch where it is imported, else NumPy."""
    if framework not in ("auto", "torch", "numpy"):
        raise ValueError(f"framework is auto, torch or numpy, not {framework!r}")
    make = _torch if framework == "torch" or (framework == "auto" and "torch" in sys.modules) else _numpy
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise DataError(f"{folder} has no model*.safetensors", 3)
    return {name: make(entry, body) for path in files for name, entry, body in _entries(path)}
