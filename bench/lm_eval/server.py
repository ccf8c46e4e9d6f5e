"""A demask server, asked over HTTP: completions, chats and likelihoods, with what the harness needs of them.

Nothing but the standard library, and nothing of the harness: model.py puts this behind the harness's own class.
"""

import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

# Statuses after which the same request may succeed: a rate that is used up, and a server that has no room.
AGAIN = (429, 503)
# Seconds that a refused request waits at most, whatever the server says.
LONGEST_WAIT = 60
# What the harness asks of generation, and the field that carries it out; the rest must be what greedy decoding means.
FIELDS = {"max_gen_toks": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
GREEDY = {"do_sample": (False, None)}
# Texts to stop at that servers of the OpenAI kind take; others are cut off here.
MOST_STOPS = 4


class ServerError(Exception):
    """Why there is no answer, in a line."""


class Server:
    """One server and one of its models."""

    def __init__(self, url, model=None, key=None, timeout=600.0, tries=10, wait=time.sleep):
        self.url = url.rstrip("/").removesuffix("/v1")
        self.headers = {"Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        self.timeout, self.tries, self.wait = timeout, tries, wait
        self.model = model or self.first_model()

    def first_model(self):
        found = self.ask("/v1/models")
        try:
            return found["data"][0]["id"]
        except (KeyError, IndexError, TypeError):
            raise ServerError(f"{self.url}/v1/models lists no model: --model NAME names one") from None

    def ask(self, path, body=None):
        """The JSON that comes back, after as many tries as the server asks for."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers)
        for left in reversed(range(self.tries)):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                if error.code not in AGAIN or left == 0:
                    raise ServerError(f"{path}: HTTP {error.code}: {reason(error)}") from None
                self.wait(seconds(error.headers.get("Retry-After")))
            except (OSError, ValueError) as error:
                raise ServerError(f"{self.url}{path}: {getattr(error, 'reason', error)}") from None

    def generate(self, prompt, options, chat=False, diffusion=None):
        """The text and the receipt of an answer to a prompt, by the harness's options."""
        stops, fields = generation(options)
        body = {"model": self.model, **fields, "diffusion": {**(diffusion or {}), "receipt": True}}
        if stops:
            body["stop"] = stops[:MOST_STOPS]
        if chat:
            found = self.ask("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": prompt}]})
        else:
            found = self.ask("/v1/completions", {**body, "prompt": prompt})
        try:
            choice = found["choices"][0]
            text = choice["message"]["content"] if chat else choice["text"]
            receipt = found["diffusion"]["receipt"]
        except (KeyError, IndexError, TypeError):
            raise ServerError("an answer without text or receipt, expected one of demask serve") from None
        return before(text, stops), receipt

    def score(self, pairs, draws=None, seed=0):
        """Log-probabilities of continuations behind their contexts: (value, whether it is a bound), in order."""
        contexts, continuations = zip(*pairs)
        body = {"model": self.model, "context": list(contexts), "continuation": list(continuations), "seed": seed}
        if draws is not None:
            body["draws"] = draws
        found = self.ask("/v1/score", body)
        try:
            rows = sorted(found["data"], key=lambda row: row["index"])
            scores = [(float(row["log_probability"]), bool(row["bound"])) for row in rows]
        except (KeyError, TypeError, ValueError):
            raise ServerError("/v1/score: rows without index, log_probability or bound") from None
        if len(scores) != len(pairs):
            raise ServerError(f"/v1/score: {len(scores)} rows, expected {len(pairs)}")
        return scores


def generation(options):
    """Stop texts and fields of a request, for the harness's options of a generation."""
    stops, fields = [], {}
    for name, value in options.items():
        if name == "until":
            stops = [value] if isinstance(value, str) else list(value)
        elif name in FIELDS:
            fields[FIELDS[name]] = value
        elif value not in GREEDY.get(name, ()):
            raise ServerError(f"the task asks for {name}={value!r}, which demask serve does not know")
    return [stop for stop in stops if stop], fields


def before(text, stops):
    """The text in front of the first stop: those beyond the server's limit were not its to obey."""
    ends = [at for at in map(text.find, stops) if at >= 0]
    return text[: min(ends)] if ends else text


def seconds(retry_after):
    """How long to wait before the next try."""
    try:
        return min(max(float(retry_after), 0.0), LONGEST_WAIT)
    except (TypeError, ValueError):
        return 1.0


def reason(error):
    """What the body of a refusal says."""
    text = error.read(65536).decode(errors="replace")
    try:
        return json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return text.strip()[:300] or error.reason


def in_order(work, items, at_once):
    """What `work` returns for each item, several at once, in their order."""
    with ThreadPoolExecutor(max(1, at_once)) as threads:
        return list(threads.map(work, items))
