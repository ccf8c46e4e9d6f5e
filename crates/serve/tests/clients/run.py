"""Real clients against a demask server: their official packages, and stream readers written anew.

    python crates/serve/tests/clients/run.py --demask target/release/demask [--short]
    python crates/serve/tests/clients/run.py --server http://127.0.0.1:8080 [--short]

With --demask, servers are started on free ports of this machine and stopped at the end: the built-in demo model, one
with very small limits for what a full server says, one whose template writes tools, and in the long form the demo's autoregressive model for
likelihoods. With --server, the one that runs is asked, and what needs another one is left out and said to be.

--short: the Python clients of OpenAI and Anthropic and the stream readers, at most 90 s on two cores. The long form adds LangChain, instructor,
outlines, the harness lm-eval, the JavaScript client and the AI SDK. Packages are installed once, at pinned versions, under target/clients.

Ends with `N passed, N failed`, and with status 1 if any failed.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = next(folder for folder in HERE.parents if (folder / "Cargo.lock").exists())
KEPT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "clients"
# Seconds that a server may take to start, and a client's checks to run.
START, CHECKS = 60, 1200


class Server:
    """A server of ours on a free port."""

    def __init__(self, binary, *words):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        KEPT.mkdir(parents=True, exist_ok=True)
        self.log = KEPT / f"server-{port}.log"
        command = [binary, "serve", "--host", "127.0.0.1", "--port", str(port), *words]
        # A server of whoever runs this may be set up by its environment: these are not.
        plain = {name: value for name, value in os.environ.items() if not name.startswith("DEMASK_")}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=plain)

    def __enter__(self):
        ends = time.monotonic() + START
        while time.monotonic() < ends:
            if self.process.poll() is not None:
                sys.exit(f"the server ended with {self.process.returncode}: {self.log.read_text()[-2000:]}")
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
                return self
            except OSError:
                time.sleep(0.1)
        self.stop()
        sys.exit(f"the server was not ready within {START} s: {self.log.read_text()[-2000:]}")

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def python(client):
    """The interpreter of an environment with a client's packages, made if it is not there or is of other versions."""
    requirements = HERE / f"requirements-{client}.txt"
    folder = KEPT / client
    program, stamp = folder / "bin/python", folder / "installed"
    if not (stamp.exists() and stamp.read_text() == requirements.read_text()):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]
        subprocess.run([program, *words], check=True)
        stamp.write_text(requirements.read_text())
    return str(program)


def node():
    """The folder with the JavaScript checks and their packages."""
    folder = KEPT / "node"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = (HERE / "package.json").read_text()
    stamp = folder / "installed"
    for file in [*HERE.glob("*.mjs"), HERE / "package.json"]:
        if not (folder / file.name).exists() or (folder / file.name).read_bytes() != file.read_bytes():
            shutil.copy(file, folder)
    if not (stamp.exists() and stamp.read_text() == wanted):
        words = ["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"]
        subprocess.run([shutil.which("npm") or "npm", *words], cwd=folder, check=True)
        stamp.write_text(wanted)
    return folder


def asked(command, url, folder=HERE, **more):
    """Runs a client's checks on a server; (passed, failed)."""
    models = json.load(urllib.request.urlopen(f"{url}/v1/models", timeout=30))["data"]
    environment = {**os.environ, "CHECK_URL": url, "CHECK_MODEL": models[0]["id"], "CHECK_ROOT": str(ROOT), **more}
    # Nothing may be fetched while checks run: whatever a client needs beside its packages, the server has.
    environment |= {"HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "none", "PYTHONDONTWRITEBYTECODE": "1"}
    print(f"== {Path(command[-1]).name} at {models[0]['id']}", flush=True)
    # What packages warn of and how far they are is shown only if a check fails.
    errors = KEPT / f"{Path(command[-1]).stem}.log"
    try:
        with errors.open("w") as log:
            done = subprocess.run(
                command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, timeout=CHECKS
            )
    except subprocess.TimeoutExpired as error:
        print(f"{(error.stdout or b'').decode()}FAILED: no end within {CHECKS} s")
        return 0, 1
    print(done.stdout, end="", flush=True)
    if done.returncode:
        print(errors.read_text()[-2000:], file=sys.stderr)
    lines = done.stdout.splitlines()
    passed, failed = (sum(line.startswith(word) for line in lines) for word in ("passed ", "FAILED "))
    if not passed or (done.returncode != 0) != (failed > 0):
        print(f"FAILED: the checks ended with {done.returncode} and {passed} passed")
        failed += 1
    return passed, failed


def on_one_server(url, short):
    """All checks that any server of ours passes."""
    yield asked([sys.executable, "stream_parsers.py"], url)
    yield asked([python("openai"), "openai_client.py"], url)
    yield asked([python("anthropic"), "anthropic_client.py"], url)
    if short:
        return
    yield asked([python("langchain"), "langchain_client.py"], url)
    for checks in ("instructor_client.py", "outlines_client.py"):
        yield asked([python("structured"), checks], url)
    yield asked([python("lm-eval"), "lm_eval_client.py"], url)
    folder = node()
    for checks in ("openai_client.mjs", "ai_sdk_client.mjs"):
        yield asked(["node", checks], url, folder)


def on_own_servers(binary, short):
    """The same on servers of this program, and what needs servers of their own."""
    with Server(binary) as demo:
        yield from on_one_server(demo.url, short)
    with Server(binary, "--model", with_tools()) as calling:
        yield asked([python("openai"), "openai_tools.py"], calling.url)
        yield asked([python("anthropic"), "anthropic_tools.py"], calling.url)
    with Server(binary, *SMALL) as small:
        yield asked([python("openai"), "full_server.py"], small.url)
    if not short:
        with Server(binary, "--model", str(ROOT / "demo/demo-qwen")) as causal:
            yield asked([python("lm-eval"), "lm_eval_client.py"], causal.url, CHECK_CAUSAL="1")


def with_tools():
    """The folder of a demo model with a template that writes tools and opens thoughts."""
    folder = KEPT / "with-tools"
    shutil.copytree(ROOT / "demo/demo-qwen", folder, dirs_exist_ok=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return str(folder)


TEMPLATE = """{% for t in tools or [] %}<tool_call>{{ t.function.name }}{% endfor %}{% for m in messages %}<{{ m.role }}>\
{% if m.reasoning_content %}{{ m.reasoning_content }}</think>{% endif %}{% for c in m.tool_calls or [] %}\
{{ c.function.name }}:{{ c.function.arguments.a }}{% endfor %}{{ m.content }}{% endfor %}\
{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}"""

# Limits that a handful of requests reaches.
SMALL = ("--max-queue", "2")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server", metavar="URL", help="a server that runs")
    where.add_argument("--demask", metavar="BIN", type=Path, help="the program, to start servers of")
    parser.add_argument("--short", action="store_true", help="the Python client and the stream readers alone")
    arguments = parser.parse_args()
    if arguments.demask:
        if not os.access(arguments.demask, os.X_OK):
            parser.error(f"--demask: {arguments.demask} is no program: build it with cargo build --release")
        outcomes = list(on_own_servers(str(arguments.demask.resolve()), arguments.short))
    else:
        outcomes = list(on_one_server(arguments.server.rstrip("/"), arguments.short))
        print("left out: what a full server says, for which --demask starts one with small limits")
    passed, failed = (sum(counts) for counts in zip(*outcomes))
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
