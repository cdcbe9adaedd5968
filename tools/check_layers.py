#!/usr/bin/env python3
"""Prove that each folder of src/lockstep includes only itself and those above it in the story.

Also that no block, segment or kernel calls comm, and that public headers are free of LibTorch's,
except model/autograd_torch.h. `--markdown` prints the table of docs/layers.md instead.
"""
import re
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
ORDER = ["base", "device", "kernels", "comm", "data", "model", "optim", "program", "checkpoint", "plan", "run",
         "watch", "launch", "verify", "submit", "cli"]
FORBIDDEN = {("kernels", "comm"), ("model", "comm"), ("data", "comm")}
TORCH_HEADERS = ("ATen/", "c10/", "torch/")
MAY_SHOW_TORCH = {"lockstep/model/autograd_torch.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def includes():
    """(file, line, what it includes) for every source file."""
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in {".h", ".cc", ".cu", ".cuh"}:
            text = path.read_text(errors="replace")
            for match in INCLUDE.finditer(text):
                yield path.relative_to(SOURCE).as_posix(), text.count("\n", 0, match.start(1)) + 1, match.group(1)


def folder_of(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "lockstep" else None


def complaint(file, target):
    """Why this include is wrong, or None."""
    here, there = folder_of(file), folder_of(target)
    if target.startswith(TORCH_HEADERS) and file.endswith(".h") and file not in MAY_SHOW_TORCH:
        if not file.endswith(("_torch.h", "_internal.h")):
            return "a public header must not need LibTorch's"
    if here is None or there is None:
        return None
    for folder in (here, there):
        if folder not in ORDER:
            return f"folder {folder} is not in the order of {Path(__file__).name}"
    if ORDER.index(there) > ORDER.index(here):
        return f"{here}/ may not include {there}/, which comes after it"
    if (here, there) in FORBIDDEN:
        return f"{here}/ never calls {there}/"
    return None


def markdown():
    uses = {}
    for file, _, target in includes():
        here, there = folder_of(file), folder_of(target)
        if here and there and here != there:
            uses.setdefault(here, set()).add(there)
    print("| folder | includes |\n|---|---|")
    for folder in ORDER:
        if (SOURCE / "lockstep" / folder).is_dir():
            print(f"| {folder} | {', '.join(f for f in ORDER if f in uses.get(folder, ())) or '-'} |")


def main():
    if "--markdown" in sys.argv[1:]:
        markdown()
        return 0
    found = 0
    for file, line, target in includes():
        reason = complaint(file, target)
        if reason:
            print(f"src/{file}:{line}: {reason} (#include {target})")
            found += 1
    print(f"{found} wrong includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
