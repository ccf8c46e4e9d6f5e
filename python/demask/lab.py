"""The laboratory: tables of tasks, models and methods as `demask-lab eval` makes them, from Python.

    import demask

    results = demask.lab.run([{"decoder": "static"}, {"decoder": "threshold"}], tasks="wordmath", model="demo", limit=50)
    print(results)
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from . import _native
from ._generation import Generation
from ._prompt import Prompt, Raw
from ._transfer import Transfer
from .errors import Error

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-not-found, import-untyped, unused-ignore]

__all__ = ["Results", "Task", "judge", "run", "tasks"]

Path = Union[str, "os.PathLike[str]"]
"""A path of a file or a directory."""

Row = Mapping[str, Any]
"""A row of a table, or a task of it: keys and values of a file of runs."""


def run(
    runs: Path | Sequence[Row],
    *,
    tasks: str | Row | Sequence[str | Row] = (),
    model: Path | None = None,
    out: Path | None = None,
    limit: int | None = None,
    batch: int = 1,
    seed: int = 0,
    title: str = "",
    map: Mapping[str, Path] | None = None,
    data: Mapping[str, Path] | None = None,
    only_tasks: Sequence[str] = (),
    only_rows: Sequence[str] = (),
    progress: bool | Callable[[int, int], object] = False,
    device: str | None = None,
    dtype: str | None = None,
    quantize: str | None = None,
    activations: str | None = None,
    threads: int | None = None,
) -> Results:
    """Answers and judges the problems of tasks by every row of a table, as `demask-lab eval --runs` does, and returns the results.

    `runs` is a file of runs, `recipe:NAME`, or a list of rows: dicts with the keys of a row in such a file, beside `tasks`, names
    or dicts with the keys of a task. A row without a `name` is called after its other keys. `model` is that of rows that
    name none (`"demo"` is the built-in one), `title` heads the report of rows in a list.

    `out` is a results directory: what is there is not made again, and the reports are written there. `limit` is the first items of each task,
    `batch` the items at the same time. `map` puts models in the place of those that rows name, `data` files in the place of tasks' own,
    `only_tasks` and `only_rows` leave out all others. `device` and the rest of them say where rows run that do not say it. `progress` shows
    how many items are made, or is called with that and their number. Ctrl-C ends it, and with `out` the same call goes on.

    Rows take turns, so that other work on the machine falls on all of them; models that the memory does not hold together come one
    after the other. Programs that a model writes are not run: tasks of that kind are `demask-lab eval`'s.

    Raises `OptionsError` for what cannot be meant, before anything is loaded, and what `demask.load` does.
    """
    text: str | None = None
    named: dict[str, str] = {}
    if isinstance(runs, (str, os.PathLike)):
        path = os.fspath(runs)
        if tasks or title:
            raise TypeError("tasks and title go with a list of rows: a file of runs has its own")
    else:
        path, (text, named) = "rows", _text(runs, tasks, title)
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress is of type {type(progress).__name__}, expected True, False or a function")
    place = {"device": device, "dtype": dtype, "quantize": quantize, "activations": activations, "threads": threads}
    try:
        native = _native.Evaluation.of_runs(
            path,
            text,
            None if model is None else os.fspath(model),
            place,
            seed=seed,
            limit=limit,
            maps=[(name, os.fspath(other)) for name, other in (map or {}).items()],
            data=[(name, os.fspath(file)) for name, file in (data or {}).items()],
            tasks=list(only_tasks),
            rows=list(only_rows),
        )
    except Error as error:
        error.args = (_by_name(str(error), named),)
        raise
    missing = native.begin(None if out is None else os.fspath(out), _native.__file__, batch)
    told: Callable[[int, int], object] | None = progress if not isinstance(progress, bool) else _shown if progress else None
    command = f"demask.lab.run({path!r})" if text is None else "demask.lab.run([...])"
    native.run(batch, command, None if told is None else lambda made: told(made, missing))
    return Results(native, json.loads(native.finish()), None if out is None else os.fspath(out))


class Results:
    """Results of a table: a row for each row of the table and task, and the judged items."""

    __slots__ = ("_native", "directory", "rows")

    rows: list[dict[str, Any]]
    """The rows of the tables, task after task: the numbers of `summary.json`, nothing rounded."""
    directory: str | None
    """The results directory; `None` where the results are kept in memory alone."""

    def __init__(self, native: _native.Evaluation, rows: list[dict[str, Any]], directory: str | None) -> None:
        """Wraps what `run` has made."""
        self._native = native
        self.rows = rows
        self.directory = directory

    @property
    def items(self) -> list[dict[str, Any]]:
        """The judged items, as lines of `results.jsonl` have them: prompt, output, answer, verdict and receipt of each."""
        return [json.loads(line) for line in self._native.records()]

    @property
    def warnings(self) -> list[str]:
        """Warnings about numbers that mislead, such as many cut answers."""
        return self._native.warnings()

    def report(self, format: str = "text", *, task: str | None = None, columns: Sequence[str] = (), pairs: bool = False) -> str:
        """Returns the report as `text` for a terminal, `markdown`, `html` (one page with pictures) or `json` (`summary.json`), or the table
        of a task as `csv` or `latex`, of these columns if they are named. `pairs` adds every row against every other.

        Raises `OptionsError` for a form, a task or a column that is not there.
        """
        return self._native.report(format, task, list(columns), pairs)

    def to_pandas(self) -> pd.DataFrame:
        """Returns the rows as a data frame: numbers and words as they are, and the ends of intervals as columns of their own
        (`difference.low`). Settings are in `rows`.

        Raises `ModuleNotFoundError` where pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            told = "to_pandas needs pandas, which is not installed: pip install pandas, or take `rows`"
            raise ModuleNotFoundError(told, name=error.name) from error
        return pandas.DataFrame([_flat(row) for row in self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return f"<demask.lab.Results of {len(self.rows)} rows>"


class Task:
    """The problems of a task, for a loop of your own: prompts in the words of a style, and the judge of that style.

        task = demask.lab.Task("wordmath", limit=10)
        for item in task.items:
            answer = model.generate(task.prompt(item), **task.options)
            print(task.judge(item, answer)["correct"])
    """

    __slots__ = ("_native", "items", "name", "options")

    name: str
    """Name of the task."""
    items: list[dict[str, Any]]
    """The problems: `index`, `id`, `question`, `expected` for people, and what else they have."""
    options: dict[str, Any]
    """Options of an answer that the task has: `gen_length`, `stop`."""

    def __init__(
        self,
        name: Path,
        *,
        limit: int | None = None,
        data: Path | None = None,
        subject: str | None = None,
        prompt_style: str | None = None,
        shots: int | None = None,
        shots_file: Path | None = None,
        seed: int = 0,
    ) -> None:
        """Reads a task by its name or its file (`NAME.toml`); the keywords are flags of `demask-lab eval`.

        Raises `OptionsError` if there is no such task or style, `demask.Error` if its data cannot be read.
        """
        self.name = os.fspath(name)
        self._native = _native.Questions(
            self.name,
            seed=seed,
            limit=limit,
            shots=shots,
            shots_file=None if shots_file is None else os.fspath(shots_file),
            prompt_style=prompt_style,
            data=None if data is None else os.fspath(data),
            subject=subject,
        )
        self.options = json.loads(self._native.options())
        self.items = [json.loads(self._native.item(index)) for index in range(len(self._native))]

    def prompt(self, item: int | Mapping[str, Any]) -> Prompt:
        """Returns the prompt of an item: a conversation, or `Raw` where the style continues a text."""
        found: Any = json.loads(self._native.prompt(_index(item)))
        return Raw(found) if isinstance(found, str) else found

    def judge(self, item: int | Mapping[str, Any], answer: str | Generation) -> dict[str, Any]:
        """Returns the verdict on an answer: `answer` is what was found in it, `correct` whether that is right, `credit` its worth where it
        may be right in part, `failure` why there is none.

        Raises `OptionsError` of a task whose answers are programs.
        """
        if not isinstance(answer, (str, Generation)):
            raise TypeError(f"answer is of type {type(answer).__name__}, expected str or demask.Generation")
        found: dict[str, Any] = json.loads(self._native.judge(_index(item), str(answer)))
        return found

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<demask.lab.Task {self.name}, {len(self.items)} items>"


def tasks() -> list[dict[str, Any]]:
    """Returns the tasks that have names: what each is about, where its problems are from, the styles of its prompts, its length."""
    found: list[dict[str, Any]] = json.loads(_native.tasks())
    return found


@functools.lru_cache(maxsize=8)
def _task(name: str) -> Task:
    return Task(name)


def judge(task: str | Task, item: int | Mapping[str, Any], answer: str | Generation) -> dict[str, Any]:
    """Returns the verdict on an answer to an item of a task, by its index or as `Task.items` has it. It is `Task.judge`, of a task
    that is read once if it is named.
    """
    return (task if isinstance(task, Task) else _task(task)).judge(item, answer)


def _index(item: object) -> int:
    found = item.get("index") if isinstance(item, Mapping) else item
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(f"item is {item!r}, expected its index or an entry of Task.items")
    if found < 0:
        raise IndexError(f"item {found} is not there, expected a number from 0 on")
    return found


def _shown(made: int, missing: int) -> None:
    print(f"\r{made} of {missing} items", end="\n" if made == missing else "", flush=True)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name == "settings":
            continue
        if isinstance(value, Mapping):
            flat.update({f"{name}.{inner}": inside for inner, inside in value.items()})
        else:
            flat[name] = value
    return flat


def _text(rows: Sequence[Row], tasks: str | Row | Sequence[str | Row], title: str) -> tuple[str, dict[str, str]]:
    """Returns rows and tasks as the text of a file of runs, and the row or task of each of its lines."""
    named = [tasks] if isinstance(tasks, (str, Mapping)) else list(tasks)
    if not named:
        raise TypeError("tasks is missing: name a task, or several, for the rows to answer")
    listed = list(rows)
    if not listed:
        raise TypeError("runs has no row: give at least one dict of settings, which may be empty")
    lines = [f"title = {_toml(title)}"] if title else []
    lines += ["task = [", *(f"{_toml(one if isinstance(one, Mapping) else {'task': one})}," for one in named), "]"]
    last = len(lines) + 1
    lines += ["row = [", *(f"{_toml(_named(row))}," for row in listed), "]"]
    places = {last - len(named) - 1 + at: f"task {at + 1}" for at in range(len(named))}
    places.update({last + 1 + at: f"row {at + 1}" for at in range(len(listed))})
    return "\n".join(lines) + "\n", {str(line): name for line, name in places.items()}


def _by_name(told: str, places: Mapping[str, str]) -> str:
    """Returns an error with rows and tasks in the place of lines: rows in a list have none that anybody sees."""
    return re.sub(r"(\brows, line|(?<=first )on line) (\d+)", lambda found: places.get(found[2], found[0]), told)


def _named(row: Row) -> dict[str, Any]:
    is_rule = isinstance(row, Transfer) or (isinstance(row, type) and issubclass(row, Transfer))
    if is_rule or (isinstance(row, Mapping) and "transfer" in row):
        told = "a row has a `transfer`, a rule in Python, and rows name methods of the library: judge a rule by"
        raise TypeError(f"{told} demask.lab.Task, with model.generate(task.prompt(item), transfer=..., **task.options)")
    if not isinstance(row, Mapping):
        raise TypeError(f"a row is of type {type(row).__name__}, expected a dict with the keys of a row in a file of runs")
    others = ", ".join(f"{name}={value}" for name, value in row.items() if name not in ("sweep", "on", "rows"))
    return {**row, "name": row.get("name", others or "default")}


def _toml(value: object) -> str:
    """Returns a value as TOML: numbers of numpy and paths are what they stand for."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if hasattr(value, "item") and not isinstance(value, (str, Mapping)):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A string of JSON is one of TOML, but for one letter.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a value of a row is {value}, expected a number")
        return repr(value)
    if isinstance(value, Mapping):
        entries = (f"{_toml(str(name))} = {_toml(inner)}" for name, inner in value.items() if inner is not None)
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, Iterable):
        return "[" + ", ".join(_toml(inner) for inner in value) + "]"
    raise TypeError(f"a value of a row is of type {type(value).__name__}, expected text, a number, a switch, a list or a dict")
