"""An app on Serve: the same answers as one engine, and nothing lost where clients, nodes and versions come and go."""

import asyncio
import json
import threading
import time

import demask_ray
from ray import serve
from shared import BLOCKS, Machines, OnCluster, alone, answer, ask, ask_all, chat, client, counts, long_chat, replicas, run, until


class Answers(OnCluster):
    def test_200_requests_are_to_the_bit_those_of_one_engine(self):
        handle = run(demask_ray.app(replicas=2))
        ways = ({}, {"temperature": 0.8}, {"diffusion": {"decoder": "static", "receipt": True}}, {"n": 2, "logprobs": True})
        bodies = [chat(number, **ways[number % len(ways)]) for number in range(200)]
        responses = asyncio.run(ask_all(bodies))
        self.assertEqual([response.status_code for response in responses], [200] * 200)
        self.assertEqual([answer(response) for response in responses], alone(bodies))
        done = [found["done"] for found in counts(handle).values()]
        self.assertEqual((len(done), sum(done)), (2, 250), "200 requests, 50 of them with two answers")
        self.assertGreater(min(done), 25, "both replicas have work to do")

    def test_a_stream_comes_in_pieces_and_one_that_is_left_holds_nothing(self):
        async def leave():
            async with client() as asker:
                streams = [stream_of(asker, long_chat(number)) for number in range(6)]
                # In the middle: some answers are there, most are not.
                return await asyncio.gather(*(first_message(stream) for stream in streams))

        for prefixes in (False, True):
            with self.subTest(prefixes=prefixes):
                handle = run(demask_ray.app(replicas=2, prefixes=prefixes))
                for status, kind, message in asyncio.run(leave()):
                    self.assertEqual((status, kind), (200, "text/event-stream; charset=utf-8"))
                    self.assertIn("chat.completion.chunk", message)
                idle = until(lambda: all_idle(counts(handle)), "all pages are free behind streams that were left")
                self.assertEqual(sum(found["cancelled"] for found in idle.values()), 6)
                # And the same for bodies: a client that waits for all of an answer, and leaves.
                asyncio.run(self.leave_bodies())
                until(lambda: sum(found["cancelled"] for found in counts(handle).values()) == 10, "four bodies are given up")
                until(lambda: all_idle(counts(handle)), "all pages are free behind bodies that were left")
                serve.delete("demask")

    async def leave_bodies(self):
        async with client(timeout=1.5) as asker:
            left = await asyncio.gather(*(ask(asker, long_chat(number)) for number in range(4)))
        self.assertEqual({type(one).__name__ for one in left}, {"ReadTimeout"})

    def test_a_whole_stream_has_the_text_of_one_engine(self):
        run(demask_ray.app(replicas=2))
        for path in (False, True):
            if path:
                run(demask_ray.app(replicas=2, prefixes=True))
            text = asyncio.run(whole_stream(chat(3, stream=True)))
            self.assertEqual(text, alone([chat(3)])[0]["choices"][0]["message"]["content"])

    def test_other_endpoints_and_refusals_are_the_servers(self):
        run(demask_ray.app(replicas=1, names=["pears"], max_gen_length=64, body_bytes=4096))

        async def all_of_them():
            async with client() as asker:
                models = await asker.get("/v1/models")
                health = await asker.get("/health")
                tokens = await asker.post("/tokenize", json={"prompt": "3+4"})
                other = await ask(asker, chat(1, model="plums"))
                wrong = await ask(asker, chat(1, temprature=1))
                large = await ask(asker, {"messages": [{"role": "user", "content": "7" * 9000}]})
                nowhere = await asker.get("/nowhere")
                return models, health, tokens, other, wrong, large, nowhere

        models, health, tokens, other, wrong, large, nowhere = asyncio.run(all_of_them())
        self.assertEqual([model["id"] for model in models.json()["data"]], ["pears"])
        self.assertEqual((health.status_code, len(tokens.json()["tokens"])), (200, 3))
        statuses = [found.status_code for found in (other, wrong, large, nowhere)]
        self.assertEqual(statuses, [404, 400, 413, 404])
        self.assertIn("temperature", wrong.json()["error"]["message"])
        self.assertEqual(len(wrong.headers.get_list("x-request-id")), 1)


class Load(OnCluster):
    def test_who_finds_no_place_gets_503_and_when_to_come_again(self):
        for prefixes in (False, True):
            with self.subTest(prefixes=prefixes):
                run(demask_ray.app(replicas=1, ongoing=2, queued=2, retry_after=3, prefixes=prefixes))
                responses = asyncio.run(ask_all([long_chat(number, 256) for number in range(12)], at_once=12))
                statuses = [response.status_code for response in responses]
                self.assertEqual(set(statuses), {200, 503})
                self.assertGreaterEqual(statuses.count(200), 2)
                for response in responses:
                    if response.status_code == 503:
                        self.assertEqual(response.headers["retry-after"], "3")
                self.assertEqual(asyncio.run(ask_all([chat(1)]))[0].status_code, 200, "it recovers")

    def test_replicas_come_with_rows_and_go_without(self):
        scale = demask_ray.Autoscale(least=1, most=2, rows=400, up_after=1, down_after=2, look_back=1, every=0.5)
        handle = run(demask_ray.app(replicas=1, autoscale=scale))
        self.assertEqual(replicas(), {"RUNNING": 1})
        # One request of few rows keeps one replica busy, and is worth no second one.
        asyncio.run(ask_all([long_chat(0, 256)]))
        self.assertEqual(replicas(), {"RUNNING": 1})
        load = threading.Thread(target=lambda: asyncio.run(ask_all([long_chat(number, 256) for number in range(8)])))
        load.start()
        until(lambda: replicas().get("RUNNING") == 2, "a second replica for 8 canvases of 300 rows")
        load.join()
        until(lambda: replicas() == {"RUNNING": 1}, "one replica again")
        self.assertTrue(all_idle(counts(handle)))


