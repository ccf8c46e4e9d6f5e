"""The examples and the page about Python do what they say."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import types
from typing import Any

import demask
import pytest
from conftest import ROOT

EXAMPLES = ROOT / "python/examples"


def example(name: str, *arguments: object, folder: pathlib.Path) -> str:
    """Runs an example and returns what it prints."""
    words = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_answer(tmp_path: pathlib.Path) -> None:
    told = example("first_answer.py", folder=tmp_path)
    assert told.startswith("3+4=7 pears.\nThe final answer is 7\n14 tokens in ") and "static decoding takes 16 NFE" in told
    told = example("first_answer.py", ROOT / "demo/demo-sdar", folder=tmp_path)
    assert "over block" in told


def test_watching_a_canvas(tmp_path: pathlib.Path) -> None:
    told = example("watch_canvas.py", folder=tmp_path)
    assert "forward  0" in told and "13+5=18 pears.\nThe final answer is 18" in told
    page = (tmp_path / "canvas.html").read_text()
    assert page.count('class="token"') > 10 and "forward 3" in page and "<script" not in page


def test_comparing_caches(tmp_path: pathlib.Path) -> None:
    told = example("compare_caches.py", 20, tmp_path / "caches.html", folder=tmp_path)
    rows = {line.split()[0]: line.split()[1:] for line in told.splitlines()[1:]}
    assert set(rows) == {"none", "prefix", "dual", "freecache:block=16", "dllm"}
    assert float(rows["dual"][2]) < float(rows["none"][2]) / 2, "the cache computes fewer rows"
    assert all(float(row[0].rstrip("%")) >= 80 for row in rows.values())
    assert (tmp_path / "caches.html").read_text().count("<tr>") == 6


def test_an_own_transfer_rule(tmp_path: pathlib.Path) -> None:
    told = example("own_transfer_rule.py", folder=tmp_path).splitlines()
    assert len(told) == 3 and all("custom:margin_drop_" in line and "approximate" in line for line in told)
    nfe = [int(re.findall(r"(\d+) NFE", line)[0]) for line in told]
    assert nfe[0] > nfe[1] >= nfe[2] >= 1


NOTEBOOK = EXAMPLES / "canvas.ipynb"


def test_the_notebooks_cells_run_and_its_canvas_moves(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Shown:
        """What a notebook gives for something that it shows and can show again."""

        def update(self, of: demask.Canvas) -> None:
            shown.append(of.html())

    def display(of: demask.Canvas, *, display_id: bool) -> Shown:
        assert display_id and of.html()
        return Shown()

    module: Any = types.ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    namespace: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, "a notebook is kept without what it showed"
            exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), namespace)
    assert "18 pears" in namespace["answer"].text and namespace["model"].closed
    masks = [one.count('class="mask"') for one in shown]
    assert len(set(shown)) > 5 and masks == sorted(masks, reverse=True) and masks[-1] == 0
    assert namespace["fast"].nfe < namespace["answer"].nfe


@pytest.mark.long
def test_the_notebook_runs_in_a_kernel(tmp_path: pathlib.Path) -> None:
    import nbclient  # type: ignore[import-not-found, unused-ignore]
    import nbformat  # type: ignore[import-not-found, unused-ignore]

    done = nbclient.execute(nbformat.read(NOTEBOOK, as_version=4), cwd=tmp_path, timeout=120)
    drawn = [out for cell in done.cells for out in cell.get("outputs", []) if "text/html" in out.get("data", {})]
    assert len(drawn) == 3 and all("demask" in out["data"]["text/html"] for out in drawn)


def test_every_block_of_the_pages_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 8
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), namespace)
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
    guides = [path.read_text() for path in (ROOT / "docs/guides").glob("*.md")]
    blocks = [block for guide in guides for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL)]
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/guides", "exec"), {})
    for name in ("model", "llm"):
        getattr(namespace[name], "model", namespace[name]).close()
    assert "@@" not in page


def test_what_the_package_exports_is_on_the_page() -> None:
    page = (ROOT / "docs/python.md").read_text()
    missing = [name for name in demask.__all__ if not re.search(rf"`(demask\.)?{name}\b", page)]
    assert not missing, missing
    missing = [name for name in demask.errors.__all__ if f"`{name}`" not in page and name != "Error"]
    assert not missing, missing
