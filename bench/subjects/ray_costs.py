"""What Ray costs a request and a row: answers of an engine in this process, of replicas, of workers, and of ones that answer
nothing. Needs two cores, nothing else to do, and the environment that python/tests/ray/run.py makes (`target/ray`).
"""

import asyncio
import json
import logging
import os
import time

import demask
import demask_ray
import httpx
import numpy
import ray
from ray import serve

PORT, AT_ONCE = 18231, 32


def question(number):
    """A word problem of the demo's kind."""
    return f"Ada has {number % 90 + 3} pears. Ben gives Ada {number % 7 + 2} more. How many pears are there in the end?"


def body(number):
    """A request's bytes."""
    return json.dumps({"messages": [{"role": "user", "content": question(number)}], "seed": number}).encode()


async def timed(name, ask, count, at_once=AT_ONCE):
    """Requests a second, the median and 99th hundredth of their milliseconds, and bytes of an answer."""
    turns, took, sizes = asyncio.Semaphore(at_once), [], []

    async def one(number):
        async with turns:
            began = time.perf_counter()
            sizes.append(len(await ask(number)))
            took.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(count)))
    seconds = time.perf_counter() - began
    took.sort()
    found = {"per_second": count / seconds, "median_ms": took[count // 2], "p99_ms": took[count * 99 // 100]}
    found["answer_bytes"] = sum(sizes) / count
    return {f"{name}_{key}": value for key, value in found.items()}


async def asked(answer, nothing, requests):
    """All four kinds of asking, once some answers were made."""
    await timed("warm", answer, 100)
    found = await timed("lone_answers", answer, 100, 1)
    found |= await timed("answers", answer, requests)
    found |= await timed("lone_nothing", nothing, 100, 1)
    return found | await timed("nothing", nothing, requests)


class Engine:
    """One engine in this process, through the same request layer."""

    def __init__(self, _bench, values):
        self.values = values

    def turn(self):
        async def run():
            with demask.demo(threads=1) as engine:

                async def answer(number):
                    return await (await engine.http("POST", "/v1/chat/completions", {}, body(number))).read()

                async def nothing(_number):
                    return await (await engine.http("GET", "/health")).read()

                return await asked(answer, nothing, self.values["requests"])

        return asyncio.run(run())


class Cluster:
    """Ray on this machine's two cores."""

    def __init__(self, _bench, values):
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_LOG_TO_STDERR": "0"}
        for name in ("ray", "ray.data"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self.values, self.about = values, f"ray {ray.__version__}"
        if not ray.is_initialized():
            quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
            ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, **quiet)

    def close(self):
        ray.shutdown()


class App(Cluster):
    """The app that is deployed, through Ray's proxy."""

    def turn(self):
        quiet = {"log_level": "ERROR", "enable_access_log": False}
        serve.start(http_options={"host": "127.0.0.1", "port": PORT}, logging_config=quiet)
        options = {"replicas": self.values["replicas"], **({"prefixes": True} if self.values.get("front") else {})}
        serve.run(demask_ray.app(**options), name="demask", logging_config=quiet)
        try:
            return asyncio.run(self.served())
        finally:
            serve.delete("demask")
            serve.shutdown()

    async def served(self):
        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", limits=limits, timeout=60) as client:

            async def answer(number):
                return checked(await client.post("/v1/chat/completions", content=body(number)))

            async def nothing(_number):
                return checked(await client.get("/health"))

            return await asked(answer, nothing, self.values["requests"])


def checked(response):
    """A response's bytes."""
    response.raise_for_status()
    return response.content


class Nothing:
    """Returns rows with what is in them already: what a worker costs without an engine."""

    def __call__(self, batch):
        """Adds a column."""
        return {**batch, "text": numpy.array([str(prompt) for prompt in batch["prompt"]], dtype=object)}


class Data(Cluster):
    """A job with workers, with engines or without. A short job pays their start: the difference of two is what rows cost."""

    def mapped(self, rows, batch=64):
        """Seconds of the better of two jobs, and bytes of a row in and out."""
        ray.data.DataContext.get_current().enable_progress_bars = False
        workers, items = self.values["workers"], [{"key": number, "prompt": question(number)} for number in range(rows)]
        dataset = ray.data.from_items(items, override_num_blocks=16).materialize()
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            if self.values["answers"]:
                done = demask_ray.generate(dataset, workers=workers, batch=batch).materialize()
            else:
                pool = ray.data.ActorPoolStrategy(size=workers)
                done = dataset.map_batches(Nothing, batch_size=batch, compute=pool, num_cpus=1).materialize()
            seconds.append(time.perf_counter() - began)
            assert done.count() == rows
        return min(seconds), {"row_bytes_in": dataset.size_bytes() / rows, "row_bytes_out": done.size_bytes() / rows}

    def turn(self):
        rows = self.values["rows"] if self.values["answers"] else self.values["rows"] * 20
        short, _ = self.mapped(rows // 4)
        long, sizes = self.mapped(rows)
        rate = (rows - rows // 4) / max(1e-3, long - short)
        return {"rows_per_second": rate, "seconds": long, "start_seconds": short - rows / 4 / rate, **sizes}
