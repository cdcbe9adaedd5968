"""Lets flash_attn.cute be imported without PyTorch, of which it only names types here.

The package's own __init__ files import everything that they have, PyTorch and Triton included; what we
compile needs a few of its modules. So packages are entered past their __init__, and `torch` is a
stand-in that has every name and can do nothing.
"""
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types


class Name(type):
    """A class with every attribute; calling it with a function, as decorators are, gives the function."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = Name(f"{cls.__name__}.{name}", (), {})
        setattr(cls, name, made)
        return made

    def __call__(cls, *arguments, **named):
        if len(arguments) == 1 and not named and callable(arguments[0]):
            return arguments[0]
        return super().__call__()


class Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = Name(f"{self.__name__}.{name}", (), {})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        module.__version__ = "0"


def enter(package):
    """Makes a package whose modules can be imported although its __init__ is never run."""
    spec = importlib.util.find_spec(package)
    module = types.ModuleType(package)
    module.__path__ = list(spec.submodule_search_locations)
    module.__spec__ = spec
    sys.modules[package] = module


def prepare():
    """To be called after the compiler was imported, which asks whether a real PyTorch is there."""
    sys.meta_path.insert(0, Finder())
    for package in ("quack", "flash_attn", "flash_attn.cute"):
        enter(package)
    importlib.import_module("quack.dsl")  # what quack's __init__ would set up for its modules
