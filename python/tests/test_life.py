"""Engines begin, are interrupted, forked, closed and forgotten, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from typing import Any

import demask
import pytest
from conftest import QUESTION, ROOT, questions

# Takes so long that whoever cancels it is earlier: eight times the demo's length, one token a forward.
SLOW: dict[str, Any] = {"decoder": "static", "cache": "none", "gen_length": 512, "block_length": 512, "ignore_eos": True}


def resident() -> int:
    """Returns the bytes of this process that are in memory."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def until(true: Any, seconds: float = 20.0) -> bool:
    """Waits until something is true."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if true():
            return True
        time.sleep(0.002)
    return False


def is_idle(engine: demask.Model) -> bool:
    """Returns whether nothing runs, and nothing is held."""
    found = engine.metrics()
    network = found["networks"][0]
    return (found["running"], found["waiting"], found["leaks"], network["open"], network["pages_used"]) == (0, 0, 0, 0, 0)


def test_an_engine_keeps_prefixes_unless_it_is_told_not_to() -> None:
    model, prompt = str(ROOT / "demo/demo-sdar"), QUESTION * 4
    cached: dict[int | None, list[int]] = {}
    texts = set()
    for mebibytes in (None, 16, 0):
        with demask.load(model, prefix_cache=mebibytes) as engine:
            answers = [engine.generate(prompt, gen_length=16) for _ in range(2)]
        texts |= {answer.text for answer in answers}
        cached[mebibytes] = [answer.receipt.get("cached_tokens", 0) for answer in answers]
    assert len(texts) == 1
    assert cached[None] == cached[16] and cached[None][0] == 0 and cached[None][1] >= 32
    assert cached[0] == [0, 0]


def test_a_likelihood_reads_its_context_once() -> None:
    with demask.load(str(ROOT / "demo/demo-qwen")) as engine:
        first, second = (engine.score(QUESTION * 4, text) for text in (" 7", " 8"))
        again = engine.score(QUESTION * 4, " 7")
    assert first.cached_tokens == 0 and second.cached_tokens >= 32
    assert again.log_probability == first.log_probability and again.cached_tokens >= 32


@pytest.mark.parametrize("how", ["close", "drop", "break", "with"])
def test_a_stream_that_nobody_reads_frees_its_pages_within_a_forward(engine: demask.Model, how: str) -> None:
    stream = engine.stream(QUESTION, **SLOW)
    next(stream)
    assert engine.metrics()["networks"][0]["pages_used"] > 0
    before = engine.metrics()["networks"][0]["forwards"]
    if how == "close":
        stream.close()
        with pytest.raises(demask.errors.Cancelled):
            next(stream)
    elif how == "with":
        with stream:
            pass
    else:
        del stream
    assert until(lambda: is_idle(engine))
    # One may be under way, and one more be begun before the command is seen.
    assert engine.metrics()["networks"][0]["forwards"] - before <= 3


def test_a_cancelled_task_frees_its_pages(engine: demask.Model) -> None:
    async def cancelled() -> None:
        async def read() -> None:
            async for _ in engine.astream(QUESTION, **SLOW):
                pass

        tasks = [asyncio.create_task(read()), asyncio.create_task(engine.agenerate([QUESTION, QUESTION], **SLOW))]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in found)

    asyncio.run(cancelled())
    gc.collect()
    assert until(lambda: is_idle(engine))


def test_closing_ends_what_runs_and_then_all_is_refused() -> None:
    engine = demask.demo()
    stream = engine.stream(QUESTION, **SLOW)
    next(stream)
    found: list[BaseException] = []

    def ask() -> None:
        try:
            engine.generate(QUESTION, **SLOW)
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert until(lambda: engine.metrics()["running"] == 2)
    engine.close()
    thread.join(20)
    assert isinstance(found[0], demask.errors.Closed) and engine.closed
    engine.close()
    for call in (
        lambda: list(stream),
        lambda: engine.generate(QUESTION),
        lambda: engine.stream(QUESTION),
        lambda: engine.metrics(),
        lambda: engine.service(),
        lambda: engine.logits([1]),
        lambda: engine.score(QUESTION, "7"),
        lambda: engine.decide(QUESTION, [{"type": "predicate", "instructions": "Is it?"}]),
        lambda: asyncio.run(engine.http("GET", "/health")),
    ):
        with pytest.raises(demask.errors.Closed, match="load the model again"):
            call()
    assert repr(engine) == "<demask.Model demo-llada, closed>"


def test_an_engine_stays_in_its_process(engine: demask.Model) -> None:
    with pytest.raises(TypeError, match="load the model where it is to run"):
        pickle.dumps(engine)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told = "nothing"
        try:
            engine.generate(QUESTION)
        except demask.errors.ForkError as error:
            told = str(error)
        engine.close()
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        told = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert "load the model in this process" in told
    assert str(engine.generate(QUESTION)).endswith("7"), "the parent's engine lives on"


@pytest.mark.parametrize("call", ["generate(Q, **slow)", "generate([Q] * 8, **slow)", "stream(Q, **slow)"])
def test_ctrl_c_ends_a_wait(call: str) -> None:
    program = f"""
