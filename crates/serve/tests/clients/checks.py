"""Runs the checks of a module and tells of each whether it held."""

import json
import os
import sys
import time
import traceback
import urllib.error
import urllib.request

URL = os.environ.get("CHECK_URL", "http://127.0.0.1:8080")
MODEL = os.environ.get("CHECK_MODEL", "")
KEY = os.environ.get("CHECK_KEY", "none")
QUESTION = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?"


class Reply:
    """What a plain request came to, whatever its status."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


def plain(path, body=None, method=None):
    """A request without a client: `body` is bytes, or what becomes JSON; without one, a GET."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(URL + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as found:
            return Reply(found.status, found.headers, found.read())
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.headers, error.read())


def equal(found, expected, what="value"):
    assert found == expected, f"{what} is {found!r}, expected {expected!r}"


def run(module):
    """Runs every function `check_...` in the order in which they stand; exits with 1 if one of them fails."""
    failures = 0
    for name, check in list(vars(module).items()):
        if not name.startswith("check_"):
            continue
        began, told = time.monotonic(), ""
        try:
            check()
        except Exception as error:  # whatever a client raises is what the check has found
            failures += 1
            where = traceback.extract_tb(error.__traceback__)
            line = next((frame.lineno for frame in reversed(where) if frame.filename == module.__file__), 0)
            told = f": line {line}: {type(error).__name__}: {' '.join(str(error).split())[:600]}"
        state = "FAILED" if told else "passed"
        print(f"{state} {name.removeprefix('check_')} ({time.monotonic() - began:.1f} s){told}", flush=True)
    sys.exit(1 if failures else 0)
