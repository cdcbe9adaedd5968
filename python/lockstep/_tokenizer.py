"""Tokenizers of the library, called directly through its C interface (lockstep/text/tokenizer_c.h)."""
import ctypes
import os
from typing import Any, Iterable, List, Optional

from ._program import DataError, PathLike, library

_library: Any = None


def _functions() -> Any:
    global _library
    if _library is None:
        lib = ctypes.CDLL(str(library()))
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
        ids = ctypes.POINTER(ctypes.c_int32)
        error = ctypes.POINTER(ctypes.c_void_p)
        for name, result, arguments in (
                ("open", pointer, [text, error]), ("close", None, [pointer]), ("vocab", number, [pointer]),
                ("special", ctypes.c_int32, [pointer, ctypes.c_int]), ("id", ctypes.c_int32, [pointer, text, number]),
                ("describe", pointer, [pointer]),
                ("encode", number, [pointer, text, number, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ids), error]),
                ("decode", number, [pointer, ids, number, ctypes.c_int, error, error])):
            function = getattr(lib, "lockstep_tokenizer_" + name)
            function.restype, function.argtypes = result, arguments
        lib.lockstep_free.argtypes, lib.lockstep_free.restype = [pointer], None
        _library = lib
    return _library


def _taken(address: Any, length: Optional[int] = None) -> str:
    """Text that the library hands out, freed."""
    raw = ctypes.string_at(address) if length is None else ctypes.string_at(address, length)
    _functions().lockstep_free(address)
    return raw.decode("utf-8", errors="replace")


class Tokenizer:
    """tokenizer.json, *.tiktoken, sentencepiece's *.model or tekken.json: a file, or a folder with one."""

    def __init__(self, path: PathLike):
        self._handle: Any = None
        lib, error = _functions(), ctypes.c_void_p()
        self._handle = lib.lockstep_tokenizer_open(os.fsencode(path), ctypes.byref(error))
        if not self._handle:
            raise DataError(_taken(error), 3)
        self.path = os.fspath(path)
        self.vocab_size: int = lib.lockstep_tokenizer_vocab(self._handle)

    def __del__(self) -> None:
        if self._handle and _library is not None:
            _library.lockstep_tokenizer_close(self._handle)

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"lockstep.Tokenizer({_taken(_functions().lockstep_tokenizer_describe(self._handle))})"

    def encode(self, text: str, add_special: bool = True, parse_special: bool = True) -> List[int]:
        """Ids, those that the tokenizer's own library gives. Special tokens in the text count if parse_special."""
        lib, raw = _functions(), text.encode("utf-8", errors="replace")
        ids, error = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_void_p()
        count = lib.lockstep_tokenizer_encode(self._handle, raw, len(raw), add_special, parse_special,
                                              ctypes.byref(ids), ctypes.byref(error))
        if count < 0:
            raise DataError(_taken(error), 3)
        found = ids[:count]
        lib.lockstep_free(ids)
        return list(found)

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        lib, numbers = _functions(), [int(one) for one in ids]
        if any(not -2**31 <= one < 2**31 for one in numbers):
            raise ValueError("ids must be 32-bit integers")
        given = (ctypes.c_int32 * len(numbers))(*numbers)
        text, error = ctypes.c_void_p(), ctypes.c_void_p()
        length = lib.lockstep_tokenizer_decode(self._handle, given, len(numbers), skip_special, ctypes.byref(text),
                                               ctypes.byref(error))
        if length < 0:
            raise DataError(_taken(error), 3)
        return _taken(text, length)

    def token_to_id(self, token: str) -> Optional[int]:
        raw = token.encode()
        found: int = _functions().lockstep_tokenizer_id(self._handle, raw, len(raw))
        return None if found < 0 else found

    def _special(self, which: int) -> Optional[int]:
        found: int = _functions().lockstep_tokenizer_special(self._handle, which)
        return None if found < 0 else found

    @property
    def bos_id(self) -> Optional[int]:
        return self._special(0)

    @property
    def eos_id(self) -> Optional[int]:
        return self._special(1)

    @property
    def pad_id(self) -> Optional[int]:
        return self._special(2)


def tokenizer(path: PathLike) -> Tokenizer:
    """Opens a tokenizer: lockstep.tokenizer("llama3/").encode("Hello")."""
    return Tokenizer(path)