import demask, os, signal, threading, time
# Whoever runs tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
Q, slow = {QUESTION!r}, {SLOW!r}
engine = demask.demo(threads=1)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
try:
    while True:
        for _ in [engine.{call}] if "stream" not in {call!r} else engine.{call}: pass
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - began < 2.5)
ends = time.monotonic() + 20
while engine.metrics()["running"] and time.monotonic() < ends: time.sleep(0.002)
print(engine.metrics()["running"])
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert told.stdout.split() == ["interrupted", "True", "0"], told.stderr


@pytest.mark.parametrize("ending", ["", "import os; os.kill(os.getpid(), 15)", "del engine", "stream = engine.stream(Q, **slow); next(stream)"])
def test_an_interpreter_ends_with_an_engine_at_work(ending: str) -> None:
    program = f"""
import demask
Q, slow = {QUESTION!r}, {SLOW!r}
class Mine(demask.Transfer):
    def choose(self, step): return [0]
engine = demask.demo()
held = engine.stream(Q, transfer=Mine(), gen_length=256, block_length=256, ignore_eos=True)
next(held)
print("begun", flush=True)
{ending}
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert told.stdout == "begun\n" and told.returncode in (0, -signal.SIGTERM) and not told.stderr


def test_several_loops_one_after_the_other_and_at_once(engine: demask.Model) -> None:
    expected = str(engine.generate(QUESTION))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert str(asyncio.run(engine.agenerate(QUESTION))) == expected
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 2, "loops that are over leave no sockets"
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(str(asyncio.run(engine.agenerate(QUESTION))))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


def test_uvloop_runs_streams_as_asyncios_own_loop_does(engine: demask.Model) -> None:
    uvloop = pytest.importorskip("uvloop")
    asked = questions(16)
    alone = [engine.generate(question, decoder="static").tokens for question in asked]

    async def read(question: str, **options: Any) -> list[int]:
        stream = engine.astream(question, **(options or {"decoder": "static"}))
        text = "".join([update.text async for update in stream])
        assert stream.answer is not None and text == stream.answer.text
        return stream.answer.tokens

    async def all_of_them() -> list[list[int]]:
        assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        given_up = asyncio.create_task(read(QUESTION, **SLOW))
        response = await engine.http("GET", "/health")
        assert response.status == 200 and await response.read()
        found = await asyncio.gather(*[read(question) for question in asked])
        given_up.cancel()
        assert isinstance((await asyncio.gather(given_up, return_exceptions=True))[0], asyncio.CancelledError)
        return found

    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        loop = uvloop.new_event_loop()
        try:
            assert loop.run_until_complete(all_of_them()) == alone
        finally:
            loop.close()
    del loop
    gc.collect()
    assert until(lambda: is_idle(engine))
    assert len(os.listdir("/proc/self/fd")) <= before + 2, "loops that are over leave no sockets"


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.long)])
def test_memory_is_flat(engine: demask.Model, count: int) -> None:
    """Answers, streams that are given up, errors, HTTP: after a warm-up nothing grows."""
    prompts = questions(40)

    async def http(many: int) -> None:
        for _ in range(many):
            response = await engine.http("POST", "/v1/completions", None, b'{"prompt": "Ada", "max_tokens": 4, "stream": true}')
            await response.read()

    def round_of(many: int) -> None:
        share = many // 4
        for start in range(0, share, 40):
            engine.generate(prompts[: min(40, share - start)], gen_length=16)
        for _ in range(share):
            stream = engine.stream(QUESTION, gen_length=16)
            next(stream)
            del stream
        for _ in range(share):
            with pytest.raises(demask.errors.PromptError):
                engine.generate(demask.Tokens([10**6]))
        asyncio.run(http(share))

    round_of(count // 2)
    gc.collect()
    tracemalloc.start()
    round_of(200)
    gc.collect()
    objects, heap, memory = len(gc.get_objects()), tracemalloc.get_traced_memory()[0], resident()
    tracemalloc.stop()
    round_of(count // 2)
    gc.collect()
    tracemalloc.start()
    round_of(200)
    gc.collect()
    assert len(gc.get_objects()) - objects <= 20, "no object is left"
    assert tracemalloc.get_traced_memory()[0] - heap <= 40_000
    tracemalloc.stop()
    assert resident() - memory <= 4 << 20, f"{(resident() - memory) / count} bytes a request"
    assert until(lambda: is_idle(engine))
