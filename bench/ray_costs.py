"""What Ray costs a request and a row: answers of one engine in this process, of one replica and of two, of one worker and
of two, and of replicas that answer nothing; and from these, with `demask cost`, how many machines Ray feeds.

    target/ray/bin/python bench/ray_costs.py measure serve
    target/ray/bin/python bench/ray_costs.py measure data
    python bench/ray_costs.py plan --demask target/release/demask
    python bench/ray_costs.py table

`measure` needs a machine with two cores and nothing else to do, and the environment of python/tests/ray/run.py; each
part takes two minutes. `plan` prints the table of docs/scale.md from the record,
`table` those of docs/ray.md.
"""

import argparse
import asyncio
import json
import logging
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "bench" / "record" / "ray" / "costs.json"
REQUESTS, ROWS, AT_ONCE = 500, 1200, 32
# Operations a second and bytes read a second of one machine, for the plan: a server with 64 cores and 300 GB/s.
MACHINE = {"flops": 6.0e12, "bytes": 3.0e11}
SHAPES = (
    ("llada-8b", 1024, 256, ("--decoder", "threshold:tau=0.9", "--cache", "dual", "--block-length", "32")),
    ("sdar-4b", 1024, 256, ("--decoder", "threshold:tau=0.9", "--cache", "block")),
)
MACHINES = (4, 16, 64)


def question(number):
    """A word problem of the demo's kind."""
    return f"Ada has {number % 90 + 3} pears. Ben gives Ada {number % 7 + 2} more. How many pears are there in the end?"


def body(number):
    """A request's bytes."""
    return json.dumps({"messages": [{"role": "user", "content": question(number)}], "seed": number}).encode()


