#!/usr/bin/env python3
"""Keeps retired words out of what users read: README.md, docs/, help texts and messages; and a merge's conflict markers.

The list and what to write instead stand in docs/glossary.md. In C++ only string literals of more than two words
are looked at, never comments or tests; in Markdown, code blocks are left alone.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

RETIRED = {  # pattern: what to write instead
    r"shar(e[sd]?|ing) out": "shard",
    r"(in|takes?) turns\b": "round-robin, alternating",
    r"(deals?|dealt|dealing) out": "distribute, assign",
    r"copies of the model": "replicas",
    r"\b(ranks|nodes|copies) meet\b|\bmeetings?\b": "rendezvous, reduce together, barrier",
    r"\bgo(es|ing)? on (from|where|with)\b|\b(training|run|runs) goes? on\b|\bto go on\b": "resume, continue",
    r"\bsettled?\b": "resolve",
    r"\bstrangers?\b": "unauthenticated peers",
    r"\b(can|to) be had\b": "is available",
    r"\bis (already there|there already)\b": "already exists",
    r"\bmend(s|ed)?\b": "fix",
    r"\banew\b": "again",
    r"\bmisspelt\b": "misspelled",
    r"\bwhole numbers?\b": "integer",
    r"\bmakes? room\b|\bno room\b": "free space, no space",
    r"\bsays so\b|\bwithout a word\b": "report it",
    r"\b(bytes|samples|tokens|slices|ms|FLOPs|MiB|GiB|buffers?) an? (step|rank|slice|sample|node|parameter|token|second)\b":
        "per step, per rank",
    r"\bone's own\b": "your own",
    r"\bcut (off|short)\b": "truncated",
    r"\bin vain\b": "to no effect",
    r"\bvanish(ed|es)?\b": "was lost",
    r"\b(stands|lies) (there|here|beside|behind)\b": "is, exists",
}
PATTERNS = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in RETIRED.items()]
LITERALS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')


def literals(text):
    """Each string of a C++ source, adjacent parts joined, with its line."""
    code = re.sub(r"(?m)^(\s*//.*|(.*\S)\s+//\s.*)$", lambda m: m.group(2) or "", text)
    for match in LITERALS.finditer(code):
        joined = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', match.group(0)))
        if len(joined.split()) > 2:
            yield code.count("\n", 0, match.start()) + 1, joined


def prose(text):
    """Each line of a Markdown page outside code blocks and quoted commands, paragraphs joined, with its line."""
    paragraph, begin, fenced = [], 0, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.startswith("```"):
            fenced = not fenced
        if fenced or line.startswith(("```", "    ", "<!--")) or not line.strip() or line.startswith("|"):
            if paragraph:
                yield begin, " ".join(paragraph)
            paragraph = []
            if line.startswith("|") and not fenced:
                yield number, line
            continue
        begin = begin if paragraph else number
        paragraph.append(line.strip())


def pages():
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def sources():
    for file in sorted((ROOT / "src" / "lockstep").rglob("*")):
        if file.suffix in (".cc", ".h", ".cu") and not re.search(r"_(test|bench)\b|testing", file.name):
            yield file


def retired_in(text, where):
    text = re.sub(r"`[^`]*`", "", text)
    return [f"{where}: \"{match.group(0)}\": write {instead}"
            for pattern, instead in PATTERNS for match in pattern.finditer(text)]


def markers_in(text, where):
    return [f"{where}:{text.count(chr(10), 0, match.start()) + 1}: a merge's conflict is left in it"
            for match in re.finditer(r"(?m)^(<{7}|>{7}) ", text)]


def main():
    found = []
    for file in [*pages(), ROOT / "CHANGELOG.md"]:
        found += markers_in(file.read_text(), file.relative_to(ROOT))
    for file in pages():
        text = file.read_text().split("\n## Retired words")[0]
        for line, paragraph in prose(text):
            found += retired_in(paragraph, f"{file.relative_to(ROOT)}:{line}")
    for file in sources():
        for line, literal in literals(file.read_text()):
            found += retired_in(literal, f"{file.relative_to(ROOT)}:{line}")
    print("\n".join(found))
    print(f"{len(found)} retired words or conflicts")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
