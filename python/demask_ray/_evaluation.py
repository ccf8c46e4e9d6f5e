"""Evaluations on Ray: a task's problems over many workers, the same results as one machine's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from demask_ray._model import Model, WorkerError, engine_module, expect, needs_ray, node, whole

# Pieces that a worker gets of a run, so that those who are done early take over from the others.
PIECES = 8


class Worker:
    """Answers items of an evaluation on some node: an actor's class."""

    def __init__(self, model: Model, tasks: Sequence[str], keywords: Mapping[str, Any], described: str) -> None:
        self._evaluation = evaluation_of(model, tasks, keywords)
        found = self._evaluation.configuration
        if found != described:
            raise WorkerError(f"node {node()} {difference(described, found)}: all nodes need the same model, data and demask")

    def answer(self, items: Sequence[int], batch: int) -> list[str]:
        """Returns the lines of some items."""
        try:
            lines: list[str] = self._evaluation.answer(list(items), batch)
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
    """Says in which part a node's evaluation differs from the one of the process that keeps the results."""

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
    """Answers and judges the problems of tasks on `workers` of a Ray cluster; returns the table's rows.

    `out` is the results directory of `demask eval`: the lines of its `results.jsonl` are those that one machine writes with
    `--batch 1`, in that order, but for seconds and peak memory. The same call goes on where it was ended, and so does
    `demask eval`. `batch` problems share a worker's forwards, `options` are those of `demask generate`, `actor` are Ray's
    for the workers' processes; the other keywords are flags of `demask eval` by their names: `seed`, `limit`, `shots`,
    `shots_file`, `prompt_style`, `score`, `likelihood_draws`, `data`, `subject`, `system`.

    A worker whose node ends is started anew elsewhere, and its items are answered again: each has one line. Programs that a
    model writes are not run: tasks of that kind are `demask eval`'s.
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
            ray.init(include_dashboard=False)
        resources = {**model.resources, **(actor or {})}
        # Whoever dies is started again, and asked again: an answer has no effect but its lines.
        hire: Any = ray.remote(max_restarts=-1, max_task_retries=-1, **resources)(Worker)
        hired = min(workers, -(-len(missing) // batch))
        pool = [hire.remote(model, names, given, evaluation.configuration) for _ in range(hired)]
        try:
            for lines in _in_order(ray, pool, _pieces(missing, hired, batch), batch):
                for line in lines:
                    evaluation.keep(line)
        finally:
            for worker in pool:
                ray.kill(worker)
    rows: list[dict[str, Any]] = json.loads(evaluation.finish())
    return rows


def _pieces(missing: Sequence[int], workers: int, batch: int) -> list[Sequence[int]]:
    """Cuts items into pieces that are worth a call each."""
    size = max(batch, -(-len(missing) // (workers * PIECES)))
    return [missing[begin : begin + size] for begin in range(0, len(missing), size)]


def _in_order(ray: Any, pool: Sequence[Any], pieces: Sequence[Sequence[int]], batch: int) -> Any:
    """Yields what came of each piece, in order. Whichever worker is free takes the next piece."""
    running: dict[Any, tuple[int, Any]] = {}
    done: dict[int, list[str]] = {}
    free, begun, told = list(pool), 0, 0
    while told < len(pieces):
        while free and begun < len(pieces):
            worker = free.pop()
            running[worker.answer.remote(pieces[begun], batch)] = (begun, worker)
            begun += 1
        ready, _ = ray.wait(list(running))
        for call in ready:
            number, worker = running.pop(call)
            try:
                done[number] = ray.get(call)
            except ray.exceptions.RayTaskError as error:
                raise _cause(error) from error
            except ray.exceptions.ActorDiedError as error:
                raise _cause(error) from error
            free.append(worker)
        while told in done:
            yield done.pop(told)
            told += 1


def _cause(error: Any) -> BaseException:
    """Returns the one line of a worker's error, without the traces of Ray's processes."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, WorkerError):
        return WorkerError(str(cause))
    text = str(error)
    # A constructor's error comes as text, its own last line being the message.
    lines = [line.strip() for line in text.splitlines() if "Error" in line]
    return WorkerError(f"a worker ended: {lines[-1] if lines else text}")
