"""What is shown while a run trains: the program's lines, or in a notebook a bar and a curve."""
import html
import logging
import sys
from typing import Any, Dict, List, Optional

log = logging.getLogger("lockstep")
log.addHandler(logging.NullHandler())


def in_notebook() -> bool:
    """Whether a front end with pictures is listening (Jupyter, Colab, VS Code)."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    return found is not None and hasattr(found, "kernel")


class Lines:
    """The program's own lines on standard error, and all of them to the logger "lockstep"."""

    def __init__(self, quiet: bool):
        self.quiet = quiet

    def say(self, line: str) -> None:
        log.log(logging.WARNING if line.startswith("warning:") else logging.INFO, "%s", line)
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)

    def step(self, row: Dict[str, Any]) -> None:
        pass

    def end(self) -> None:
        pass


class Notebook(Lines):
    """A bar, the loss as a number and a curve, drawn again at most so often."""

    EVERY = 0.5  # seconds

    def __init__(self, steps: Optional[int]):
        super().__init__(quiet=True)
        from IPython.display import HTML, display  # type: ignore
        self.steps, self.drawn, self.html = steps, 0.0, HTML
        self.rows: List[Dict[str, Any]] = []
        self.shown = display(HTML("<i>lockstep: starting</i>"), display_id=True)

    def step(self, row: Dict[str, Any]) -> None:
        import time
        self.rows.append(row)
        if time.monotonic() - self.drawn >= self.EVERY:
            self.drawn = time.monotonic()
            self.draw()

    def end(self) -> None:
        if self.rows:
            self.draw()

    def draw(self) -> None:
        self.shown.update(self.html(picture(self.rows, self.steps)))


def picture(rows: List[Dict[str, Any]], steps: Optional[int]) -> str:
    """HTML of a bar and the loss's curve; no script, so that a saved notebook keeps it."""
    losses = [(row["step"], row["loss"]) for row in rows if row.get("loss") is not None]
    if not losses:
        return "<i>lockstep: no step yet</i>"
    step, loss = losses[-1]
    total = max(steps or step, step)
    speed = next((row["tokens_per_s"] for row in reversed(rows) if row.get("tokens_per_s")), None)
    words = f"step {step} of {total} · loss {loss:.4f}" + (f" · {speed:,.0f}/s" if speed else "")
    bar = (f'<div style="width:420px;background:#8884;border-radius:3px"><div style="width:{100 * step / total:.1f}%;'
           'background:#2a78d0;height:8px;border-radius:3px"></div></div>')
    return f'<div style="font:13px sans-serif">{html.escape(words)}{bar}{_curve(losses)}</div>'


def _curve(points: List[Any], width: int = 420, height: int = 120) -> str:
    finite = [(x, y) for x, y in points if y == y and abs(y) != float("inf")]
    if len(finite) < 2:
        return ""
    thin = finite[:: max(1, len(finite) // 400)] + [finite[-1]]
    low, high = min(y for _, y in thin), max(y for _, y in thin)
    first, last = thin[0][0], thin[-1][0]
    place = " ".join(f"{(x - first) / max(last - first, 1) * width:.1f},"
                     f"{(high - y) / max(high - low, 1e-12) * (height - 8) + 4:.1f}" for x, y in thin)
    return (f'<svg width="{width}" height="{height}" role="img" aria-label="loss {finite[0][1]:.4g} to {finite[-1][1]:.4g}">'
            f'<polyline fill="none" stroke="#2a78d0" stroke-width="1.5" points="{place}"/></svg>')
