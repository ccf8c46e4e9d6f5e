"""What a full disk, a read-only one and a kill leave behind: nothing half-written, nothing lost.

    python tests/system/faults.py target/release/demask
    python tests/system/faults.py target/release/demask --bars killed-download,full-eval --kills 40

Each bar runs the program in a folder of its own and makes it fail there. One JSON line a bar: its name, whether it passed,
what was measured. The exit status is 1 if one did not.

| bar | what is done | what must hold |
|---|---|---|
| killed-download | SIGKILL at random times of a fetch, again and again | it goes on where it was; contents are those of the hub |
| full-download | the disk ends before the model does | one line and status 1; with room, the next call goes on and ends |
| killed-eval | SIGKILL at random times of an evaluation | whole lines, each once; the end is that of a run without kills |
| full-eval | the disk ends within the records | one line and status 1; whole lines; with room, it goes on and ends |
| killed-report | SIGKILL at random times of a report | every file is whole or absent; the next call makes all |
| full-report | the disk ends within the report | one line and status 1; no file is cut off |
| killed-synth | SIGKILL at random times of a random checkpoint | the directory is not there, or is whole |
| full-synth | the disk ends within the checkpoint | one line and status 1, and nothing is left |
| full-trace | the disk ends within a trace | one line and status 1; no file, or the one that was there |
| read-only | every command that writes, on a read-only disk | one line and status 1 |

Weights are quantised in memory while they are loaded, so that no file of theirs can be cut off.

A full disk is a small tmpfs where this process may mount one (root). Elsewhere it is a limit on the size of a file
(`ulimit -f`), and the bar of a read-only disk is a folder without the right to write. What was used stands in each line.
"""

import argparse
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
from common import number, programs

MODEL = ROOT / "golden" / "ckpt" / "tiny-llada-sharded"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Seconds that any call may take, and bytes that a message may have.
LONGEST, MESSAGE = 300, 1000


class Failed(Exception):
    """A bar that did not hold."""


def hold(condition, what):
    if not condition:
        raise Failed(what)


class Program:
    """The programs, and how one is run."""

    def __init__(self, programs, rng):
        self.programs, self.rng = programs, rng

    def start(self, *arguments, environment=None, limit=None):
        def limited():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return subprocess.Popen(
            [self.programs.of(arguments[0]), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            preexec_fn=limited if limit else None,
        )

    def run(self, *arguments, **more):
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=LONGEST)
        return process.returncode, out.decode(), err.decode()

    def succeeds(self, *arguments, **more):
        status, out, err = self.run(*arguments, **more)
        hold(status == 0, f"{arguments[0]} ended with status {status}: {err[-MESSAGE:]}")
        return out

    def fails(self, *arguments, **more):
        """It fails as it should: status 1, and one line of an error."""
        status, _, err = self.run(*arguments, **more)
        lines = [line for line in err.splitlines() if line.startswith("error")]
        hold(status == 1, f"{arguments[0]} ended with status {status}, expected 1: {err[-MESSAGE:]}")
        hold(len(lines) == 1 and "panicked" not in err, f"{arguments[0]} said: {err[-MESSAGE:]}")
        hold(len(lines[0]) < MESSAGE, f"{arguments[0]} said {len(lines[0])} bytes")
        return lines[0]

    def killed(self, span, *arguments, **more):
        """Kills it at a random time of a span; returns whether it was still there."""
        process = self.start(*arguments, **more)
        try:
            process.communicate(timeout=self.rng.uniform(0, span))
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return True

    def seconds(self, *arguments, **more):
        began = time.monotonic()
        self.succeeds(*arguments, **more)
        return time.monotonic() - began


