"""The model that workers load, and the errors of those that cannot."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import demask


class RayMissing(ImportError):
    """Ray, or the part of it that is needed, is not installed."""


class WorkerError(RuntimeError):
    """A worker cannot do its work: the message has the node, and what to try."""


def needs_ray(part: str) -> None:
    """Raises `RayMissing` unless `ray.PART` can be imported."""
    import importlib

    try:
        importlib.import_module(f"ray.{part}")
    except ImportError as error:
        raise RayMissing(f"ray.{part} cannot be imported ({error}): pip install 'demask[ray]'") from error


@dataclass(frozen=True)
class Model:
    """A model as every worker loads it: `demask.load`'s keywords, without a model of their own: the built-in demo.

    `name` is an organisation's name and a model's of a hub, a directory or a GGUF file; on each node it has to be readable
    under the same name. `threads` are the engine's, and the CPUs that a worker takes of Ray's count: Ray binds no worker to
    cores, so that engines with more threads than that would crowd each other out.
    """

    name: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    quantize: str = "none"
    activations: str = "auto"
    threads: int = 1
    guide: str | Mapping[str, str] | None = None
    prefix_cache: int | None = None
    """MiB of K/V of earlier prompts that each worker keeps, 0 for none; not given: a quarter of the memory that is free once the
    model is loaded. Only models with causal or block-causal attention have any to keep."""

    def __post_init__(self) -> None:
        if self.name is not None:
            expect("name", self.name, str, os.PathLike)
            object.__setattr__(self, "name", os.fspath(self.name))
        for word in ("device", "dtype", "quantize", "activations"):
            expect(word, getattr(self, word), str)
        whole("threads", self.threads, 1)
        if self.prefix_cache is not None:
            whole("prefix_cache", self.prefix_cache, 0)
        if self.guide is not None:
            expect("guide", self.guide, str, Mapping)

    @classmethod
    def of(cls, model: Model | str | os.PathLike[str] | None) -> Model:
        """Returns a model for a name, and a model as it is."""
        if isinstance(model, Model):
            return model
        if model is not None and not isinstance(model, str | os.PathLike):
            raise TypeError(f"model is {shown(model)}: expected a name, a path, a demask_ray.Model or None (the demo)")
        return cls(None if model is None else os.fspath(model))

    @property
    def keywords(self) -> dict[str, Any]:
        """Returns the keywords for `demask.load`."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}

    @property
    def resources(self) -> dict[str, Any]:
        """Returns the resources of a node that a worker takes, in Ray's words."""
        on_gpu = self.device.startswith("cuda")
        return {"num_cpus": self.threads, **({"num_gpus": 1} if on_gpu else {})}

    def load(self) -> demask.Model:
        """Loads the model in this process, a worker's.

        Raises `WorkerError` if that fails for a reason that another node may not have, and what `demask.load` raises for
        keywords that no node can take.
        """
        module = engine_module()
        try:
            engine: demask.Model = (
                module.demo(**self.keywords) if self.name is None else module.load(self.name, **self.keywords)
            )
        except (module.errors.OptionsError, TypeError):
            raise
        except module.Error as error:
            raise self.unloaded(error) from error
        return engine

    def unloaded(self, error: Exception) -> WorkerError:
        """Returns the error of a model that does not load in this process."""
        name = "the demo" if self.name is None else repr(self.name)
        return WorkerError(
            f"node {node()}: {name} does not load: {error}; every node of the cluster has to reach the model under that"
            " name (a shared or copied folder, or the hub) and have room for it"
        )


def engine_module() -> Any:
    """Returns package `demask`, or raises a `WorkerError` with the node that lacks it."""
    try:
        import demask
    except ImportError as error:
        raise WorkerError(
            f"node {node()}: package demask cannot be imported ({error}): pip install 'demask[ray]' on every node, or"
            " give Ray runtime_env={'pip': ['demask[ray]']}"
        ) from error
    return demask


def node() -> str:
    """Returns the beginning of this process's node's id, as `ray list nodes` shows it."""
    import ray

    return str(ray.get_runtime_context().get_node_id())[:8] if ray.is_initialized() else "of this process"


def expect(name: str, value: object, *kinds: type) -> None:
    """Raises a `TypeError` unless a value is of one of the kinds. Of a truth value as a number nobody thinks."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} is {shown(value)}: expected {names}")


def whole(name: str, value: object, least: int) -> None:
    """Raises unless a value is a whole number and at least so large."""
    expect(name, value, int)
    if isinstance(value, int) and value < least:
        raise ValueError(f"{name} is {value}: expected at least {least}")


def seconds(name: str, value: object) -> None:
    """Raises unless a value is a number of seconds."""
    expect(name, value, int, float)
    if isinstance(value, int | float) and not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value}: expected seconds, 0 or more")


def shown(value: object) -> str:
    """Returns a value as messages show it: short, with its type."""
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
