"""Runs the fuzz targets, each within a budget of memory, and counts what was run.

    python3 fuzz/run.py                        every target for a minute
    python3 fuzz/run.py --seconds 240 gguf     one of them for four
    python3 fuzz/run.py --record               and adds a line for each to fuzz/campaigns.jsonl
    python3 fuzz/run.py --summary              what has been run so far, as the table of fuzz/README.md

It needs a nightly toolchain (`rustup toolchain install nightly --profile minimal`) and nothing else: the flags are those
of cargo-fuzz. A target that finds something ends with it under fuzz/artifacts, the others go on; the status is 1 then.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
CAMPAIGNS = HERE / "campaigns.jsonl"

# Instrumentation as libFuzzer needs it, and the address sanitizer.
FLAGS = """--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
-Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-stack-depth -Ccodegen-units=1
-Zsanitizer=address""".split()

# Budgets in MiB: what the process may hold, and the largest single allocation. The sanitizer keeps what was freed for a
# while, at most QUARANTINE. Targets with a model in memory hold that beside.
RESIDENT, ALLOCATION, QUARANTINE = 512, 128, 64
MODEL = {"server_bodies": 768, "server_heads": 768, "server_config": 768}
# Seconds for one input.
LONGEST = 20


def targets():
    with open(HERE / "Cargo.toml", "rb") as file:
        return sorted(binary["name"] for binary in tomllib.load(file)["bin"])


def triple():
    told = subprocess.run(["rustc", "+nightly", "-vV"], check=True, capture_output=True, text=True).stdout
    return re.search(r"host: (\S+)", told).group(1)


def build(names):
    host = triple()
    environment = dict(os.environ, RUSTFLAGS=" ".join(FLAGS))
    environment.pop("RUSTUP_TOOLCHAIN", None)
    binaries = [part for name in names for part in ("--bin", name)]
    command = ["cargo", "+nightly", "build", "--release", "--locked", "--target", host, *binaries]
    subprocess.run(command, check=True, cwd=HERE, env=environment)
    return pathlib.Path(environment.get("CARGO_TARGET_DIR", HERE / "target")) / host / "release"


def numbers(log):
    """What libFuzzer says at the end of a run."""

    def last(pattern):
        found = re.findall(pattern, log)
        return int(found[-1]) if found else 0

    return {
        "executions": last(r"stat::number_of_executed_units:\s*(\d+)") or last(r"(?m)^#(\d+)\t"),
        "coverage": last(r"cov: (\d+)"),
        "features": last(r"ft: (\d+)"),
        "corpus": last(r"corp: (\d+)"),
        "peak_mib": last(r"stat::peak_rss_mb:\s*(\d+)") or last(r"rss: (\d+)Mb"),
    }


def run(binary, name, seconds):
    corpus, artifacts = HERE / "target" / "corpus" / name, HERE / "artifacts" / name
    for folder in (corpus, artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    seeds = [str(HERE / "corpus" / name)] if (HERE / "corpus" / name).is_dir() else []
    command = [
        str(binary),
        f"-max_total_time={seconds}",
        f"-timeout={LONGEST}",
        f"-report_slow_units={LONGEST}",
        f"-rss_limit_mb={MODEL.get(name, RESIDENT)}",
        f"-malloc_limit_mb={ALLOCATION}",
        f"-artifact_prefix={artifacts}/",
        "-print_final_stats=1",
        "-detect_leaks=0",
        str(corpus),
        *seeds,
    ]
    environment = dict(os.environ, ASAN_OPTIONS=f"quarantine_size_mb={QUARANTINE}:detect_odr_violation=0")
    began = time.monotonic()
    ended = subprocess.run(command, cwd=HERE, env=environment, capture_output=True)
    log = (ended.stdout + ended.stderr).decode("utf-8", "replace")
    (HERE / "target" / f"{name}.log").write_text(log)
    made = [path for path in re.findall(r"Test unit written to (\S+)", log) if not was_stopped(binary, path, environment)]
    result = {"target": name, "seconds": round(time.monotonic() - began), **numbers(log)}
    result["findings"] = [pathlib.Path(path).name for path in made]
    if ended.returncode != 0 and not made and not stopped_alone(log):
        result["findings"] = [f"ended with status {ended.returncode}"]
    if result["findings"]:
        print(log[-3000:])
    return result


def was_stopped(binary, path, environment):
    """Reports whether an input counts as slow only because the process was stopped meanwhile: alone it is quick."""
    if not re.match(r"(slow-unit|timeout)-", pathlib.Path(path).name):
        return False
    try:
        again = subprocess.run([str(binary), path], cwd=HERE, env=environment, capture_output=True, timeout=3 * LONGEST)
    except subprocess.TimeoutExpired:
        return False
    took = re.search(r"Executed \S+ in (\d+) ms", again.stderr.decode("utf-8", "replace"))
    quick = again.returncode == 0 and took is not None and int(took[1]) < 1000 * LONGEST
    if quick:
        pathlib.Path(path).unlink(missing_ok=True)
    return quick


def stopped_alone(log):
    """Reports whether a run ended because of its clock, and for no other reason."""
    return "SUMMARY: libFuzzer: timeout" in log and "Test unit written" in log


def facts():
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout.strip()
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit, "machine": processor()}


def processor():
    try:
        told = pathlib.Path("/proc/cpuinfo").read_text()
        return re.search(r"(?m)^model name\s*: (.*)$", told).group(1).strip()
    except (OSError, AttributeError):
        return platform.processor() or platform.machine()


def campaigns():
    if not CAMPAIGNS.exists():
        return []
    return [json.loads(line) for line in CAMPAIGNS.read_text().splitlines() if line.strip()]


def summary():
    """A line for each target, and one for all."""
    lines = ["| target | executions | seconds | coverage | peak MiB | findings |", "|---|---:|---:|---:|---:|---:|"]
    runs, total, spent = campaigns(), 0, 0
    for name in targets():
        own = [run for run in runs if run["target"] == name]
        if not own:
            lines.append(f"| `{name}` | 0 | 0 | | | |")
            continue
        executions, seconds = sum(run["executions"] for run in own), sum(run["seconds"] for run in own)
        total, spent = total + executions, spent + seconds
        coverage, peak = max(run["coverage"] for run in own), max(run["peak_mib"] for run in own)
        findings = sum(len(run["findings"]) for run in own)
        lines.append(f"| `{name}` | {executions:,} | {seconds:,} | {coverage:,} | {peak:,} | {findings} |")
    lines.append(f"| all | {total:,} | {spent:,} | | | {sum(len(run['findings']) for run in runs)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="which (all of them)")
    parser.add_argument("--seconds", type=int, default=60, help="for each (60)")
    parser.add_argument("--record", action="store_true", help="add what was run to campaigns.jsonl")
    parser.add_argument("--summary", action="store_true", help="write what has been run so far, and run nothing")
    parser.add_argument("--build-only", action="store_true", help="build, and run nothing")
    parser.add_argument("--no-build", action="store_true", help="run what is built")
    options = parser.parse_args()
    if options.summary:
        print(summary())
        return 0
    names = options.targets or targets()
    unknown = sorted(set(names) - set(targets()))
    if unknown:
        parser.error(f"no target {', '.join(unknown)}: expected some of {', '.join(targets())}")
    if options.no_build:
        folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target")) / triple() / "release"
    else:
        folder = build(names)
    if options.build_only:
        return 0
    found = False
    for name in names:
        result = run(folder / name, name, options.seconds)
        print(json.dumps(result), flush=True)
        found |= bool(result["findings"])
        if options.record:
            with open(CAMPAIGNS, "a") as file:
                file.write(json.dumps({**facts(), **result}) + "\n")
    return int(found)


sys.exit(main())
