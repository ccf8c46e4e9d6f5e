"""Archives of a release: what is in them, and that nothing of this machine is.

    python3 -m unittest discover --start-directory tests/system --pattern 'test_dist.py'
"""

import pathlib
import sys
import tarfile
import tempfile
import tomllib
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "release"))
import dist

# A machine that no test runs on, so that no program is asked for its pages.
TARGET = "s390x-unknown-linux-gnu"


class Archives(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        parts = mock.patch.object(dist, "sbom", lambda program, target: f"{program.stem} for {target}\n")
        parts.start()
        self.addCleanup(parts.stop)

    def program(self, name):
        program = self.folder / name
        program.write_bytes(b"program")
        program.chmod(0o700)
        return program

    def test_every_program_has_its_own(self):
        for name in dist.PROGRAMS:
            packed, parts = dist.pack(TARGET, self.program(name), self.folder / "made")
            whole = f"{name}-{dist.version()}-{TARGET}"
            self.assertEqual((packed.name, parts.name), (f"{whole}.tar.gz", f"{whole}.cdx.json"))
            self.assertEqual(parts.read_text(), f"{name} for {TARGET}\n")
            with tarfile.open(packed) as tar:
                entries = {entry.name.removeprefix(f"{whole}/"): entry for entry in tar}
            others = {"README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-APACHE", "LICENSE-MIT"}
            self.assertEqual(set(entries), {name} | others)
            self.assertEqual(entries[name].mode, 0o755)
            self.assertTrue(all(entries[other].mode == 0o644 for other in others))

    def test_two_machines_pack_the_same_bytes(self):
        program = self.program("demask")
        first = dist.pack(TARGET, program, self.folder / "first")[0].read_bytes()
        program.touch()
        self.assertEqual(dist.pack(TARGET, program, self.folder / "second")[0].read_bytes(), first)

    def test_checksums_are_of_all_files(self):
        made = self.folder / "made"
        programs = [self.program(name) for name in dist.PROGRAMS]
        with mock.patch.object(dist, "MADE", made), mock.patch.object(dist, "build", lambda *_: programs):
            with mock.patch("builtins.print"):
                dist.make(TARGET)
        sums = (made / f"demask-{dist.version()}-{TARGET}.sha256").read_text().splitlines()
        listed = {line.split("  ")[1]: line.split("  ")[0] for line in sums}
        self.assertEqual({name: dist.digest(made / name) for name in listed}, listed)
        self.assertEqual(len(listed), 2 * len(dist.PROGRAMS))

    def test_packages_have_the_programs(self):
        for name, folder in dist.PROGRAMS.items():
            with open(dist.ROOT / "crates" / folder / "Cargo.toml", "rb") as file:
                manifest = tomllib.load(file)
            self.assertEqual(manifest["package"]["name"], f"demask-{folder}")
            self.assertIn(name, [binary["name"] for binary in manifest["bin"]])


if __name__ == "__main__":
    unittest.main()