class Changes(OnCluster):
    def test_a_lost_node_costs_at_most_its_requests(self):
        handle = run(demask_ray.app(replicas=2))
        self.assertEqual(len({found["node"] for found in counts(handle).values()}), 2, "a replica on each node")
        bodies = [chat(number) for number in range(300)]
        lost = threading.Timer(0.5, Machines.lose_a_node)
        lost.start()
        responses = asyncio.run(ask_all(bodies, at_once=8))
        lost.join()
        found = [getattr(response, "status_code", type(response).__name__) for response in responses]
        self.assertTrue(all(status == 200 or 500 <= status < 600 for status in found), found)
        self.assertGreater(found.count(200), 200)
        # What was answered is right, and what was not is answered when asked again.
        right = alone(bodies)
        for number, response in enumerate(responses):
            if response.status_code == 200:
                self.assertEqual(answer(response), right[number])
        again = [number for number, status in enumerate(found) if status != 200]
        for number, response in zip(again, asyncio.run(ask_all([bodies[number] for number in again], at_once=4)), strict=True):
            self.assertEqual(answer(response), right[number])
        Machines.whole()
        until(lambda: replicas() == {"RUNNING": 2}, "a second replica on the new node")

    def test_an_update_loses_no_request(self):
        run(demask_ray.app(replicas=2, names=["first"]))
        seen, failed, ended = [], [], threading.Event()

        async def keep_asking():
            async with client() as asker:
                async def one(number):
                    while not ended.is_set():
                        response = await ask(asker, chat(number))
                        number += 4
                        if getattr(response, "status_code", None) == 200:
                            seen.append(response.json()["model"])
                        else:
                            failed.append(getattr(response, "text", repr(response)))

                await asyncio.gather(*(one(number) for number in range(4)))

        load = threading.Thread(target=lambda: asyncio.run(keep_asking()))
        load.start()
        time.sleep(1)
        run(demask_ray.app(replicas=2, names=["second"]))
        until(lambda: seen[-20:] == ["second"] * 20, "only the second one answers")
        ended.set()
        load.join()
        self.assertEqual(failed, [])
        self.assertEqual(seen[0], "first")
        self.assertGreater(seen.count("first"), 20)


class Prefixes(OnCluster):
    def test_equal_prefixes_go_to_the_replica_that_has_them(self):
        model = demask_ray.Model(BLOCKS, prefix_cache=64)
        handle = run(demask_ray.app(model, replicas=2))
        talks = [
            [{"role": "system", "content": f"You count pears for customer {talk}. " * 12}, {"role": "user", "content": "1"}]
            for talk in range(12)
        ]
        bodies = [
            {"messages": [*talk[:1], {"role": "user", "content": str(turn)}], "seed": 1, "max_tokens": 16}
            for turn in range(4)
            for talk in talks
        ]
        # One at a time first: the first turn of each finds nothing, all later ones the first one's blocks.
        responses = [asyncio.run(ask_all([body]))[0] for body in bodies[:24]]
        cached = [response.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for response in responses]
        self.assertEqual(cached[:12], [0] * 12)
        self.assertTrue(all(cached[12:24]), cached)
        # At the same time: nobody is sent elsewhere while no replica is much fuller.
        responses = asyncio.run(ask_all(bodies[24:], at_once=8))
        cached = [response.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for response in responses]
        self.assertTrue(all(cached), cached)
        done = [found["done"] for found in counts(handle).values()]
        self.assertGreater(min(done), 4, "twelve prefixes are not all one replica's")
        warm = [answer(response) for response in responses]
        for one in warm:
            one["usage"].pop("prompt_tokens_details")
        cold = alone(bodies[24:], BLOCKS)
        for one in cold:
            one["usage"].pop("prompt_tokens_details")
        self.assertEqual(warm, cold, "a warm answer is the cold one")


def all_idle(found):
    """The counts, if no replica has anything open."""
    open_now = [(one["running"], one["waiting"], sum(net["pages_used"] for net in one["networks"])) for one in found.values()]
    return found if all(one == (0, 0, 0) for one in open_now) else None


def stream_of(asker, body):
    return asker.stream("POST", "/v1/chat/completions", json={**body, "stream": True})


async def first_message(stream):
    async with stream as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                return response.status_code, response.headers["content-type"], line
    return None


async def whole_stream(body):
    text = ""
    async with client() as asker, stream_of(asker, body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
    return text
