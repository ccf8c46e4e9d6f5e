"""Compare caches on a task: the same word problems under each cache policy, in one batch each.

    python compare_caches.py [PROBLEMS] [PAGE.html]

Prints a table, and writes it as a page with bars, as a notebook shows it.
"""

import html
import pathlib
import re
import sys
import time
from typing import NamedTuple

import demask

CACHES = ["none", "prefix", "dual", "freecache:block=16", "dllm"]


class Row(NamedTuple):
    """What a cache policy came to."""

    cache: str
    right: float
    nfe: float
    rows: float
    seconds: float


def problems(count: int) -> list[tuple[str, str]]:
    """Returns word problems with their answers."""
    found: list[tuple[str, str]] = []
    for i in range(count):
        have, more = 3 + i % 17, 1 + i % 9
        found.append((f"Ada has {have} pears. Ben gives Ada {more} more. How many pears are there in the end?", str(have + more)))
    return found


def compare(model: demask.Model, count: int) -> list[Row]:
    """Runs the problems under each cache policy."""
    asked = problems(count)
    rows: list[Row] = []
    for cache in CACHES:
        began = time.perf_counter()
        answers = model.generate([question for question, _ in asked], decoder="static", cache=cache, gen_length=64, block_length=16)
        seconds = (time.perf_counter() - began) / count
        told = [re.findall(r"-?\d+", str(answer))[-1:] for answer in answers]
        right = sum(numbers == [expected] for numbers, (_, expected) in zip(told, asked, strict=True))
        nfe = sum(answer.nfe for answer in answers) / count
        computed = sum(answer.receipt["computed_rows"] for answer in answers) / count
        rows.append(Row(cache, 100 * right / count, nfe, computed, seconds))
    return rows


def page(rows: list[Row]) -> str:
    """Returns the table as a page, with a bar for the rows that each policy computes."""
    most = max(row.rows for row in rows)
    lines = "".join(
        f"<tr><td>{html.escape(row.cache)}<td>{row.right:.1f}<td>{row.nfe:.2f}<td>{row.rows:.0f}<td>{row.seconds * 1e3:.2f}"
        f"<td><div style='background:#3b528b;height:12px;width:{240 * row.rows / most:.0f}px'></div>"
        for row in rows
    )
    style = "body{font:15px system-ui;margin:2em}td,th{padding:3px 14px;text-align:right}td:first-child,th:first-child{text-align:left}"
    head = "<tr><th>cache<th>right, %<th>NFE<th>rows computed<th>ms an answer<th>"
    return f"<!doctype html><meta charset='utf-8'><title>Caches</title><style>{style}</style><h1>Caches on word problems</h1><table>{head}{lines}</table>"


def main() -> None:
    """Compares them, and prints a table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with demask.demo() as model:
        model.generate(problems(4)[0][0])
        rows = compare(model, count)
    print(f"{'cache':20} {'right':>7} {'NFE':>6} {'rows':>7} {'ms':>7}")
    for row in rows:
        print(f"{row.cache:20} {row.right:6.1f}% {row.nfe:6.2f} {row.rows:7.0f} {row.seconds * 1e3:7.2f}")
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
