"""Draws a trace that `lockstep train --profile` wrote, as an SVG.

    draw_trace.py PROFILE.json OUT.svg TITLE [FROM:TO]

FROM:TO picks a part of the time, such as 0:0.125 for the first eighth.
"""

import json
import re
import sys

WIDTH, LEFT, BAR, GAP = 1000, 92, 18, 3
COLORS = {
    "forward": "#4c8eda", "recompute": "#8fb8e8", "loss": "#2b5f9e", "backward_input": "#e08e45",
    "backward_weight": "#c9572c", "update": "#5a9e5a", "norm": "#8cbf8c",
    "gather": "#a27bc8", "release": "#d0d0d0", "reduce": "#7b5aa6", "exchange": "#b95b9a", "send": "#b95b9a",
    "recv": "#d99ac6",
}
LEGEND = ["forward", "backward_input", "backward_weight", "update", "gather", "reduce", "exchange", "recv"]
WORDS = {"exchange": "exchange, send", "backward_input": "backward, inputs", "backward_weight": "backward, weights"}


def bars_of(events):
    """(rank, lane) -> bars (begin, end, op, slice), neighbours of one kind joined."""
    rows = {}
    for event in sorted((e for e in events if e["ph"] == "X" and e["tid"] < 100), key=lambda e: e["ts"]):
        op = event["name"].split()[0]
        slice_ = re.search(r" s(\d+)\b", event["name"])
        rows.setdefault((event["pid"], event["tid"]), []).append(
            [event["ts"], event["ts"] + event["dur"], op, slice_.group(1) if slice_ else ""])
    return rows


def joined(bars, nearer_than):
    out = []
    for bar in bars:
        if out and out[-1][2:] == bar[2:] and bar[0] - out[-1][1] < nearer_than:
            out[-1][1] = bar[1]
        else:
            out.append(list(bar))
    return out


def cut(rows, begin, end):
    return {row: [[max(b, begin), min(e, end), op, slice_] for b, e, op, slice_ in bars if e > begin and b < end]
            for row, bars in rows.items()}


def draw(trace, title, part):
    events = trace["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"].removeprefix("lane ") for e in events if e["name"] == "thread_name"}
    rows = bars_of(events)
    begin = min(b[0] for bars in rows.values() for b in bars)
    end = max(b[1] for bars in rows.values() for b in bars)
    begin, end = begin + part[0] * (end - begin), begin + part[1] * (end - begin)
    rows = cut(rows, begin, end)
    scale = (WIDTH - LEFT - 10) / (end - begin)
    out, y = [], 42
    for rank in sorted({rank for rank, _ in rows}):
        for lane in sorted(lane for r, lane in rows if r == rank):
            if lanes.get(lane) == "host" or not rows[rank, lane]:
                continue
            label = f"rank {rank} {lanes.get(lane, lane)}"
            out.append(f'<text x="4" y="{y + 13}">{label}</text>')
            for b, e, op, slice_ in joined(rows[rank, lane], (end - begin) / 400):
                x, w = LEFT + (b - begin) * scale, max(0.4, (e - b) * scale)
                color = COLORS.get(op, "#bbbbbb")
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{BAR}" fill="{color}"/>')
                if w > 11 and slice_ and lanes.get(lane) == "compute":
                    out.append(f'<text x="{x + w / 2:.1f}" y="{y + 13}" class="s">{slice_}</text>')
            y += BAR + GAP
        y += 7
    seen = {bar[2] for bars in rows.values() for bar in bars}
    x = LEFT
    for op in LEGEND:
        if op not in seen and not (op == "exchange" and "send" in seen):
            continue
        word = WORDS.get(op, op)
        out.append(f'<rect x="{x}" y="{y + 4}" width="10" height="10" fill="{COLORS[op]}"/>'
                   f'<text x="{x + 14}" y="{y + 13}">{word}</text>')
        x += 26 + 7 * len(word)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 24}" '
            'font-family="sans-serif" font-size="11"><style>.s{fill:#fff;text-anchor:middle}</style>'
            f'<rect width="100%" height="100%" fill="#fff"/><text x="4" y="20" font-size="14">{title}</text>'
            f'<text x="{WIDTH - 10}" y="20" text-anchor="end">{(end - begin) / 1000:.1f} ms</text>')
    return head + "".join(out) + "</svg>\n"


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        part = [float(word) for word in sys.argv[4].split(":")] if len(sys.argv) > 4 else [0, 1]
        drawn = draw(json.load(file), sys.argv[3], part)
    with open(sys.argv[2], "w") as file:
        file.write(drawn)
