"""The pages hold the tables that their records make."""

import importlib.util
import json
import unittest

from shared import BINARY, ROOT

SPECIFICATION = importlib.util.spec_from_file_location("ray_costs", ROOT / "bench" / "ray_costs.py")
ray_costs = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(ray_costs)


class Pages(unittest.TestCase):
    def test_the_tables_are_those_of_the_record(self):
        record = json.loads(ray_costs.RECORD.read_text())
        self.assertIn(ray_costs.table(record), (ROOT / "docs" / "ray.md").read_text())
        self.assertIn(ray_costs.plan(BINARY, record), (ROOT / "docs" / "scale.md").read_text())


if __name__ == "__main__":
    unittest.main()
