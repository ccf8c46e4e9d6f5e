"""Autoscaling by rows: how many replicas the canvases that wait for forwards are worth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from demask_ray._model import seconds, whole

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

# What a replica reports to Ray's controller.
ROWS, REQUESTS = "waiting_rows", "open_requests"


@dataclass(frozen=True)
class Autoscale:
    """Bounds of the number of replicas, and the load of each.

    A replica's load is not its requests but the rows of their canvases, prompt and answer: a forward costs what its rows
    cost, and requests of 50 and of 2000 positions are not alike. `rows` is what one replica should have open at a time;
    the default is what one forward carries.
    """

    least: int = 1
    most: int = 4
    rows: int = 512
    up_after: float = 30.0
    """Seconds for which more replicas must have been wanted."""
    down_after: float = 600.0
    """Seconds for which fewer must have been wanted."""
    look_back: float = 30.0
    """Seconds over which rows are averaged."""
    every: float = 10.0
    """Seconds between two reports of a replica."""

    def __post_init__(self) -> None:
        whole("least", self.least, 1)
        whole("most", self.most, 1)
        whole("rows", self.rows, 1)
        if self.least > self.most:
            raise ValueError(f"least is {self.least} and most {self.most}: expected at most as many least as most")
        for name in ("up_after", "down_after", "look_back", "every"):
            seconds(name, getattr(self, name))
        if not self.look_back or not self.every:
            raise ValueError("look_back and every are 0: expected more than 0 seconds")

    def config(self) -> dict[str, Any]:
        """Returns Ray's form of it."""
        return {
            "min_replicas": self.least,
            "max_replicas": self.most,
            "upscale_delay_s": self.up_after,
            "downscale_delay_s": self.down_after,
            "look_back_period_s": self.look_back,
            "metrics_interval_s": self.every,
            "policy": {"policy_function": f"{__name__}:RowsPolicy", "policy_kwargs": {"rows": self.rows}},
        }


class RowsPolicy:
    """Policy that asks for as many replicas as the rows of all open and queued requests are worth. Ray adds bounds and delays."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """Returns the replicas that are wanted; nothing is remembered."""
        metrics = context.aggregated_metrics or {}
        rows, requests = (sum(metrics.get(name, {}).values()) for name in (ROWS, REQUESTS))
        return replicas(rows, requests, context.total_queued_requests or 0.0, self.rows), {}


def replicas(rows: float, requests: float, queued: float, each: int) -> int:
    """Returns how many replicas carry `each` rows if so many rows are open, in so many requests, and others are queued.

    Nobody has laid out the canvas of a request that is queued in front of the replicas: it counts as the mean of the open
    ones, and as a whole replica's if none is open.
    """
    mean = rows / requests if requests >= 1 else float(each)
    return math.ceil((rows + queued * mean) / each)
