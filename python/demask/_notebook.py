"""Pictures for notebooks: a canvas with its steps and a table of how it was made, as the server's page draws them, in HTML
that needs neither a server nor a script.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._generation import Generation
    from ._receipt import Receipt
    from ._trace import Trace

# The server's page has the same: commits run from dark to light, so that their order is seen without colours too.
_STYLE = """
<style>
.demask { font: 14px/1.5 system-ui, sans-serif; color: var(--jp-ui-font-color1, #1b1f24); max-width: 64em; }
.demask .canvas { font: 14px/1.9 ui-monospace, monospace; white-space: pre-wrap; padding: .6em .8em; border: 1px solid #8886;
  border-radius: 6px; }
.demask .token { border-radius: 3px; padding: 1px 0; border-bottom: 3px solid transparent; box-shadow: 0 0 0 1px #8883; }
.demask .prompt { opacity: .55; }
.demask .mask { letter-spacing: -1px; opacity: .35; }
.demask .bars { display: flex; align-items: flex-end; gap: 2px; height: 40px; margin: .5em 0; }
.demask .bars span { width: 10px; border-radius: 2px 2px 0 0; box-shadow: 0 0 0 1px #8886; }
.demask .legend, .demask td:first-child { opacity: .75; }
.demask table { border-collapse: collapse; margin-top: .6em; }
.demask td { text-align: left; padding: 1px 1.4em 1px 0; border: 0; font-variant-numeric: tabular-nums; }
</style>
"""

_RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""Colours of the first to the last forward: viridis, which the colour-blind can read."""

_MOST_BARS = 160


def _colour(share: float) -> tuple[int, int, int]:
    place = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    below = min(int(place), len(_RAMP) - 2)
    part = place - below
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(_RAMP[below], _RAMP[below + 1], strict=True))
    return red, green, blue


def _token(text: str, share: float, title: str) -> str:
    red, green, blue = _colour(share)
    shown = escape(text).replace("\n", "↵\n")
    style = f"background: rgba({red},{green},{blue},.22); border-bottom-color: rgb({red},{green},{blue})"
    return f'<span class="token" style="{style}" title="{escape(title, quote=True)}">{shown}</span>'


def _bars(counts: list[int]) -> str:
    most, last = max(counts, default=0), max(len(counts) - 1, 1)
    if not most:
        return ""
    shown = counts[:_MOST_BARS]
    bars = []
    for step, count in enumerate(shown):
        red, green, blue = _colour(step / last)
        style = f"height: {max(2, round(40 * count / most))}px; background: rgb({red},{green},{blue})"
        bars.append(f'<span style="{style}" title="forward {step}: {count} commits"></span>')
    more = f"<small>and {len(counts) - len(shown)} more</small>" if len(counts) > len(shown) else ""
    return f'<div class="bars" role="img" aria-label="commits of each forward">{"".join(bars)}{more}</div>'


def table(rows: list[tuple[str, Any]]) -> str:
    """Returns a table of names and values as HTML."""
    lines = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table>{lines}</table>"


def receipt(found: Receipt) -> list[tuple[str, Any]]:
    """Returns a receipt as rows."""
    seconds, memory = found["seconds"], found["memory"]
    against = f" against {found['against']}" if found.get("against") else ""
    return [
        ("model", f"{found['model']}, {found['device']}"),
        ("decoder, cache", f"{found['decoder']}, {found['cache']}"),
        ("tokens", f"{found['exactness']}{against}, seed {found['seed']}"),
        ("NFE", f"{found['nfe']}, {found['tokens_per_nfe']:.2f} tokens each, {found['forwards']} forwards"),
        ("rows", f"{found['rows']}, {found['flops'] / 1e9:.2f} GFLOP"),
        ("seconds", f"{seconds['total']:.4f}, of them {seconds['model']:.4f} in the network"),
        ("memory", f"{memory['cache'] / 1e6:.1f} MB of K/V, {memory['weights'] / 1e6:.1f} MB of weights"),
    ]


def _canvas(
    pieces: list[str], given: set[int], commits: dict[int, tuple[int, float]], masks: set[int]
) -> tuple[str, str]:
    last = max((step for step, _ in commits.values()), default=0)
    counts = [0] * (last + 1 if commits else 0)
    for step, _ in commits.values():
        counts[step] += 1
    shown = []
    for position, piece in enumerate(pieces):
        if position in commits:
            step, confidence = commits[position]
            title = f"position {position}, forward {step}, confidence {confidence:.3f}"
            shown.append(_token(piece, step / max(last, 1), title))
        elif position in given:
            shown.append(f'<span class="prompt">{escape(piece)}</span>')
        else:
            shown.append('<span class="mask">░░</span>' if position in masks else escape(piece))
    return f'<div class="canvas">{"".join(shown)}</div>', _bars(counts)


def _page(canvas: str, bars: str, rows: list[tuple[str, Any]]) -> str:
    legend = '<div class="legend">colour: the forward that committed a token, from dark to light; point at one for its confidence</div>'
    return f'{_STYLE}<div class="demask">{canvas}{bars}{legend if bars else ""}{table(rows)}</div>'


def canvas(
    pieces: list[str],
    given: set[int],
    commits: dict[int, tuple[int, float]],
    masks: set[int],
    rows: list[tuple[str, Any]],
) -> str:
    """Returns a canvas as it is at the moment, and its steps so far, as HTML. `commits` have a forward and a confidence by position."""
    return _page(*_canvas(pieces, given, commits, masks), rows)


def generation(answer: Generation) -> str:
    """Returns an answer's canvas, its steps and its receipt as HTML."""
    commits = {commit.position: (commit.step, commit.confidence) for commit in answer.commits}
    # What was decoded behind the answer's end has its part in the bars alone.
    ends = len(answer.canvas) if answer.holes else answer.prompt_tokens + len(answer.tokens)
    given = set(range(ends if answer.holes else answer.prompt_tokens))
    canvas, bars = _canvas(answer.pieces()[:ends], given, commits, set())
    return _page(canvas, bars, [("finish reason", answer.finish_reason), *receipt(answer.receipt)])


def trace(of: Trace) -> str:
    """Returns a trace's canvas and its steps as HTML."""
    header = of.header
    first = len(header["prompt"])
    pieces = ["…"] + [""] * (first - 1) + [""] * int(header["length"]) if first else [""] * int(header["length"])
    masks = set(range(first, len(pieces)))
    commits: dict[int, tuple[int, float]] = {}
    for line in [*header.get("given", []), *of.lines]:
        position, token = line.get("position", line.get("at")), line.get("token", line.get("to"))
        if line.get("event") == "replace" and token is None:
            masks.add(position)
            commits.pop(position, None)
        elif "position" in line or line.get("event") == "replace":
            pieces[position] = line.get("text") or f"<{token}>"
            masks.discard(position)
            if "step" in line:
                commits[position] = (line["step"], line["confidence"])
    canvas, bars = _canvas(pieces, set(range(len(pieces))) - masks, commits, masks)
    rows = [("model", header["model"]), ("decoder, cache", f"{header['decoder']}, {header['cache']}")]
    if of.steps:
        rows.append(("NFE", str(of.steps[-1]["nfe"])))
    return _page(canvas, bars, rows)
