"""Batches on Ray Data: the rows of a dataset answered by a pool of workers, the same bytes whoever answers them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from demask_ray._model import Model, WorkerError, engine_module, expect, needs_ray, node, shown, whole

if TYPE_CHECKING:
    import os

    from ray.data import Dataset

# The columns that are added to a row, beside the "error" of `errors="column"`.
ADDED = ("text", "finish", "nfe", "seed", "receipt")


def seed_of(key: str | int | bytes, seed: int = 0) -> int:
    """Returns the seed of a row's answer: of its key and the run's seed alone, and never of where the row stands."""
    if isinstance(key, bool) or not isinstance(key, str | int | bytes):
        raise TypeError(f"a key is {shown(key)}: expected a text, a whole number or bytes, by which a row is known again")
    kind = "bytes" if isinstance(key, bytes) else "int" if isinstance(key, int) else "str"
    text = key if isinstance(key, bytes) else str(key).encode()
    digest = hashlib.blake2b(f"{seed}\0{kind}\0".encode() + text, digest_size=8).digest()
    # 63 bits: columns of whole numbers hold no more.
    return int.from_bytes(digest, "big") >> 1


class Generator:
    """A callable class that answers rows, for `Dataset.map_batches` with an actor pool, one engine a worker.

    `prompt` names the column with the prompts: texts, conversations (lists of `{"role", "content"}`) or lists of token
    ids. `key` names the column by which rows are known again, of texts or whole numbers: a row's seed is made of it, so
    that a rerun, another order and another number of workers lead to the same answers. `options` are those of
    `demask generate`, by their names.

    A row gets the columns `text`, `finish`, `nfe`, `seed` and `receipt`. The receipt is JSON; what differs between two runs
    of the same answer, seconds and peak memory, is left out of it unless `timings` is set. With `errors="column"` a row
    that cannot be answered has the reason in column `error`, which is empty for others, and `finish` is `error`; otherwise
    it ends the job.
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str] | None = None,
        *,
        prompt: str = "prompt",
        key: str = "key",
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        errors: str = "raise",
        timings: bool = False,
    ) -> None:
        options = {} if options is None else options
        check(prompt, key, seed, options, errors, timings)
        self._prompt, self._key, self._seed = prompt, key, seed
        self._options, self._errors, self._timings = dict(options), errors, timings
        # Options are not known to types: they are whatever the library's are.
        self._engine: Any = Model.of(model).load()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a batch with the columns of its answers."""
        if not isinstance(batch, Mapping):
            raise TypeError(f"the batch is of type {type(batch).__name__}: call map_batches with batch_format='numpy'")
        check_columns(list(batch), self._prompt, self._key, self._errors)
        module = engine_module()
        keys = [_plain(key) for key in batch[self._key]]
        seeds = [seed_of(key, self._seed) for key in keys]
        prompts = [_asked(prompt, self._prompt, key, module) for prompt, key in zip(batch[self._prompt], keys, strict=True)]
        each = [{"seed": seed} for seed in seeds]
        answers = self._engine.generate(prompts, each=each, errors="return", **self._options) if prompts else []
        return {**batch, **self._columns(answers, keys, seeds, module)}

    def _columns(self, answers: Sequence[Any], keys: Sequence[Any], seeds: Sequence[int], module: Any) -> dict[str, Any]:
        import numpy

        failed = [answer if isinstance(answer, BaseException) else None for answer in answers]
        if self._errors == "raise":
            for key, error in zip(keys, failed, strict=True):
                if error is not None:
                    raise _told(error, key, module) from error
        texts: list[dict[str, Any]] = []
        for answer, error in zip(answers, failed, strict=True):
            if error is not None:
                texts.append({"text": "", "finish": "error", "nfe": 0, "receipt": "", "error": str(error)})
                continue
            receipt = answer.receipt if self._timings else steady(answer.receipt)
            text = {"text": answer.text or "", "finish": answer.finish_reason, "nfe": answer.nfe, "error": ""}
            texts.append({**text, "receipt": json.dumps(receipt, ensure_ascii=False, separators=(",", ":"))})
        columns = {
            name: numpy.array([text[name] for text in texts], dtype=object) for name in ("text", "finish", "receipt")
        }
        columns["nfe"] = numpy.array([text["nfe"] for text in texts], dtype=numpy.int64)
        columns["seed"] = numpy.array(list(seeds), dtype=numpy.int64)
        if self._errors == "column":
            columns["error"] = numpy.array([text["error"] for text in texts], dtype=object)
        return columns


def generate(
    dataset: Dataset,
    model: Model | str | os.PathLike[str] | None = None,
    *,
    workers: int | tuple[int, int] = 1,
    batch: int = 64,
    actor: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Dataset:
    """Returns a dataset of the answers to another one's rows: `map_batches` with `Generator` and a pool of `workers`.

    `workers` are so many, or between so many; `batch` rows share a worker's forwards; `actor` are more of Ray's options for
    their processes; the other keywords are `Generator`'s. What can be told before a worker starts is checked here, the
    columns too if the dataset knows them.
    """
    needs_ray("data")
    from ray.data import ActorPoolStrategy

    model = Model.of(model)
    whole("batch", batch, 1)
    defaults = {"prompt": "prompt", "key": "key", "seed": 0, "options": {}, "errors": "raise", "timings": False}
    unknown = [name for name in keywords if name not in defaults]
    if unknown:
        raise TypeError(f"unknown keyword {unknown[0]!r}: expected some of {', '.join(defaults)}")
    given = {**defaults, **keywords}
    check(**given)
    columns = dataset.columns(fetch_if_missing=False)
    if columns is not None:
        check_columns(columns, given["prompt"], given["key"], given["errors"])
    if isinstance(workers, tuple):
        least, most = workers
        pool = ActorPoolStrategy(min_size=least, max_size=most)
    else:
        whole("workers", workers, 1)
        pool = ActorPoolStrategy(size=workers)
    return dataset.map_batches(
        Generator,
        fn_constructor_kwargs={"model": model, **keywords},
        batch_size=batch,
        batch_format="numpy",
        compute=pool,
        **{**model.resources, **(actor or {})},
    )


def steady(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a receipt without what differs between two runs of the same answer."""
    kept = {name: value for name, value in receipt.items() if name != "seconds"}
    if isinstance(kept.get("memory"), Mapping):
        kept["memory"] = {name: value for name, value in kept["memory"].items() if name not in ("peak", "device")}
    return kept