async def timed(ask, count, at_once=AT_ONCE):
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
    return {
        "per_second": round(count / seconds, 1),
        "median_ms": round(took[count // 2], 2),
        "p99_ms": round(took[count * 99 // 100], 2),
        "answer_bytes": round(sum(sizes) / count),
    }


def alone():
    """One engine in this process, through the same request layer."""
    import demask

    async def run():
        with demask.demo(threads=1) as engine:
            async def answer(number):
                return await (await engine.http("POST", "/v1/chat/completions", {}, body(number))).read()

            async def nothing(_number):
                return await (await engine.http("GET", "/health")).read()

            await timed(answer, 50)
            return {
                "lone_answers": await timed(answer, 100, 1),
                "answers": await timed(answer, REQUESTS),
                "nothing": await timed(nothing, REQUESTS),
            }

    return asyncio.run(run())


def served(port):
    """The app that is deployed, through Ray's proxy."""
    import httpx

    async def run():
        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=60) as client:
            async def answer(number):
                return checked(await client.post("/v1/chat/completions", content=body(number)))

            async def nothing(_number):
                return checked(await client.get("/health"))

            await timed(answer, 100)
            return {
                "lone_answers": await timed(answer, 100, 1),
                "answers": await timed(answer, REQUESTS),
                "lone_nothing": await timed(nothing, 100, 1),
                "nothing": await timed(nothing, REQUESTS),
            }

    return asyncio.run(run())


def checked(response):
    """A response's bytes."""
    response.raise_for_status()
    return response.content


class Nothing:
    """Returns rows with what is in them already: what a worker costs without an engine."""

    def __call__(self, batch):
        """Adds a column."""
        import numpy

        return {**batch, "text": numpy.array([str(prompt) for prompt in batch["prompt"]], dtype=object)}


def mapped(workers, kind, rows=ROWS, batch=64):
    """Rows a second of a job on a pool that is there already, and bytes of a row in and out."""
    import demask_ray
    import ray

    dataset = ray.data.from_items([{"key": number, "prompt": question(number)} for number in range(rows)], override_num_blocks=16)
    dataset = dataset.materialize()
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        if kind == "answers":
            done = demask_ray.generate(dataset, workers=workers, batch=batch).materialize()
        else:
            pool = ray.data.ActorPoolStrategy(size=workers)
            done = dataset.map_batches(Nothing, batch_size=batch, compute=pool, num_cpus=1).materialize()
        seconds.append(time.perf_counter() - began)
        assert done.count() == rows
    return {
        "rows": rows,
        "seconds": round(min(seconds), 3),
        "row_bytes_in": round(dataset.size_bytes() / rows),
        "row_bytes_out": round(done.size_bytes() / rows),
    }


def measure(out, part):
    """Runs a part of it and writes what it finds into the record."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_LOG_TO_STDERR": "0"}
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    import ray

    found = json.loads(out.read_text()) if out.exists() else {}
    if part == "serve":
        found["engine"] = alone()
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False, logging_level=logging.ERROR)
    found |= on_serve() if part == "serve" else on_data()
    ray.shutdown()
    model = next((line.split(": ")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    found["machine"] = {"processor": model.strip(), "cores": os.cpu_count(), "python": platform.python_version(), "ray": ray.__version__}
    text = json.dumps(found, indent=1)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text + "\n")
    print(text)


def on_serve():
    """Requests to apps of one and two replicas, and through a front."""
    import demask_ray
    from ray import serve

    quiet, found = {"log_level": "ERROR", "enable_access_log": False}, {}
    serve.start(http_options={"host": "127.0.0.1", "port": 18231}, logging_config=quiet)
    for name, options in (
        ("one replica", {"replicas": 1}),
        ("two replicas", {"replicas": 2}),
        ("one replica behind a front", {"replicas": 1, "prefixes": True}),
    ):
        serve.run(demask_ray.app(**options), name="demask", logging_config=quiet)
        found[name] = served(18231)
        serve.delete("demask")
    serve.shutdown()
    return found


def on_data():
    """Jobs with one worker and two, with engines and without."""
    import ray

    ray.data.DataContext.get_current().enable_progress_bars = False
    found = {}
    for workers in (1, 2):
        # A short job pays the start of its workers: the difference of two is what rows cost.
        for kind in ("answers", "nothing"):
            many = ROWS if kind == "answers" else ROWS * 20
            short, long = (mapped(workers, kind, rows) for rows in (many // 4, many))
            rate = (long["rows"] - short["rows"]) / max(1e-3, long["seconds"] - short["seconds"])
            name = f"data, {workers} worker{'s' * (workers > 1)}, {kind}"
            found[name] = {**long, "seconds_of_a_quarter": short["seconds"], "rows_per_second": round(rate, 1)}
    return found


def planned(binary, like, prompt, response, options):
    """Seconds of a machine for an answer, and its operations and bytes, from `demask cost`."""
    words = ["cost", "--like", like, "--prompt-length", str(prompt), "--gen-length", str(response), "--acceptance", "0.6", "--json"]
    told = subprocess.run([binary, *words, *options], check=True, capture_output=True, text=True).stdout
    network = json.loads(told)["estimate"]["network"]
    # Many requests share a forward: its weights are read once for all, so that operations bound it.
    return max(network["flops"] / MACHINE["flops"], network["bytes"] / MACHINE["bytes"] / AT_ONCE)


def plan(binary, record):
    """The table of docs/scale.md."""
    # Milliseconds of all that Ray does for a request: proxy, router, replica, with this client on the same two cores.
    each, front = (1000.0 / record[name]["nothing"]["per_second"] for name in ("one replica", "one replica behind a front"))
    lines = [
        "| shape; prompt, answer | s of a machine for an answer | machines | answers/s | Ray's ms/s | of one proxy | through one front |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for like, prompt, response, options in SHAPES:
        seconds = planned(binary, like, prompt, response, options)
        for machines in MACHINES:
            rate = machines / seconds
            shares = f"{rate * each:.1f} | {rate * each / 10:.2f} % | {rate * front / 10:.2f} %"
            lines.append(f"| {like}; {prompt}, {response} | {seconds:.1f} | {machines} | {rate:.2f} | {shares} |")
    return "\n".join(lines)


def table(record):
    """The tables of docs/ray.md."""
    lines = [
        "| requests to | alone, ms | 32 at once, requests/s | of no work: alone, ms | 32 at once, requests/s |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in ("engine", "one replica", "two replicas", "one replica behind a front"):
        found = record[name]
        empty = found.get("lone_nothing", found["nothing"])
        told = "the engine, without Ray" if name == "engine" else name
        ends = f"{empty['median_ms']:.2f} | {found['nothing']['per_second']:.0f}"
        lines.append(f"| {told} | {found['lone_answers']['median_ms']:.1f} | {found['answers']['per_second']:.0f} | {ends} |")
    lines += ["", "| rows of a job | workers | rows/s | s to start | bytes of a row in, out |", "|---|---:|---:|---:|---:|"]
    for workers in (1, 2):
        found = record[f"data, {workers} worker{'s' * (workers > 1)}, answers"]
        start = found["seconds_of_a_quarter"] - found["rows"] / 4 / found["rows_per_second"]
        sizes = f"{found['row_bytes_in']}, {found['row_bytes_out']}"
        lines.append(f"| answered, 16 blocks | {workers} | {found['rows_per_second']:.0f} | {start:.1f} | {sizes} |")
    return "\n".join(lines)


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("part", choices=["serve", "data"])
    measuring.add_argument("--out", type=Path, default=RECORD)
    planning = commands.add_parser("plan")
    planning.add_argument("--demask", default=str(ROOT / "target" / "release" / "demask"))
    commands.add_parser("table")
    asked = parser.parse_args()
    if asked.command == "measure":
        return measure(asked.out, asked.part)
    record = json.loads(RECORD.read_text())
    print(plan(asked.demask, record) if asked.command == "plan" else table(record))
    return None


if __name__ == "__main__":
    sys.exit(main())
