#!/usr/bin/env python3
"""Draw a captured terminal as an SVG: tmux capture-pane -e -p | terminal_svg.py TITLE > run.svg

Colours of the captured text (SGR codes) are kept. Braille patterns, which curves are made of, are drawn as
dots, because many fonts lack them. Trailing empty lines are left out.
"""
import re
import sys
from xml.sax.saxutils import escape

CHARACTER, LINE, MARGIN, BAR = 8.43, 18, 16, 34  # pixels
COLOURS = {30: "#45475a", 31: "#f38ba8", 32: "#a6e3a1", 33: "#f9e2af", 34: "#89b4fa", 35: "#f5c2e7", 36: "#94e2d5"}
BRAILLE = 0x2800
# Bit k of a braille pattern: its column and row among 2 x 4 dots.
DOTS = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]
SGR = re.compile(r"\x1b\[([0-9;]*)m")


def spans(line):
    """(column, text, attributes) of each run of one style."""
    column, style, begin = 0, {}, 0
    for match in [*SGR.finditer(line), None]:
        text = line[begin:match.start() if match else len(line)]
        if text:
            yield column, text, dict(style)
            column += len(text)
        if match:
            begin = match.end()
            for code in map(int, filter(None, (match.group(1) or "0").split(";"))):
                if code == 0:
                    style = {}
                elif code == 1:
                    style["font-weight"] = "bold"
                elif code == 39:
                    style.pop("fill", None)
                elif code in COLOURS:
                    style["fill"] = COLOURS[code]


def is_braille(character):
    return BRAILLE <= ord(character) < BRAILLE + 256


def dots(row, column, text):
    """One path with a round point for each dot of the braille patterns in `text`."""
    path = ""
    for k, character in enumerate(text):
        bits = ord(character) - BRAILLE if is_braille(character) else 0
        for bit, (across, down) in enumerate(DOTS):
            if bits >> bit & 1:
                x = MARGIN + (column + k + 0.25 + across / 2) * CHARACTER
                y = BAR + (row + (down + 0.5) / 4) * LINE
                path += f"M{x:.1f} {y:.1f}h.01"
    return path and f'<path d="{path}" stroke="#89b4fa" stroke-width="3" stroke-linecap="round"/>'


def draw(lines, title):
    columns = max([80] + [len(SGR.sub("", line)) for line in lines])
    width, height = columns * CHARACTER + 2 * MARGIN, BAR + len(lines) * LINE + MARGIN
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
           f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" fill="#cdd6f4">')
    yield f"<title>{escape(title)}</title>"
    yield f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#1e1e2e"/>'
    yield "".join(f'<circle cx="{x}" cy="17" r="5" fill="#585b70"/>' for x in (20, 38, 56))
    yield f'<text x="{width / 2:.0f}" y="22" text-anchor="middle" fill="#9399b2" font-size="13">{escape(title)}</text>'
    for row, line in enumerate(lines):
        for column, text, style in spans(line):
            if curve := dots(row, column, text):
                yield curve
                text = "".join(" " if is_braille(c) else c for c in text).rstrip()
            # Forced widths: text and dots then share one grid in every font.
            attributes = "".join(f' {name}="{value}"' for name, value in style.items())
            yield (f'<text x="{MARGIN + column * CHARACTER:.1f}" y="{BAR + (row + 1) * LINE - 5}" xml:space="preserve" '
                   f'textLength="{len(text) * CHARACTER:.1f}" lengthAdjust="spacingAndGlyphs"{attributes}>{escape(text)}</text>')
    yield "</svg>"


def main():
    text = [line.rstrip() for line in sys.stdin.read().splitlines()]
    while text and not SGR.sub("", text[-1]).strip():
        text.pop()
    print("\n".join(draw(text, sys.argv[1] if len(sys.argv) > 1 else "lockstep")))


if __name__ == "__main__":
    main()