class Hub(http.server.ThreadingHTTPServer):
    """A hub with one model, which it sends slowly."""

    daemon_threads = True

    def __init__(self, files, pause):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files, self.pause, self.sent = files, pause, 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def environment(self, home):
        address = f"http://127.0.0.1:{self.server_port}"
        return {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_TOKEN": "", "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": ""}

    def handle_error(self, request, address):
        pass


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.server, self.path
        if path.startswith("/api/models/org/tiny"):
            listing = {"sha": COMMIT, "siblings": [{"rfilename": name} for name in hub.files]}
            return self.send(200, json.dumps(listing).encode(), {})
        contents = hub.files.get(path.removeprefix(f"/org/tiny/resolve/{COMMIT}/"))
        if contents is None:
            return self.send(404, b"", {})
        headers = {"etag": f'"{hashlib.sha256(contents).hexdigest()}"', "x-repo-commit": COMMIT}
        asked = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        if not asked:
            return self.send(200, contents, headers)
        start, end = int(asked[1]), int(asked[2] or len(contents) - 1)
        headers["content-range"] = f"bytes {start}-{end}/{len(contents)}"
        return self.send(206, contents[start : end + 1], headers)

    def send(self, status, body, headers):
        self.send_response(status)
        for name, value in {**headers, "content-length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "HEAD":
            return
        piece = 1 << 15
        for at in range(0, len(body), piece):
            self.wfile.write(body[at : at + piece])
            self.server.sent += len(body[at : at + piece])
            if len(body) > piece:
                time.sleep(self.server.pause)


@contextlib.contextmanager
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="demask-faults-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def may_mount():
    with folder() as path:
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], capture_output=True).returncode != 0:
            return False
        subprocess.run(["umount", path], check=True)
        return True


class Disk:
    """A folder that is full after so many bytes."""

    def __init__(self, path, size, mounts):
        self.path, self.size, self.mounts = path, size, mounts
        self.limit = None if mounts else size

    def __enter__(self):
        if self.mounts:
            self.mount(f"size={self.size}")
        return self

    def mount(self, *options):
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(self.path)]
        subprocess.run(command, check=True)

    def grow(self, size):
        self.limit = None
        if self.mounts:
            subprocess.run(["mount", "-o", f"remount,size={size}", str(self.path)], check=True)

    def close(self):
        """Lets nothing be written any more."""
        if self.mounts:
            subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True)
        else:
            self.path.chmod(0o555)

    def __exit__(self, *_):
        if self.mounts:
            subprocess.run(["umount", str(self.path)], check=True)
        else:
            self.path.chmod(0o755)

    @property
    def means(self):
        return "tmpfs" if self.mounts else "ulimit -f"


def model_files():
    """A whole model of 2 shards that are large enough to be interrupted."""
    files = {path.name: path.read_bytes() for path in MODEL.iterdir() if path.is_file()}
    for name, contents in files.items():
        if name.endswith(".safetensors"):
            # Bytes behind the last tensor belong to no tensor, and no reader minds.
            files[name] = contents + bytes(1 << 20)
    return files


def cached(home):
    """Files of the model that lie in a cache, with their contents."""
    snapshot = home / "hub" / "models--org--tiny" / "snapshots" / COMMIT
    return {path.name: path.read_bytes() for path in snapshot.iterdir()} if snapshot.is_dir() else {}


def check_cache(home, files):
    found = cached(home)
    for name, contents in found.items():
        hold(files[name] == contents, f"{name} lies in the cache with {len(contents)} bytes of {len(files[name])}")
    return found


def killed_download(program, options):
    files = model_files()
    with folder() as home:
        hub = Hub(files, 0.02)
        environment = hub.environment(home)
        call = ("inspect", "--model", "org/tiny")
        kills = 0
        for _ in range(options.kills):
            kills += program.killed(0.8, *call, environment=environment)
            check_cache(home, files)
            if len(cached(home)) == len(files):
                shutil.rmtree(home / "hub")
        before = hub.sent
        program.succeeds(*call, environment=environment)
        found = check_cache(home, files)
        hold(set(found) == set(files), f"files are missing: {set(files) - set(found)}")
        whole = sum(map(len, files.values()))
        hold(hub.sent - before <= whole * 1.1, "the last call fetched more than there is")
        return {"kills": kills, "bytes": whole, "fetched by the last call": hub.sent - before}


def full_download(program, options):
    files = model_files()
    with folder() as home, Disk(home, 1 << 20, options.mounts) as disk:
        hub = Hub(files, 0)
        environment = hub.environment(home)
        call = ("inspect", "--model", "org/tiny")
        message = program.fails(*call, environment=environment, limit=disk.limit)
        check_cache(home, files)
        disk.grow(64 << 20)
        before = hub.sent
        program.succeeds(*call, environment=environment)
        hold(set(check_cache(home, files)) == set(files), "files are missing")
        return {"means": disk.means, "message": message, "fetched by the last call": hub.sent - before}


def records(directory):
    """Whole lines of the results, and whether something follows the last."""
    path = directory / "results.jsonl"
    text = path.read_bytes() if path.exists() else b""
    lines = text.split(b"\n")
    return [json.loads(line) for line in lines[:-1]], lines[-1]


