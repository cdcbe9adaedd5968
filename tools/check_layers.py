#!/usr/bin/env python3
"""Prove that each folder of src/lockstep includes what the table below allows it, and nothing else.

Also that public headers are free of LibTorch's, except model/modules/autograd_torch.h. `--markdown` prints the table
for docs/layers.md; the test compares the two.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"

# Who may include whom. Rooms of a folder are one with it, but for those named here. In the order of the story: an entry
# names only entries above it, so that there are no circles.
MAY_INCLUDE = {
    "base": "",
    "text": "base",
    "chat": "base text",
    "terminal": "base",
    "recipe": "base",
    "device": "base",
    "store": "base device",
    "kernels": "base device",
    "comm": "base device kernels",
    "data": "base text chat device store kernels recipe",
    "model": "base device kernels recipe",
    "optim": "base device kernels recipe",
    "tables": "base recipe comm data model optim",
    "program": "base device model",
    "checkpoint": "base device store kernels comm recipe optim",
    "plan": "base terminal device kernels comm model program recipe",
    "watch": "base comm program",
    "run/shared": "base recipe",
    "run/executor": "base terminal device kernels comm model optim program plan watch",
    "run/session": "base recipe device kernels comm data model optim program checkpoint plan run/executor",
    "run/folder": "base recipe checkpoint run/shared run/session",
    "run/saving": "base device model checkpoint run/shared run/session",
    "run/loop": "base recipe device data optim watch run/shared run/session run/saving",
    "run/tools": "base text recipe device data model run/executor run/session",
    "http": "base",
    "launch": "base device comm watch run/shared http",
    "training": "base recipe store comm data model checkpoint watch run/shared run/executor run/session run/folder "
                "run/saving run/loop launch",
    "replay": "base device data model checkpoint run/shared run/session run/folder run/loop",
    "verify": "base recipe data model checkpoint plan launch",
    "see": "base recipe checkpoint watch run/folder http",
    "jobs": "base recipe",
    "ship": "base",
    "cli": "base text chat terminal recipe device store comm data model program checkpoint plan watch run/shared run/executor run/session run/folder run/saving run/loop run/tools http launch training replay verify jobs ship see",
}
# Tests may use what builds whole runs, wherever they stand.
TEST = re.compile(r"(_test|_bench)\.cc$|testing\.h$|/reference/")
TORCH_HEADERS = ("ATen/", "c10/", "torch/")
MAY_SHOW_TORCH = {"lockstep/model/modules/autograd_torch.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def includes():
    """(file, line, what it includes) for every source file."""
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in {".h", ".cc", ".cu", ".cuh"}:
            text = path.read_text(errors="replace")
            for match in INCLUDE.finditer(text):
                yield path.relative_to(SOURCE).as_posix(), text.count("\n", 0, match.start(1)) + 1, match.group(1)


def room_of(path):
    """The entry of the table that a file belongs to: its room, or its folder."""
    if path == "lockstep/train.h":  # what training/ shows to programs
        return "training"
    parts = path.split("/")
    if len(parts) < 3 or parts[0] != "lockstep":
        return None
    room = "/".join(parts[1:3])
    return room if room in MAY_INCLUDE else parts[1]


def complaint(file, target):
    """Why this include is wrong, or None."""
    here, there = room_of(file), room_of(target)
    shows = file.endswith(".h") and file not in MAY_SHOW_TORCH and not TEST.search(file)
    if target.startswith(TORCH_HEADERS) and shows:
        if not file.endswith(("_torch.h", "_internal.h")):
            return "a public header must not need LibTorch's"
    if here is None or there is None or here == there or TEST.search(file):
        return None
    if TEST.search(target):
        return "only tests include what is made for tests"
    for room in (here, there):
        if room not in MAY_INCLUDE:
            return f"{room}/ is not in the table of {Path(__file__).name}"
    if there not in MAY_INCLUDE[here].split():
        return f"{here}/ may not include {there}/ (docs/layers.md)"
    return None


def markdown():
    rows = [f"| {room} | {', '.join(allowed.split()) or '-'} |" for room, allowed in MAY_INCLUDE.items()]
    return "\n".join(["| folder | may include |", "|---|---|", *rows]) + "\n"


def circles():
    """Entries of the table that name one below them."""
    order = list(MAY_INCLUDE)
    for room, allowed in MAY_INCLUDE.items():
        for other in allowed.split():
            if other not in order[: order.index(room)]:
                yield f"tools/check_layers.py: {room} may not name {other}, which does not stand above it"


def unused():
    """Permissions that nobody needs."""
    used = {(room_of(file), room_of(target)) for file, _, target in includes() if not TEST.search(file)}
    for room, allowed in MAY_INCLUDE.items():
        for other in allowed.split():
            if (room, other) not in used:
                yield f"tools/check_layers.py: {room}/ includes nothing of {other}/: take it out of the table"


def main():
    if "--markdown" in sys.argv[1:]:
        print(markdown(), end="")
        return 0
    found = [*circles(), *unused()]
    for file, line, target in includes():
        reason = complaint(file, target)
        if reason:
            found.append(f"src/{file}:{line}: {reason} (#include {target})")
    if markdown() not in (ROOT / "docs" / "layers.md").read_text():
        found.append("docs/layers.md: its table is another one: python3 tools/check_layers.py --markdown")
    print("\n".join([*found, f"{len(found)} things wrong"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
