#!/usr/bin/env python3
"""google_compare.py REQUESTS WORD: the first and the last request whose path ends with WORD, and where they differ.

Prints a line for each difference: "PATH: ONE -> OTHER", "-" for nothing. Names and ids of jobs are made equal first.
"""
import json
import re
import sys


def flat(value, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            # Metadata is a list of keys and values in Compute Engine: its keys are its path.
            yield from flat(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and all(isinstance(item, dict) and "key" in item for item in value):
        for item in value:
            yield f"{path}.{item['key']}", re.sub(r"(?s)(.{20}).+", r"\1...", item.get("value", ""))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from flat(item, f"{path}[{number}]")
    else:
        yield path, re.sub(r"http://127.0.0.1:\d+/compute/v1/", "", str(value))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        bodies = [json.loads(line) for line in file]
    bodies = [dict(flat(one["body"])) for one in bodies if one["method"] == "POST" and one["path"].endswith(sys.argv[2])]
    one, other = bodies[0], bodies[-1]
    for path in sorted({*one, *other}):
        if one.get(path) != other.get(path):
            print(f"{path}: {one.get(path, '-')} -> {other.get(path, '-')}")


main()