def told(record):
    return {key: record[key] for key in ("run", "task", "index", "prompt", "output", "correct")}


def evaluation(directory, limit):
    return ("eval", "wordmath", "--limit", limit, "--out", directory, "-q")


def check_records(directory, reference):
    """Every line is whole but the last, which the next run drops; each is that of a run without faults, and there once."""
    found, _ = records(directory)
    keys = [(record["run"], record["task"], record["index"]) for record in found]
    hold(len(keys) == len(set(keys)), "a record is there twice")
    for record in found:
        hold(told(record) == reference[record["index"]], f"record {record['index']} is another one")
    return len(found)


def killed_eval(program, options):
    limit = 40
    with folder() as path:
        span = program.seconds(*evaluation(path / "whole", limit))
        reference = {record["index"]: told(record) for record in records(path / "whole")[0]}
        kills, kept, restarts = 0, 0, 0
        directory = path / "killed"
        for _ in range(options.kills):
            kills += program.killed(span / 3, *evaluation(directory, limit))
            now = check_records(directory, reference)
            hold(now >= kept, f"{kept} records were there, {now} are left")
            kept = now
            if kept == limit:
                shutil.rmtree(directory)
                kept, restarts = 0, restarts + 1
        program.succeeds(*evaluation(directory, limit))
        hold(check_records(directory, reference) == limit, "records are missing at the end")
        hold(records(directory)[1] == b"", "half a record is left at the end")
        for name in ("run.json", "outline.json", "summary.json"):
            json.loads((directory / name).read_text())
        return {"kills": kills, "records": limit, "runs that ended in between": restarts}


def full_eval(program, options):
    limit = 40
    with folder() as path:
        program.succeeds(*evaluation(path / "whole", limit))
        reference = {record["index"]: told(record) for record in records(path / "whole")[0]}
        disk_path = path / "disk"
        disk_path.mkdir()
        with Disk(disk_path, 24 << 10, options.mounts) as disk:
            directory = disk_path / "out"
            message = program.fails(*evaluation(directory, limit), limit=disk.limit)
            kept = check_records(directory, reference)
            hold(0 < kept < limit, f"{kept} records fit")
            disk.grow(8 << 20)
            program.succeeds(*evaluation(directory, limit))
            hold(check_records(directory, reference) == limit, "records are missing at the end")
            return {"means": disk.means, "message": message, "kept": kept}


def contents(directory):
    """All files below a folder, but those that a kill leaves under names of their own."""
    all_files = [path for path in directory.rglob("*") if path.is_file()] if directory.exists() else []
    return {str(path.relative_to(directory)): path.read_bytes() for path in all_files if path.suffix != ".part"}


def swept(directory):
    sweep = "decoder=static|threshold:tau=0.9|threshold:tau=0.7"
    return ("eval", "wordmath", "--limit", 3, "--sweep", sweep, "--out", directory, "-q")


def killed_report(program, options):
    with folder() as path:
        program.succeeds(*swept(path / "results"))
        call = lambda out: ("report", path / "results", "--out", out, "-q")
        span = program.seconds(*call(path / "whole"))
        reference = contents(path / "whole")
        kills = 0
        for turn in range(options.kills):
            out = path / f"out-{turn}"
            kills += program.killed(span, *call(out))
            for name, found in contents(out).items():
                hold(found == reference.get(name), f"{name} has {len(found)} bytes, expected {len(reference.get(name, b''))}")
            program.succeeds(*call(out))
            hold(contents(out) == reference, "the report that was made again is another one")
            shutil.rmtree(out)
        return {"kills": kills, "files": len(reference)}


def full_report(program, options):
    with folder() as path:
        program.succeeds(*swept(path / "results"))
        call = lambda out: ("report", path / "results", "--out", out, "-q")
        program.succeeds(*call(path / "whole"))
        reference = contents(path / "whole")
        disk_path = path / "disk"
        disk_path.mkdir()
        largest = max(map(len, reference.values()))
        size = (16 << 10) if options.mounts else largest // 2
        with Disk(disk_path, size, options.mounts) as disk:
            out = disk_path / "out"
            message = program.fails(*call(out), limit=disk.limit)
            for name, found in contents(out).items():
                hold(found == reference[name], f"{name} has {len(found)} bytes, expected {len(reference[name])}")
            disk.grow(8 << 20)
            program.succeeds(*call(out))
            hold(contents(out) == reference, "the report that was made again is another one")
            return {"means": disk.means, "message": message, "files": len(reference)}


