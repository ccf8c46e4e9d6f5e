"""The OpenAI app on Ray Serve: replicas that each hold an engine, and in front of them, if wanted, a router by prefix."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demask_ray._model import Model, WorkerError, engine_module, expect, needs_ray, node, seconds, shown, whole
from demask_ray._routing import PrefixRouter, prefix_of
from demask_ray._scaling import REQUESTS, ROWS, Autoscale

needs_ray("serve")

from ray import serve  # noqa: E402
from ray.serve.exceptions import BackPressureError, RayServeException  # noqa: E402
from ray.serve.handle import DeploymentHandle  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import Response, StreamingResponse  # noqa: E402

# Seconds without a sign of life after which a busy engine counts as stuck: no forward takes that long.
STUCK = 600.0
# Answers of a request (its prompts times `n`), for which an engine has places, while Ray counts requests.
CHOICES = 16

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Limits:
    """Limits of what a replica accepts."""

    ongoing: int
    names: tuple[str, ...] = ()
    max_gen_length: int | None = None
    body_bytes: int = 2 << 20


class Replica:
    """Replica: one engine, and the server's request layer over it."""

    def __init__(self, model: Model, limits: Limits) -> None:
        self._limits = limits
        self._engine = model.load()
        keywords: dict[str, Any] = {"max_queue": limits.ongoing * CHOICES, "page": False}
        if limits.names:
            keywords["names"] = list(limits.names)
        if limits.max_gen_length is not None:
            keywords["max_gen_length"] = limits.max_gen_length
        self._service = self._engine.service(max_body_bytes=limits.body_bytes, **keywords)

    async def __call__(self, request: Request) -> Response:
        """Serves a request that Ray's proxy brings."""
        method, path, headers, body = await _parts(request, self._limits.body_bytes)
        reply = await self._service.http(method, path, headers, body)
        return _streaming(reply.status, reply.headers, _chunks(reply))

    async def answer(self, method: str, path: str, headers: Headers, body: bytes) -> AsyncIterator[Any]:
        """Serves a request that a front brings: status and headers, then the body in pieces."""
        reply = await self._service.http(method, path, headers, body)
        async for piece in _chunks(reply, (reply.status, reply.headers)):
            yield piece

    async def check_health(self) -> None:
        """Raises if the engine has ended or is stuck; Ray then starts another replica."""
        beat = self._engine.metrics()
        if not beat["alive"]:
            raise RuntimeError(f"node {node()}: the engine's thread has ended")
        if beat["busy"] and beat["since_beat_seconds"] > STUCK:
            raise RuntimeError(f"node {node()}: the engine has shown no sign of life for {STUCK:.0f} s")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Reports what autoscaling goes by."""
        counts = self._engine.metrics()
        return {ROWS: float(counts["waiting_rows"]), REQUESTS: float(counts["open_requests"])}

    def counts(self) -> dict[str, Any]:
        """Returns the engine's counts, and which process they are of."""
        return {"node": node(), "process": os.getpid(), **self._engine.metrics()}

    def __del__(self) -> None:
        # A constructor that failed has left no engine.
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.close()


class Front:
    """A front: reads each request's prefix, and hands it to the replica that has served equal ones."""

    def __init__(self, replicas: DeploymentHandle[Any], retry_after: int, body_bytes: int) -> None:
        self._replicas = replicas.options(method_name="answer", stream=True)
        self._retry_after, self._body_bytes = retry_after, body_bytes

    async def __call__(self, request: Request) -> Response:
        """Serves a request that Ray's proxy brings."""
        method, path, headers, body = await _parts(request, self._body_bytes)
        key = prefix_of(body) if method == "POST" else None
        handle = self._replicas.options(session_id=key) if key else self._replicas
        pieces: Any = handle.remote(method, path, headers, body)
        try:
            status, answered = await anext(pieces)
        except BackPressureError:
            return refusal(503, "overloaded", "all replicas are full: try again later", self._retry_after)
        except RayServeException as error:
            return refusal(503, "unavailable", f"no replica can answer: {error}", self._retry_after)
        except asyncio.CancelledError:
            # The client has left before there was an answer.
            pieces.cancel()
            raise
        return _streaming(status, answered, _relayed(pieces))


async def _parts(request: Request, most: int) -> tuple[str, str, Headers, bytes]:
    """Takes a request apart. Of a body that is too long no more is read than shows it."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
    query = f"?{request.url.query}" if request.url.query else ""
    # What the app is mounted under is Ray's to know.
    root = request.scope.get("root_path", "")
    path = request.scope["path"].removeprefix(root) or "/"
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            break
    return request.method, path + query, headers, bytes(body)


def _streaming(status: int, headers: Headers, pieces: AsyncIterator[bytes]) -> Response:
    response = StreamingResponse(pieces, status_code=status)
    # Ray names each request itself, by the client's name for it if it has one, as the engine does.
    named = ((name, value) for name, value in headers if name != "x-request-id")
    response.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named]
    return response


async def _chunks(reply: Any, head: Any = None) -> AsyncIterator[Any]:
    """Yields a head, if there is one, and a reply's body. Whoever stops reading cancels what runs for it."""
    try:
        if head is not None:
            yield head
        async for piece in reply:
            yield piece
    finally:
        reply.cancel()


async def _relayed(pieces: Any) -> AsyncIterator[bytes]:
    try:
        async for piece in pieces:
            yield piece
    finally:
        pieces.cancel()


