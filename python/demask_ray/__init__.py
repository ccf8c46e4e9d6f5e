"""demask on a Ray cluster: an OpenAI app on Serve, batches on Data, evaluations over many machines.

`app` makes an application for `ray.serve.run`, `Generator` answers the rows of a dataset in `map_batches`, and `evaluate`
spreads an evaluation's problems. Answers are, to the bit, those that one engine gives alone, whichever worker makes them.

Ray is imported when one of these is first used: `pip install 'demask[ray]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from demask_ray._model import Model, RayMissing, WorkerError

if TYPE_CHECKING:
    from demask_ray._batches import Generator as Generator
    from demask_ray._batches import generate as generate
    from demask_ray._batches import seed_of as seed_of
    from demask_ray._evaluation import evaluate as evaluate
    from demask_ray._routing import PrefixRouter as PrefixRouter
    from demask_ray._scaling import Autoscale as Autoscale
    from demask_ray._serving import app as app
    from demask_ray._serving import deploy as deploy

__all__ = [
    "Autoscale",
    "Generator",
    "Model",
    "PrefixRouter",
    "RayMissing",
    "WorkerError",
    "app",
    "deploy",
    "evaluate",
    "generate",
    "seed_of",
]

# Where each name is: some of these modules cannot be imported without Ray.
_HOMES = {
    "Autoscale": "_scaling",
    "Generator": "_batches",
    "PrefixRouter": "_routing",
    "app": "_serving",
    "deploy": "_serving",
    "evaluate": "_evaluation",
    "generate": "_batches",
    "seed_of": "_batches",
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: expected one of {', '.join(__all__)}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