def synth(out):
    return ("synth", "--like", "qwen2.5-1.5b", "--layers", 1, "--out", out, "-q")


def sizes(directory):
    return {path.name: path.stat().st_size for path in directory.iterdir()}


def killed_synth(program, options):
    with folder() as path:
        span = program.seconds(*synth(path / "whole"))
        reference = sizes(path / "whole")
        kills = 0
        for turn in range(max(options.kills // 4, 3)):
            out = path / f"out-{turn}"
            kills += program.killed(span, *synth(out))
            hold(not out.exists() or sizes(out) == reference, f"a part lies under the checkpoint's name: {out}")
            for left in path.iterdir():
                if left.name != "whole":
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
        return {"kills": kills, "bytes": sum(reference.values())}


def full_synth(program, options):
    with folder() as path, Disk(path, 16 << 20, options.mounts) as disk:
        message = program.fails(*synth(path / "out"), limit=disk.limit)
        left = [entry.name for entry in path.iterdir()]
        hold(not left, f"{left} is left")
        return {"means": disk.means, "message": message}


def full_trace(program, options):
    with folder() as path, Disk(path, 4 << 10, options.mounts) as disk:
        trace = path / "trace.jsonl"
        call = ("generate", "-q", "--decoder", "static", "--steps", 64, "--trace", trace, "Ada has 3 pears. How many pears?")
        message = program.fails(*call, limit=disk.limit)
        hold(not trace.exists(), f"a trace of {trace.stat().st_size if trace.exists() else 0} bytes is there")
        trace.write_text("before\n")
        program.fails(*call, limit=disk.limit)
        hold(trace.read_text() == "before\n", "the trace that was there is gone")
        left = [entry.name for entry in path.iterdir()]
        hold(left == ["trace.jsonl"], f"{left} is left")
        return {"means": disk.means, "message": message}


def read_only(program, options):
    if not options.mounts and os.geteuid() == 0:
        return {"skipped": "root writes everywhere, and may not mount here"}
    files = model_files()
    with folder() as path:
        program.succeeds(*swept(path / "results"))
        disk_path = path / "disk"
        disk_path.mkdir()
        hub = Hub(files, 0)
        with Disk(disk_path, 1 << 20, options.mounts) as disk:
            disk.close()
            calls = {
                "eval": evaluation(disk_path / "out", 1),
                "report": ("report", path / "results", "--out", disk_path / "out", "-q"),
                "synth": synth(disk_path / "out"),
                "trace": ("generate", "-q", "--trace", disk_path / "trace", "Hi"),
                "logits": ("logits", "-q", "--tokens", "1,2,3", "--out", disk_path / "logits"),
                "download": ("inspect", "--model", "org/tiny"),
            }
            messages = {}
            for name, call in calls.items():
                environment = hub.environment(disk_path) if name == "download" else None
                messages[name] = program.fails(*call, environment=environment)
            return {"means": "tmpfs" if options.mounts else "rights", "messages": messages}


BARS = {
    "killed-download": killed_download,
    "full-download": full_download,
    "killed-eval": killed_eval,
    "full-eval": full_eval,
    "killed-report": killed_report,
    "full-report": full_report,
    "killed-synth": killed_synth,
    "full-synth": full_synth,
    "full-trace": full_trace,
    "read-only": read_only,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demask", type=programs, help="the program; demask-lab is beside it")
    parser.add_argument("--bars", default=",".join(BARS), help="which (all of them)")
    parser.add_argument("--kills", type=number, default=20, help="kills of a bar (20)")
    parser.add_argument("--no-mounts", action="store_true", help="do as where nothing can be mounted")
    parser.add_argument("--seed", type=int, default=0, help="key of the times of kills (0)")
    options = parser.parse_args()
    names = options.bars.split(",")
    unknown = [name for name in names if name not in BARS]
    if unknown:
        parser.error(f"no bar {', '.join(unknown)}: expected some of {', '.join(BARS)}")
    options.mounts = not options.no_mounts and may_mount()
    failed = False
    for name in names:
        began = time.monotonic()
        try:
            outcome = {"passed": True, **BARS[name](Program(options.demask, random.Random(options.seed)), options)}
        except (Failed, subprocess.TimeoutExpired, OSError, KeyError, ValueError) as error:
            outcome, failed = {"passed": False, "why": f"{type(error).__name__}: {error}"}, True
        seconds = round(time.monotonic() - began, 1)
        print(json.dumps({"bar": name, **outcome, "seconds": seconds}), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