def check(prompt: object, key: object, seed: object, options: object, errors: object, timings: object) -> None:
    """Raises for what is wrong with a `Generator`'s keywords."""
    expect("prompt", prompt, str)
    expect("key", key, str)
    whole("seed", seed, 0)
    expect("options", options, Mapping)
    expect("timings", timings, bool)
    if errors not in ("raise", "column"):
        raise ValueError(f"errors is {shown(errors)}: expected 'raise' or 'column'")
    if isinstance(options, Mapping) and "seed" in options:
        raise ValueError("options has a seed: a row's seed is made of its key; give Generator the run's own seed")


def check_columns(columns: Sequence[str], prompt: str, key: str, errors: str) -> None:
    """Raises if a dataset lacks a column, or has one that would be written over."""
    for role, name in (("prompt", prompt), ("key", key)):
        if name not in columns:
            told = f"no column {name!r} for {role}s: the dataset has {', '.join(map(repr, columns)) or 'none'}"
            raise ValueError(f"{told}; name it with {role}=, or rename it with Dataset.rename_columns")
    for name in (*ADDED, *(["error"] if errors == "column" else [])):
        if name in columns:
            raise ValueError(f"column {name!r} is there already: rename it with Dataset.rename_columns, answers need the name")


def _plain(value: Any) -> Any:
    """Returns numpy's scalars and arrays as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value


def _asked(prompt: Any, column: str, key: Any, module: Any) -> Any:
    """Returns a cell as a prompt."""
    prompt = _plain(prompt)
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt:
        if all(isinstance(turn, Mapping) for turn in prompt):
            return [dict(turn) for turn in prompt]
        if all(isinstance(token, int) and not isinstance(token, bool) for token in prompt):
            return module.Tokens(prompt)
    raise TypeError(
        f"the row of key {key!r} has {shown(prompt)} in column {column!r}: expected a text, a conversation"
        " (a list of {'role', 'content'}) or a list of token ids"
    )


def _told(error: BaseException, key: Any, module: Any) -> BaseException:
    """Returns a row's error with the row that it is of, in a class that processes hand on to each other."""
    told = f"the row of key {key!r} cannot be answered: {error}; errors='column' would keep the other rows"
    if isinstance(error, module.errors.OptionsError | module.errors.PromptError):
        same: BaseException = type(error)(told)
        return same
    return WorkerError(f"node {node()}: {told}")
