"""The laboratory from Python: tables are those of `demask-lab eval`, and tasks and judges are within reach."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import types
from typing import Any

import demask
import numpy as np
import pytest
from conftest import QUESTION, ROOT

ROWS = [{"decoder": "static", "cache": "none"}, {"name": "fast", "decoder": "threshold", "cache": "dual"}]


def without_time(items: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """Returns items by row and index, without what depends on the clock."""
    found = {}
    for item in items:
        del item["receipt"]["seconds"], item["receipt"]["memory"]["peak"]
        found[item["run"], item["index"]] = item
    return found


def test_rows_are_a_table(tmp_path: pathlib.Path) -> None:
    made: list[tuple[int, int]] = []
    results = demask.lab.run(ROWS, tasks="wordmath", model="demo", limit=6, batch=3, progress=lambda *now: made.append(now))
    assert [row["run"] for row in results.rows] == ["decoder=static, cache=none", "fast"] and len(results) == 2
    assert all(row["items"] == 6 and row["task"] == "wordmath" for row in results.rows)
    assert results.rows[1]["nfe"] < results.rows[0]["nfe"] and results.rows[1]["baseline"] == "decoder=static, cache=none"
    assert made[-1] == (12, 12) and len(made) == 12
    assert {item["run"] for item in results.items} == {"decoder=static, cache=none", "fast"} and len(results.items) == 12
    assert results.directory is None and results.warnings == []
    # A directory keeps them, the answers are the same, and what is there is not made again.
    kept = demask.lab.run(ROWS, tasks="wordmath", model="demo", limit=6, out=tmp_path / "out")
    assert without_time(kept.items) == without_time(results.items)
    made.clear()
    again = demask.lab.run(ROWS, tasks="wordmath", model="demo", limit=6, out=tmp_path / "out", progress=lambda *now: made.append(now))
    assert made == [] and without_time(again.items) == without_time(results.items)
    assert {"report.md", "report.html", "run.json", "summary.json"} <= set(os.listdir(tmp_path / "out"))
    made_by = json.loads((tmp_path / "out/run.json").read_text())["made"]
    assert made_by["version"] == demask.__version__ and made_by["executable"] and made_by["batch"] == 1
    # A build outside of the repository knows no commit.
    assert re.fullmatch("[0-9a-f]{12}", made_by.get("commit") or "0" * 12)
    assert len(made_by["calls"]) == 1 and made_by["calls"][0]["ended"]


def test_a_file_of_runs_has_the_answers_of_the_program(tmp_path: pathlib.Path) -> None:
    path = os.environ.get("DEMASK_BINARY")
    program = path and pathlib.Path(path).with_name("demask-lab")
    if not program or not program.exists():
        pytest.skip("DEMASK_BINARY does not name a demask beside a demask-lab")
    models = {name: json.dumps(str(ROOT / "demo" / name)) for name in ("demo-llada", "demo-qwen")}
    file = tmp_path / "runs.toml"
    file.write_text(
        "title = 'Two models'\n[[task]]\ntask = 'wordmath'\nlimit = 4\n"
        f"[[row]]\nname = 'ar'\nmodel = {models['demo-qwen']}\n"
        f"[[row]]\nname = 'LLaDA'\nmodel = {models['demo-llada']}\nguide = {models['demo-qwen']}\ndecoder = 'guided'\nseeds = [0, 1]\n"
    )
    results = demask.lab.run(file, threads=2)
    out = tmp_path / "out"
    subprocess.run([program, "eval", "--runs", file, "--out", out, "--threads", "2", "-q"], check=True, capture_output=True)
    theirs = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert without_time(results.items) == without_time(theirs) and len(theirs) == 12
    assert results.report("markdown").startswith("# Two models\n")


def test_reports_have_forms() -> None:
    tasks = ["wordmath", {"task": "wordmath", "name": "short", "gen_length": 32}]
    results = demask.lab.run(ROWS, tasks=tasks, model="demo", limit=2, title="Mine")
    assert str(results) == results.report() and results.report().splitlines()[0].split()[:2] == ["task", "run"]
    assert "# Mine\n" in results.report("markdown") and "<script" not in results.report("html")
    assert json.loads(results.report("json"))["rows"] == results.rows
    csv = results.report("csv", task="short", columns=["run", "NFE"]).splitlines()
    assert csv[0] == "run,NFE" and len(csv) == 3 and csv[2].startswith("fast,")
    assert "\\toprule" in results.report("latex", task="wordmath")
    assert "p (Holm)" in results.report(pairs=True) and "p (Holm)" not in results.report()
    assert len(json.loads(results.report("json", pairs=True))["pairs"]) == 2
    for refused, told in [
        (lambda: results.report("pdf"), "unknown format \"pdf\""),
        (lambda: results.report("csv"), "a table is of one of wordmath, short"),
        (lambda: results.report("csv", task="long"), "no task \"long\""),
        (lambda: results.report("csv", task="short", columns=["speed"]), "unknown column \"speed\""),
        (lambda: results.report("html", task="short"), "go with the forms csv and latex"),
        (lambda: results.report("csv", task="short", pairs=True), "`pairs` go with the forms text, markdown, html and json"),
    ]:
        with pytest.raises(demask.errors.OptionsError, match=told):
            refused()


def test_a_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    results = demask.lab.run(ROWS, tasks="wordmath", model="demo", limit=2)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="to_pandas needs pandas, which is not installed"):
        results.to_pandas()
    module: Any = types.ModuleType("pandas")
    module.DataFrame = list
    monkeypatch.setitem(sys.modules, "pandas", module)
    frame: Any = results.to_pandas()
    assert frame[1]["run"] == "fast" and frame[1]["difference.items"] == 2 and "settings" not in frame[0]


def test_tasks_and_judges_are_within_reach(engine: demask.Model) -> None:
    known = {task["name"]: task for task in demask.lab.tasks()}
    assert {"wordmath", "gsm8k", "humaneval"} <= known.keys() and known["wordmath"]["source"] == "built in"
    assert known["humaneval"]["runs_programs"] and not known["gsm8k"]["runs_programs"]
    task = demask.lab.Task("wordmath", limit=6)
    answers = [engine.generate(task.prompt(item), decoder="static", cache="none", **task.options) for item in task.items]
    verdicts = [task.judge(item, answer) for item, answer in zip(task.items, answers, strict=True)]
    table = demask.lab.run(ROWS[:1], tasks="wordmath", model="demo", limit=6)
    assert [verdict["correct"] for verdict in verdicts] == [item["correct"] for item in table.items]
    assert [answer.text for answer in answers] == [item["output"] for item in table.items]
    item = task.items[0]
    right = f"The final answer is {item['expected']}"
    assert demask.lab.judge("wordmath", item, right)["correct"] and demask.lab.judge(task, 0, right)["correct"]
    assert not demask.lab.judge("wordmath", 0, "The final answer is none.")["correct"]
    assert len(task) == 6 and repr(task) == "<demask.lab.Task wordmath, 6 items>"
    with pytest.raises(IndexError, match="expected 0 to 5"):
        task.judge(6, right)
    with pytest.raises(TypeError, match="expected its index"):
        task.judge({"id": "1"}, right)
    with pytest.raises(demask.errors.OptionsError, match="unknown task \"wordmaths\", did you mean \"wordmath\""):
        demask.lab.Task("wordmaths")


def test_what_cannot_run_is_refused_before_anything_is_loaded() -> None:
    def refused(told: str, rows: Any = ROWS, kind: type[Exception] = demask.errors.OptionsError, **keywords: Any) -> None:
        with pytest.raises(kind, match=told):
            demask.lab.run(rows, **{"tasks": "wordmath", "model": "demo", "limit": 2, **keywords})

    refused("tasks is missing", tasks=(), kind=TypeError)
    refused("runs has no row", rows=[], kind=TypeError)
    refused("go with a list of rows", rows="recipe:flashdlm/table-2", kind=TypeError)
    refused("a row is of type str", rows=["static"], kind=TypeError)
    refused("unknown key \"step\" of a row, did you mean \"steps\"", rows=[{"step": 1}])
    refused("row \"a\" names no model", rows=[{"name": "a"}], model=None)
    refused("there is no row \"slow\"", only_rows=["slow"])
    refused("runs what the model writes", tasks="humaneval")
    # Rows of a list have no lines.
    refused("^row 2: row \"default\" is there twice, first row 1: name one otherwise", rows=[{}, {}])
    refused("^row 3: unknown key \"step\"", rows=[*ROWS, {"step": 1}], title="Mine", tasks=["wordmath", "gsm8k"])
    refused("^task 2: unknown task \"wordmaths\"", tasks=["wordmath", "wordmaths"], title="Mine")
    for row in [{"transfer": demask.Transfer}, demask.Transfer]:
        refused("a row has a `transfer`, a rule in Python.*: judge a rule by demask.lab.Task", rows=[row], kind=TypeError)
    refused("batch is 0", batch=0, kind=ValueError)
    refused("expected a number", rows=[{"temperature": float("nan")}], kind=ValueError)
    refused("steps", rows=[{"steps": 0}])


def test_what_progress_raises_ends_the_run_and_the_same_call_goes_on(tmp_path: pathlib.Path) -> None:
    def stop(made: int, missing: int) -> None:
        if made == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demask.lab.run(ROWS, tasks="wordmath", model="demo", limit=4, out=tmp_path / "out", progress=stop)
    assert len((tmp_path / "out/results.jsonl").read_text().splitlines()) == 3
    made: list[int] = []
    demask.lab.run(ROWS, tasks="wordmath", model="demo", limit=4, out=tmp_path / "out", progress=lambda now, of: made.append(of))
    assert made == [5] * 5


@pytest.mark.parametrize("cache", ["none", "dual"])
def test_a_rule_sees_canvas_top_and_logits(engine: demask.Model, cache: str) -> None:
    mask = engine.info["mask_token"]
    canvases: list[list[int]] = []
    seen: list[tuple[Any, Any]] = []

    class Looking(demask.Transfer):
        wants_top = 3
        wants_logits = True

        def choose(self, step: demask.types.Step) -> Any:
            canvas, logits = step.canvas, step.logits
            canvases.append(canvas.tolist())
            assert (canvas[step.positions] == mask).all() and not canvas.flags.writeable
            assert logits.shape == (len(step), engine.info["vocabulary"]) and step.top.shape == (len(step), 3)
            shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
            shares = shifted / shifted.sum(axis=1, keepdims=True)
            assert np.allclose(shares[np.arange(len(step)), step.tokens], step.confidence, atol=1e-5)
            assert (step.top["token"][:, 0] == step.tokens).all()
            assert np.allclose(step.top["probability"], np.take_along_axis(shares, step.top["token"].astype(int), 1), atol=1e-5)
            seen.append((step.positions, logits))
            return [0]

    answer = engine.generate(QUESTION, transfer=Looking, cache=cache)
    # Without a cache they are those of a forward over the same canvas alone; with one, some differ.
    equal = [np.allclose(engine.logits(canvas)[at], logits, atol=1e-4) for canvas, (at, logits) in zip(canvases, seen, strict=True)]
    assert all(equal) == (cache == "none")
    assert answer.text == str(engine.generate(QUESTION, decoder="static", cache=cache)) or cache == "dual"
    filled = [sum(token != mask for token in canvas) for canvas in canvases]
    assert filled == list(range(filled[0], filled[0] + len(filled))) and len(canvases) == answer.nfe

    class Plain(demask.Transfer):
        def choose(self, step: demask.types.Step) -> Any:
            assert step.logits.shape == (len(step), 0) and step.top.shape == (len(step), 0) and len(step.canvas)
            return [0]

    assert engine.generate(QUESTION, transfer=Plain, cache=cache).tokens == answer.tokens


@pytest.mark.parametrize(("wished", "kind"), [(21, ValueError), (-1, ValueError), (True, TypeError), ("3", TypeError)])
def test_a_wish_that_cannot_be_is_refused(engine: demask.Model, wished: Any, kind: type[Exception]) -> None:
    class Wishing(demask.Transfer):
        wants_top = wished

    with pytest.raises(kind, match="wants_top of Wishing is"):
        engine.generate(QUESTION, transfer=Wishing)