def refusal(status: int, code: str, message: str, retry_after: int) -> Response:
    """Returns a refusal in the envelope that the engine's own have."""
    told = {"error": {"message": message, "type": "overloaded", "param": None, "code": code}}
    headers = {"retry-after": str(retry_after)}
    return Response(json.dumps(told), status_code=status, headers=headers, media_type="application/json")


def app(
    model: Model | str | os.PathLike[str] | None = None,
    *,
    replicas: int = 1,
    autoscale: Autoscale | Mapping[str, Any] | None = None,
    prefixes: bool | None = None,
    fronts: int = 1,
    ongoing: int = 64,
    queued: int = 128,
    retry_after: int = 2,
    drain: float = 30.0,
    names: Sequence[str] = (),
    max_gen_length: int | None = None,
    body_bytes: int = 2 << 20,
    actor: Mapping[str, Any] | None = None,
) -> serve.Application:
    """Makes an application for `ray.serve.run`: the endpoints of `demask serve` on replicas of one model.

    - `model`: what each replica loads (`Model` has device, threads and quantisation).
    - `replicas`: how many, or with `autoscale` how many at first; `autoscale` says between which bounds they come and go.
    - `prefixes`: whether requests whose prompts begin alike go to the same replica, through `fronts` processes that read
      them; not given: if `Model.prefix_cache` names a size. Without, a replica has the prefixes that it happened to answer.
    - `ongoing`: requests that a replica answers at a time; `queued`: how many may wait in front of them at each proxy. Who
      comes beyond that gets a 503 that says to try again after `retry_after` seconds.
    - `drain`: seconds that a replica's answers get to end when it is stopped.
    - `names`, `max_gen_length`, `body_bytes`: as `demask serve` has them (`served-model-name`, `max-body-bytes`).
    - `actor`: more of Ray's options for a replica's process (`runtime_env`, `resources`, `num_gpus`, ...).
    """
    model = Model.of(model)
    _check(locals())
    if prefixes is None:
        prefixes = bool(model.prefix_cache)
    how_many = _how_many(replicas, autoscale)
    options: dict[str, Any] = {
        "name": "Replica",
        "max_ongoing_requests": ongoing,
        "max_queued_requests": queued,
        "backpressure_config": {"status_code": 503, "retry_after_s": retry_after},
        "graceful_shutdown_timeout_s": drain,
        "graceful_shutdown_wait_loop_s": min(1.0, drain or 1.0),
        # A model that does not load does not load the tenth time either; a node that dies under it is another matter.
        "max_constructor_retry_count": 3,
        "request_router_config": {"request_router_class": PrefixRouter},
        "ray_actor_options": {**model.resources, **(actor or {})},
        **how_many,
    }
    limits = Limits(ongoing, tuple(names), max_gen_length, body_bytes)
    bound = _deployment(Replica, **options).bind(model, limits)
    if not prefixes:
        return bound
    front = _deployment(
        Front,
        name="Front",
        num_replicas=fronts,
        max_ongoing_requests=max(1, (ongoing + queued) * 4),
        graceful_shutdown_timeout_s=drain,
        ray_actor_options={"num_cpus": 0},
    )
    return front.bind(bound, retry_after, body_bytes)


def deploy(application: serve.Application, *, name: str = "demask", route_prefix: str = "/") -> DeploymentHandle[Any]:
    """Runs an application as `ray.serve.run` does; where its replicas do not start, the error says why.

    Raises `WorkerError` with what the last replica that was tried said.
    """
    try:
        return serve.run(application, name=name, route_prefix=route_prefix)
    except RuntimeError as error:
        found = serve.status().applications.get(name)
        deployments = found.deployments if found else {}
        reasons = [reason(deployment.message) for deployment in deployments.values()]
        raise WorkerError(next((told for told in reasons if told), str(error))) from error


def reason(trace: str) -> str:
    """Returns the message of the last exception of a trace as text, without its class."""
    lines = [line.strip() for line in trace.splitlines()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: ", line)]
    return raised[-1].partition(": ")[2] if raised else ""


def _deployment(cls: type, **options: Any) -> serve.Deployment:
    deployment: serve.Deployment = serve.deployment(**options)(cls)
    return deployment


def _how_many(replicas: int, autoscale: Autoscale | Mapping[str, Any] | None) -> dict[str, Any]:
    if autoscale is None:
        return {"num_replicas": replicas}
    if isinstance(autoscale, Mapping):
        try:
            autoscale = Autoscale(**autoscale)
        except TypeError as error:
            raise TypeError(f"autoscale: {error}: expected keywords of demask_ray.Autoscale") from None
    if not autoscale.least <= replicas <= autoscale.most:
        raise ValueError(
            f"replicas is {replicas}: with autoscale it is how many there are at first, expected {autoscale.least} to"
            f" {autoscale.most}"
        )
    return {"autoscaling_config": {**autoscale.config(), "initial_replicas": replicas}}


def _check(given: Mapping[str, Any]) -> None:
    """Raises for what is wrong with `app`'s keywords, before anything is started."""
    for name, least in (("replicas", 1), ("fronts", 1), ("ongoing", 1), ("queued", 0), ("retry_after", 0), ("body_bytes", 1)):
        whole(name, given[name], least)
    if given["max_gen_length"] is not None:
        whole("max_gen_length", given["max_gen_length"], 1)
    seconds("drain", given["drain"])
    if given["prefixes"] is not None:
        expect("prefixes", given["prefixes"], bool)
    if given["autoscale"] is not None:
        expect("autoscale", given["autoscale"], Autoscale, Mapping)
    if given["actor"] is not None:
        expect("actor", given["actor"], Mapping)
    names = given["names"]
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"names is {shown(names)}: expected a list of names")
    engine_module()
