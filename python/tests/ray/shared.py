"""A cluster of two nodes on this machine, and what the tests of demask_ray ask of it."""

import asyncio
import faulthandler
import json
import logging
import os
import socket
import sys
import time
import unittest
from pathlib import Path

# Workers inherit it: nothing is sent anywhere, nothing is written beside the sources, and no worker adds threads of its own.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONDONTWRITEBYTECODE": "1", "RAY_DEDUP_LOGS": "0"}

import demask
import httpx
import ray
from ray import serve
from ray.cluster_utils import Cluster

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "Cargo.lock").exists())
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}
# Models of the demo: one sees all positions, the other one decodes block behind block and has prefixes to keep.
BLOCKS = str(ROOT / "demo" / "demo-sdar")
# The command, which writes what evaluations are compared with.
BINARY = os.environ.get("DEMASK_BINARY", str(ROOT / "target" / "release" / "demask"))
# Seconds within which anything here must happen on a slow machine.
PATIENCE = 90
# Seconds that a test may take.
LONGEST = 240

NAMES = ("Ada", "Ben", "Cara", "Dan", "Eva", "Finn")


def question(number):
    """A word problem; no two of the first thousand are the same."""
    one, two = NAMES[number % 6], NAMES[(number + 1) % 6]
    return f"{one} has {number + 3} pears. {two} gives {one} {number % 7 + 2} more. How many pears are there in the end?"


def chat(number, **more):
    """The body of a request."""
    return {"messages": [{"role": "user", "content": question(number)}], "seed": number, **more}


def long_chat(number, tokens=900):
    """One that takes seconds: a token a forward, whatever end tokens stand there."""
    return chat(number, gen_length=tokens, ignore_eos=True, diffusion={"decoder": "static", "cache": "none"})


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def until(happens, told, patience=PATIENCE, every=0.1):
    """Waits until something holds, and returns it."""
    ends = time.monotonic() + patience
    while True:
        found = happens()
        if found:
            return found
        if time.monotonic() > ends:
            raise AssertionError(f"not within {patience} s: {told}")
        time.sleep(every)


class Machines:
    """The cluster, started once for all tests."""

    cluster = node = port = None

    @classmethod
    def start(cls):
        if cls.cluster is not None:
            return
        logging.getLogger("ray").setLevel(logging.ERROR)
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        cls.cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        cls.node = cls.cluster.add_node(**NODE)
        ray.init(address=cls.cluster.address, log_to_driver=bool(os.environ.get("RAY_LOGS")), logging_level=logging.ERROR)
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        cls.port = free_port()
        quiet = {"log_level": "ERROR", "enable_access_log": False}
        # One proxy, on the head: the other node's would take half of the connections with it when it ends.
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": cls.port}, logging_config=quiet)

    @classmethod
    def lose_a_node(cls):
        cls.cluster.remove_node(cls.node, allow_graceful=False)
        cls.node = None

    @classmethod
    def whole(cls):
        """Starts the second node anew, if it was lost."""
        if cls.node is None:
            cls.node = cls.cluster.add_node(**NODE)
            cls.cluster.wait_for_nodes()

    @classmethod
    def stop(cls):
        if cls.cluster is not None:
            serve.shutdown()
            ray.shutdown()
            cls.cluster.shutdown()
            cls.cluster = None


class OnCluster(unittest.TestCase):
    """Tests that need the cluster."""

    def setUp(self):
        # Whatever waits for a cluster that is not as it should be would wait forever: who hangs is shown, and ends it all.
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        Machines.start()
        Machines.whole()

    def tearDown(self):
        for name in list(serve.status().applications):
            serve.delete(name)
        faulthandler.cancel_dump_traceback_later()


def run(app):
    """Deploys an application; returns the handle of its replicas."""
    serve.run(app, name="demask", logging_config={"log_level": "ERROR", "enable_access_log": False})
    return serve.get_deployment_handle("Replica", "demask")


def counts(handle):
    """What each replica counts, by its process."""
    return {found["process"]: found for found in handle.broadcast("counts").results()}


def replicas():
    """States of the replicas, by how many have each."""
    status = serve.status().applications["demask"].deployments["Replica"]
    return {str(state): number for state, number in status.replica_states.items() if number}


def client(timeout=PATIENCE):
    """A client of the cluster's proxy."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{Machines.port}", timeout=timeout, limits=limits)


async def ask(asker, body, path="/v1/chat/completions"):
    """The response to a request, or the error of a connection that broke."""
    try:
        return await asker.post(path, json=body)
    except httpx.HTTPError as error:
        return error


async def ask_all(bodies, at_once=32):
    """The responses to requests, some at a time, in their order."""
    turns = asyncio.Semaphore(at_once)

    async def one(asker, body):
        async with turns:
            return await ask(asker, body)

    async with client() as asker:
        return await asyncio.gather(*(one(asker, body) for body in bodies))


def answer(response):
    """A response's body without what differs between two runs of the same answer."""
    return steady(json.loads(response if isinstance(response, bytes) else response.content))


def steady(told, keep=()):
    """Leaves out what differs between two runs of the same answer."""
    if isinstance(told, list):
        return [steady(one, keep) for one in told]
    if not isinstance(told, dict):
        return told
    left_out = {"id", "created", "seconds", "peak"}.difference(keep)
    return {name: steady(value, keep) for name, value in told.items() if name not in left_out}


def alone(bodies, model=None):
    """The same requests, one after the other, asked of one engine in this process."""

    async def all_of_them():
        with engine(model) as one:
            found = []
            for body in bodies:
                response = await one.http("POST", "/v1/chat/completions", {}, json.dumps(body).encode())
                found.append(answer(await response.read()))
            return found

    return asyncio.run(all_of_them())


def engine(model=None):
    """An engine in this process."""
    return demask.demo(threads=1) if model is None else demask.load(model, threads=1)


if __name__ == "__main__":
    sys.exit("run python/tests/ray/run.py")
