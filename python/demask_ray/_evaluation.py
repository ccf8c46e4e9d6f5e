"""Evaluations on Ray: a task's problems over many workers, the same results as one machine's."""

from __future__ import annotations

import json
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from demask_ray._model import Model, WorkerError, engine_module, expect, needs_ray, node, whole

# Pieces that a worker gets of a run, so that those who are done early take over from the others.
PIECES = 8
# Workers that may end, for each that was asked for, until the reason is more likely the work than its machines.
LOST = 4
# Seconds without any worker after which a line about it is printed.
PATIENCE = 60.0


class Worker:
    """A worker of an evaluation on some node: an actor's class. What fails in it fails in a call, never in its making."""

    def __init__(self, model: Model, tasks: Sequence[str], keywords: Mapping[str, Any], described: str) -> None:
        self._given, self._described = (model, tasks, keywords), described
        self._evaluation: Any = None

    def here(self) -> None:
        """Returns when the worker has a place and runs."""

    def answer(self, items: Sequence[int], batch: int) -> list[str]:
        """Returns the lines of some items."""
        try:
            if self._evaluation is None:
                self._evaluation = evaluation_of(*self._given)
                found = self._evaluation.configuration
                if found != self._described:
                    told = difference(self._described, found)
                    raise WorkerError(f"node {node()} {told}: all nodes need the same model, data and demask")
            lines: list[str] = self._evaluation.answer(list(items), batch)
        except engine_module().errors.ModelError as error:
            raise self._given[0].unloaded(error) from error
        except engine_module().Error as error:
            raise WorkerError(f"node {node()}: {error}") from error
        return lines


def evaluation_of(model: Model, tasks: Sequence[str], keywords: Mapping[str, Any]) -> Any:
    """Returns an evaluation, laid out on this machine."""
    engine_module()
    from demask import _native

    given = dict(keywords)
    options = given.pop("options", {})
    native: Any = _native
    return native.Evaluation(list(tasks), model.name, model.keywords, options, **given)


def difference(described: str, found: str) -> str:
    """Returns the part in which a node's evaluation differs from the one of the process that keeps the results."""

    def parts(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {path: value}
        return {name: part for key in value for name, part in parts(value[key], f"{path}.{key}").items()}

    was, is_ = (parts(json.loads(text), "") for text in (described, found))
    names = [name for name in {**was, **is_} if was.get(name) != is_.get(name)]
    first = names[0] if names else ""
    return f"has {is_.get(first)!r} for {first.lstrip('.')} and not {was.get(first)!r}"


def evaluate(
    tasks: str | Sequence[str],
    *,
    model: Model | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str],
    workers: int = 1,
    batch: int = 1,
    options: Mapping[str, Any] | None = None,
    actor: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> list[dict[str, Any]]:
    """Runs and judges the problems of tasks on `workers` of a Ray cluster; returns the table's rows.

    `out` is the results directory of `demask-lab eval`: the lines of its `results.jsonl` are those that one machine writes with
    `--batch 1`, in that order, but for seconds and peak memory. The same call goes on where it was ended, and so does
    `demask-lab eval`. `batch` problems share a worker's forwards, `options` are those of `demask generate`, `actor` are Ray's
    for the workers' processes; the other keywords are flags of `demask-lab eval` by their names: `seed`, `limit`, `shots`,
    `shots_file`, `prompt_style`, `score`, `likelihood_draws`, `data`, `subject`, `system`.

    Where a worker's node ends, others answer its items, and another worker starts where there is room: each item has one
    line. Programs that a model writes are not run: tasks of that kind are `demask-lab eval`'s.
    """
    needs_ray("util")
    import ray

    model = Model.of(model)
    whole("workers", workers, 1)
    whole("batch", batch, 1)
    expect("out", out, str, os.PathLike)
    given = {**keywords, "options": dict(options or {})}
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    evaluation = evaluation_of(model, names, given)
    missing = evaluation.open(os.fspath(out))
    if missing:
        if not ray.is_initialized():
            ray.init()
        resources = {**model.resources, **(actor or {})}
        hire: Any = ray.remote(**resources)(Worker)
        hired = min(workers, -(-len(missing) // batch))
        crew = Crew(ray, lambda: hire.remote(model, names, given, evaluation.configuration), hired)
        try:
            for lines in crew.answer(_pieces(missing, hired, batch), batch):
                for line in lines:
                    evaluation.keep(line)
        finally:
            crew.dismiss()
    rows: list[dict[str, Any]] = json.loads(evaluation.finish())
    return rows


def _pieces(missing: Sequence[int], workers: int, batch: int) -> list[Sequence[int]]:
    """Cuts items into pieces that are worth a call each."""
    size = max(batch, -(-len(missing) // (workers * PIECES)))
    return [missing[begin : begin + size] for begin in range(0, len(missing), size)]


class Crew:
    """Workers, and what each of them does. One that ends is replaced, and its piece is anyone's again."""

    def __init__(self, ray: Any, hire: Callable[[], Any], count: int) -> None:
        self._ray, self._hire, self._count = ray, hire, count
        # Calls that run: the worker, and the number of its piece; none while it has no place yet.
        self._calls: dict[Any, tuple[Any, int | None]] = {}
        self._idle: list[Any] = []
        self._lost = 0
        for _ in range(count):
            self._start()

    def answer(self, pieces: Sequence[Sequence[int]], batch: int) -> Iterator[list[str]]:
        """Yields what comes of each piece, in order. Whoever is free takes the next one."""
        waiting, done, told = deque(range(len(pieces))), dict[int, list[str]](), 0
        while told < len(pieces):
            while self._idle and waiting:
                worker, number = self._idle.pop(), waiting.popleft()
                self._calls[worker.answer.remote(pieces[number], batch)] = (worker, number)
            for call in self._ended():
                worker, piece = self._calls.pop(call)
                lines = self._result(call)
                if lines is None:
                    waiting.extendleft([] if piece is None else [piece])
                    self._start()
                    continue
                self._idle.append(worker)
                if piece is not None:
                    done[piece] = lines
            while told in done:
                yield done.pop(told)
                told += 1

    def dismiss(self) -> None:
        """Ends all workers."""
        for worker in [*self._idle, *(worker for worker, _ in self._calls.values())]:
            self._ray.kill(worker)

    def _start(self) -> None:
        worker = self._hire()
        self._calls[worker.here.remote()] = (worker, None)

    def _ended(self) -> list[Any]:
        ended, _ = self._ray.wait(list(self._calls), timeout=PATIENCE)
        if not ended and all(piece is None for _, piece in self._calls.values()):
            free = self._ray.available_resources()
            warnings.warn(f"no worker has found a place for {PATIENCE:.0f} s: the cluster has {free} left", stacklevel=4)
        return list(ended)

    def _result(self, call: Any) -> list[str] | None:
        """Returns what a call returned, and none if its worker or node ended."""
        lost = self._ray.exceptions
        try:
            return self._ray.get(call) or []
        except lost.RayTaskError as error:
            raise _cause(error) from error
        except (lost.RayActorError, lost.ObjectLostError) as error:
            self._lost += 1
            if self._lost > LOST * self._count:
                raise WorkerError(f"{self._lost} workers ended while they answered, the last one so: {error}") from error
            return None


def _cause(error: Any) -> BaseException:
    """Returns the one line of a worker's error, without the traces of Ray's processes."""
    cause = getattr(error, "cause", None)
    return WorkerError(str(cause)) if isinstance(cause, WorkerError) else WorkerError(f"a worker failed: {cause or error}")
