"""The pages hold the tables that their records make."""

import json
import subprocess
import sys
import unittest

from shared import BINARY, ROOT

RECORD = ROOT / "bench" / "record" / "ray" / "costs.json"


def of_requests(record):
    """Lines of docs/ray.md about requests."""
    for name in ("engine", "one replica", "two replicas", "one replica behind a front"):
        found = record[name]
        empty = found.get("lone_nothing", found["nothing"])
        told = "the engine, without Ray" if name == "engine" else name
        ends = f"{empty['median_ms']:.2f} | {found['nothing']['per_second']:.0f}"
        yield f"| {told} | {found['lone_answers']['median_ms']:.1f} | {found['answers']['per_second']:.0f} | {ends} |"


def of_rows(record):
    """Lines of docs/ray.md about rows of a job."""
    for workers in (1, 2):
        found = record[f"data, {workers} worker{'s' * (workers > 1)}, answers"]
        start = found["seconds_of_a_quarter"] - found["rows"] / 4 / found["rows_per_second"]
        sizes = f"{found['row_bytes_in']}, {found['row_bytes_out']}"
        yield f"| answered, 16 blocks | {workers} | {found['rows_per_second']:.0f} | {start:.1f} | {sizes} |"


def plan(record):
    """Lines of docs/scale.md: what `bench/run.py ray-plan` makes of milliseconds of a request of no work."""
    names = {"proxy_ms": "one replica", "front_ms": "one replica behind a front"}
    given = [f"{name}={1000 / record[of]['nothing']['per_second']}" for name, of in names.items()]
    command = [sys.executable, str(ROOT / "bench/run.py"), "ray-plan", "--demask", str(BINARY), "--json", *given]
    (found,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for result in found["results"]:
        at, figures = result["at"], result["subjects"]["Ray"]["figures"]
        value = lambda name: figures[name]["median"]
        line = f"| {at['like']}; 1024, 256 | {value('seconds_of_an_answer'):.1f} | {at['machines']} "
        line += f"| {value('answers_per_second'):.2f} | {value('ray_ms'):.1f} "
        yield line + f"| {value('of_proxy'):.2f} % | {value('of_front'):.2f} % |"


class Pages(unittest.TestCase):
    def test_the_tables_are_those_of_the_record(self):
        record = json.loads(RECORD.read_text())
        for page, lines in (("ray", of_requests(record)), ("ray", of_rows(record)), ("scale", plan(record))):
            self.assertIn("\n".join(lines), (ROOT / "docs" / f"{page}.md").read_text())


if __name__ == "__main__":
    unittest.main()
