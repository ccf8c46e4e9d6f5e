"""The server's request layer on event loops, and servers in this process."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from typing import Any

import demask
import pytest
from conftest import QUESTION, questions
from test_life import SLOW, is_idle, until


def body(question: str = QUESTION, **others: Any) -> bytes:
    """Returns a request for a chat completion."""
    return json.dumps({"messages": [{"role": "user", "content": question}], **others}).encode()


async def chat(engine: demask.Model, **others: Any) -> demask.types.HttpResponse:
    """Asks for a chat completion."""
    return await engine.http("POST", "/v1/chat/completions", {"content-type": "application/json"}, body(**others))


def test_a_whole_answer_and_a_stream(engine: demask.Model) -> None:
    async def both() -> None:
        response = await chat(engine)
        assert response.status == 200 and response.header("Content-Type") == "application/json"
        found = json.loads(await response.read())
        assert found["choices"][0]["message"]["content"] == "3+4=7 pears.\nThe final answer is 7"
        assert await response.read() == b"", "nothing behind the end"
        response = await chat(engine, stream=True, diffusion={"decoder": "static", "frames": "commits"})
        assert str(response.header("content-type")).startswith("text/event-stream")
        pieces = [piece async for piece in response]
        assert len(pieces) > 5 and pieces[-1] == b"data: [DONE]\n\n" and all(piece.endswith(b"\n\n") for piece in pieces)
        texts = [json.loads(piece[6:])["choices"][0]["delta"].get("content", "") for piece in pieces[:-1]]
        assert "".join(texts) == found["choices"][0]["message"]["content"]

    asyncio.run(both())


def test_many_on_one_loop_answer_as_alone(engine: demask.Model) -> None:
    asked = questions(48)
    alone = [str(engine.generate(question)) for question in asked]

    async def one(question: str) -> str:
        response = await engine.http("POST", "/v1/chat/completions", None, body(question))
        return str(json.loads(await response.read())["choices"][0]["message"]["content"])

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*[one(question) for question in asked])

    assert asyncio.run(all_of_them()) == alone


@pytest.mark.parametrize("how", ["cancel", "drop", "task"])
def test_a_response_that_is_left_is_given_up(engine: demask.Model, how: str) -> None:
    async def leave() -> None:
        slow = {"stream": True, "gen_length": 512, "ignore_eos": True, "diffusion": {"decoder": "static", "cache": "none", "block_length": 512, "frames": "commits"}}
        response = await chat(engine, **slow)
        await response.__anext__()
        if how == "cancel":
            response.cancel()
            assert await response.read() == b""
        elif how == "drop":
            del response
        else:
            task = asyncio.create_task(response.read())
            await asyncio.sleep(0.02)
            task.cancel()
            del response
            with pytest.raises(asyncio.CancelledError):
                await task
            del task

    asyncio.run(leave())
    assert until(lambda: is_idle(engine))


def test_wrong_requests_are_responses(engine: demask.Model) -> None:
    async def ask(method: str, path: str, sent: bytes = b"") -> tuple[int, Any]:
        response = await engine.http(method, path, None, sent)
        told = await response.read()
        return response.status, json.loads(told)

    cases = [
        ("POST", "/v1/chat/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b"{}", 400),
        ("POST", "/v1/chat/completions", body(step=3), 400),
        ("POST", "/v1/chat/completions", body(max_tokens=10**9), 400),
        ("POST", "/v1/chat/completions", b" " * (3 << 20), 413),
        ("GET", "/v1/nowhere", b"", 404),
        ("DELETE", "/v1/models", b"", 405),
        ("GET", "/v1/models", b"", 200),
    ]
    for method, path, sent, status in cases:
        found, told = asyncio.run(ask(method, path, sent))
        assert found == status, (method, path, told)
        assert status == 200 or set(told["error"]) == {"message", "type", "param", "code"}


def test_what_is_no_request_at_all(engine: demask.Model) -> None:
    for arguments, kind in [
        (("GE T", "/"), ValueError),
        (("GET", "no path"), ValueError),
        (("GET", "/", {"bad name": "x"}), ValueError),
        (("GET", "/", {"name": "x\ny"}), ValueError),
        (("GET", "/", {"name": 3}), TypeError),
        (("GET", "/", None, "text"), TypeError),
        (("GET", "/", None, 3), TypeError),
    ]:
        with pytest.raises(kind):
            asyncio.run(engine.http(*arguments))


def test_a_service_has_bounds_keys_and_an_end(engine: demask.Model) -> None:
    service = engine.service(names=["mine"], keys="ann secret\n", max_queue=2, page=False)

    async def ask(path: str, key: str | None, sent: bytes = b"") -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        response = await service.http("POST" if sent else "GET", path, headers, sent)
        return response.status, await response.read()

    async def full() -> list[int]:
        many = [ask("/v1/chat/completions", "secret", body(diffusion={"decoder": "static", "cache": "none", "gen_length": 512})) for _ in range(6)]
        return [status for status, _ in await asyncio.gather(*many)]

    assert asyncio.run(ask("/v1/models", None))[0] == 401
    status, told = asyncio.run(ask("/v1/models", "secret"))
    assert status == 200 and json.loads(told)["data"][0]["id"] == "mine"
    assert asyncio.run(ask("/", None))[0] == 404
    assert sorted(set(asyncio.run(full()))) == [200, 503]
    assert not service.busy
    service.drain()
    assert asyncio.run(ask("/v1/chat/completions", "secret", body()))[0] == 503


def test_a_server_in_this_process(engine: demask.Model) -> None:
    with engine.serve(port=0) as server:
        with urllib.request.urlopen(f"{server.url}/health", timeout=20) as response:
            assert response.status == 200
        request = urllib.request.Request(f"{server.url}/v1/chat/completions", data=body())
        with urllib.request.urlopen(request, timeout=20) as response:
            assert json.loads(response.read())["choices"][0]["message"]["content"].endswith("7")
        # The engine answers beside its server.
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(str(engine.generate(QUESTION))))
        thread.start()
        thread.join()
        assert found[0].endswith("7") and server.running
        port = int(server.url.rsplit(":", 1)[1])
        with pytest.raises(demask.errors.OptionsError, match="cannot listen"):
            engine.serve(port=port)
    assert not server.running
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.url, timeout=5)
    server = demask.serve(port=0, wait=False)
    assert server.running
    server.close(drain=True)


def test_slow_constants_are_slow(engine: demask.Model) -> None:
    """What other tests cancel would take far longer than they wait for."""
    assert SLOW["gen_length"] >= 512 and engine.info["context"] >= 600
