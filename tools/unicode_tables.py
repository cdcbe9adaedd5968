#!/usr/bin/env python3
"""Write src/lockstep/text/unicode_data.cc: what the libraries that tokenizers come from think of each character.

Ids must be equal to theirs, and each of them has a Unicode version of its own: Oniguruma's and Rust's \\p{L} are Unicode 16,
the normal forms of `tokenizers` are older by years. So nothing is taken from the standard: every character is shown to the
library, and what it does is written down. The test real_tokenizers compares with whatever version is installed.

    pip install tokenizers unicodedata2 && python3 tools/unicode_tables.py
"""
import unicodedata
from pathlib import Path

import tokenizers
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = Path(__file__).resolve().parent.parent / "src/lockstep/text/unicode_data.cc"
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
ALL = "".join(map(chr, CODES))
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()


def matched(pattern):
    """The characters that a pattern of one character matches in Oniguruma."""
    kept = pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(ALL)
    return {ord(char) for piece, _ in kept for char in piece}


def isolated(pre_tokenizer):
    """The characters that a pre-tokenizer cuts out of 'a?a'."""
    text = "".join(f"a{chr(code)}a" for code in CODES)
    out = set()
    for piece, (begin, _) in pre_tokenizer.pre_tokenize_str(text):
        if begin % 3 == 1 and len(piece) == 1:
            out.add(ord(piece))
    return out


def removed(normalizer):
    return {code for code in CODES if normalizer.normalize_str(chr(code)) == ""}


def word_of_rust():
    """Whitespace is \\w+|[^\\w\\s]+ in Rust's regex: a word character stays with the letter before it."""
    splitter = pre_tokenizers.Whitespace()
    return {code for code in CODES if splitter.pre_tokenize_str("a" + chr(code))[0][0] == "a" + chr(code)}


def flags():
    bits = dict.fromkeys(CODES, 0)
    for index, name in enumerate(CATEGORIES):
        if index:
            for code in matched("\\p{%s}" % name):
                bits[code] = index
    bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    controls = removed(normalizers.BertNormalizer(**{**bert, "clean_text": True}))
    accents = removed(normalizers.BertNormalizer(**{**bert, "strip_accents": True}))
    spaced = normalizers.BertNormalizer(**{**bert, "handle_chinese_chars": True})
    chinese = {code for code in CODES if len(spaced.normalize_str(chr(code))) > 1}
    sets = [matched(r"\s"), matched(r"\w"), word_of_rust(), isolated(pre_tokenizers.Punctuation()),
            isolated(pre_tokenizers.Digits(individual_digits=True)), controls, accents,
            removed(normalizers.StripAccents()), chinese]
    for bit, members in enumerate(sets):
        for code in members:
            bits[code] |= 1 << (5 + bit)
    return bits


def runs(values):
    last, out = None, []
    for code in range(0x110000):
        value = values.get(code, 0)
        if value != last:
            out.append((code, value))
            last = value
    return out


def combining_classes():
    """As the library orders marks: a class that it does not know is 0 there."""
    nfd = normalizers.NFD()
    values = {}
    for code in CODES:
        value = unicodedata2.combining(chr(code))
        if value and (code == 0x345 or nfd.normalize_str("a\u0345" + chr(code)) != "a\u0345" + chr(code)):
            values[code] = value
    return values


def is_hangul(code):
    return 0xAC00 <= code < 0xAC00 + 11172


def mapping(normalizer, known=None):
    """[code, count, codes...] of each character that changes; those that `known` has alike are left out."""
    out = {}
    for code in CODES:
        changed = normalizer.normalize_str(chr(code))
        if changed != chr(code) and not is_hangul(code) and (known is None or known.get(code) != changed):
            out[code] = changed
    return out


def compositions():
    nfd, nfc = normalizers.NFD(), normalizers.NFC()
    out = []
    for code in CODES:
        parts = nfd.normalize_str(chr(code))
        if len(parts) < 2 or is_hangul(code) or nfc.normalize_str(parts) != chr(code):
            continue
        first = nfc.normalize_str(parts[:-1])
        if len(first) == 1:
            out.append((ord(first), ord(parts[-1]), code))
    return sorted(out)


def newer_classes(known):
    """Of Python's unicodedata, which tokenizers in Python normalize by: what the library has otherwise."""
    return [(code, unicodedata.combining(chr(code))) for code in CODES if unicodedata.combining(chr(code)) != known.get(code, 0)]


def newer_mapping(known):
    found = {code: unicodedata.normalize("NFD", chr(code)) for code in CODES if not is_hangul(code)}
    return {code: text for code, text in found.items() if text != known.get(code, chr(code))}


def newer_compositions(known):
    out = []
    for code in CODES:
        parts = unicodedata.normalize("NFD", chr(code))
        if len(parts) < 2 or is_hangul(code) or unicodedata.normalize("NFC", parts) != chr(code):
            continue
        first = unicodedata.normalize("NFC", parts[:-1])
        if len(first) == 1 and (ord(first), ord(parts[-1]), code) not in known:
            out.append((ord(first), ord(parts[-1]), code))
    return out


def array(kind, name, numbers):
    lines, line = [], "   "
    for number in numbers:
        word = f" {number},"
        if len(line) + len(word) > 108:
            lines.append(line)
            line = "   "
        line += word
    lines.append(line)
    return f"const {kind} k{name}[] = {{\n" + "\n".join(lines) + f"\n}};\nconst size_t k{name}Size = {len(numbers)};\n"


def flat(pairs):
    return [number for pair in pairs for number in pair]


def flat_mapping(table):
    return [number for code, text in sorted(table.items()) for number in (code, len(text), *map(ord, text))]


def main():
    canonical, classes, joined = mapping(normalizers.NFD()), combining_classes(), compositions()
    parts = [
        f"""// Made by tools/unicode_tables.py from tokenizers {tokenizers.__version__} and Unicode {unicodedata.unidata_version} of Python; do not edit.
// clang-format off
#include "lockstep/text/unicode_data.h"

namespace lockstep::text {{
""",
        array("uint32_t", "FlagRuns", flat(runs(flags()))),
        array("uint32_t", "ClassRuns", flat(runs(classes))),
        array("uint32_t", "Canonical", flat_mapping(canonical)),
        array("uint32_t", "Compatible", flat_mapping(mapping(normalizers.NFKD(), canonical))),
        array("uint32_t", "Compositions", flat(joined)),
        array("uint32_t", "Lowercase", flat_mapping(mapping(normalizers.Lowercase()))),
        array("uint32_t", "NewerClasses", flat(newer_classes(classes))),
        array("uint32_t", "NewerCanonical", flat_mapping(newer_mapping(canonical))),
        array("uint32_t", "NewerCompositions", flat(newer_compositions(set(joined)))),
        "}  // namespace lockstep::text\n",
    ]
    OUT.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
