"""Models with a thread of their own."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from . import _native
from ._closing import Closing
from ._decision import Decisions, as_json, decisions
from .errors import Error, OptionsError
from ._facts import cost
from ._generation import Generation, Logprob
from ._http import Headers, HttpResponse, Service
from ._prompt import Hole, Infill, Message, Native, Prompt, asked, is_many, messages, native, text, token_ids
from ._score import Score
from ._server import Server
from ._stream import AsyncStream, Stream
from ._tokenizer import Tokenizer
from ._trace import Trace
from ._transfer import alone, handed
from ._waiting import waiting

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Unpack

    from ._options import LoadOptions, Options, PromptOptions, RequestBounds, ServiceOptions

__all__ = ["Model", "demo", "load", "serve"]

Progress = Callable[[str, int, int], object]

BATCH = 64
"""Prompts of one call that run at the same time by default: where more gain no more, on two cores."""

_models: weakref.WeakSet[Model] = weakref.WeakSet()


def load(
    model: str | os.PathLike[str], *, progress: bool | Progress = False, **settings: Unpack[LoadOptions]
) -> Model:
    """Loads a model, and starts its thread.

    `model` is a hub's id (`org/name` or `org/name@revision`), a directory in Hugging Face layout, or a `.gguf` file. `progress`
    shows how far it is, or is called with a name, the bytes that were read and those there are; Ctrl-C ends loading.

    Raises `ModelError` if it is not there or cannot be read, `OutOfMemory` if it does not fit, `DeviceError` if the device cannot
    be used, `OptionsError` for a wrong word, `TypeError` for a name that no setting has.
    """
    path = os.fspath(model)
    return Model(_native.open(path, dict(settings), _progress(progress)), (path, settings))


def demo(*, progress: bool | Progress = False, **settings: Unpack[LoadOptions]) -> Model:
    """Loads the model that is part of the package: a small LLaDA that solves word problems. It needs no file and no network.

    Takes and raises what `load` does.
    """
    return Model(_native.open(None, dict(settings), _progress(progress)), (None, settings))


def _progress(progress: bool | Progress) -> Progress | None:
    if not isinstance(progress, bool):
        _callable(progress)
        return progress
    return _shown if progress else None


def _callable(progress: object) -> None:
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress is of type {type(progress).__name__}, expected True, False or a function")


def _shown(name: str, done: int, total: int) -> None:
    end = "\n" if done >= total else ""
    print(f"\r{name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", end=end, flush=True)


def serve(
    model: str | os.PathLike[str] | None = None,
    host: str | None = None,
    port: int | None = None,
    *,
    settings: LoadOptions | None = None,
    wait: bool = True,
    **bounds: Any,
) -> Server:
    """Loads a model, the built-in one if none is named, and serves it until Ctrl-C; or returns the server at once, if `wait` is
    false. `settings` are those of `load`, other keywords those of `Model.serve`.
    """
    loaded = demo(**(settings or {})) if model is None else load(model, **(settings or {}))
    server = loaded.serve(host, port, **bounds)
    if wait:
        print(f"demask serves {loaded.name} on {server.url}", flush=True)
        with loaded, server:
            server.wait()
    return server


class Model(Closing):
    """A loaded model on a thread of its own. Any thread and any event loop may ask it; what is asked at the same time shares
    forwards, and each answer is, to the bit, the one that its request has alone.

    `load`, `from_pretrained` and `demo` make one. It is a context manager: at its end the model is closed. It cannot be pickled, nor used in the
    child of a fork.

    Options of all its methods are the command line's, as keywords with underscores; `None` is not set. A name that no option has
    raises `TypeError` with the nearest one that there is.
    """

    __slots__ = ("__weakref__", "_info", "_native", "_opened", "_service", "_words")

    def __init__(self, native: _native.Model, opened: tuple[str | None, LoadOptions]) -> None:
        """Wraps what `load` has loaded, with its arguments."""
        self._native = native
        self._opened = opened
        self._info: dict[str, Any] = json.loads(native.info())
        self._words = native.tokenizer()
        self._service: Service | None = None
        _models.add(self)

    @classmethod
    def from_pretrained(
        cls, model: str | os.PathLike[str], *, progress: bool | Progress = False, **settings: Unpack[LoadOptions]
    ) -> Model:
        """Loads a model: takes and raises what `demask.load` does."""
        return load(model, progress=progress, **settings)

    # What it is.

    @property
    def name(self) -> str:
        """Name of the model."""
        return str(self._info["name"])

    @property
    def info(self) -> dict[str, Any]:
        """Facts about the model: family, attention, sizes, special tokens, default methods, device, guides."""
        return dict(self._info)

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the model."""
        return Tokenizer(self._words, int(self._info["vocabulary"]))

    def chat_template(self, conversation: Sequence[Message], *, generation_prompt: bool = True) -> str:
        """Returns a conversation as the model's template puts it into words.

        Raises `PromptError` if the template refuses it.
        """
        return self._words.template(messages(conversation), generation_prompt)

    def metrics(self) -> dict[str, Any]:
        """Returns the model's counts as they were after its last forward, as plain numbers. It waits for nothing."""
        found: dict[str, Any] = json.loads(self._native.metrics())
        return found

    def __repr__(self) -> str:
        state = "closed" if self.closed else str(self._info["device"])
        return f"<demask.Model {self.name}, {state}>"

    # Answers.

    # A text is a sequence of texts to those who check types, and one prompt here: the first overload is the one that holds.
    @overload
    def generate(  # type: ignore[overload-overlap]
        self,
        prompt: Prompt,
        *,
        progress: bool | Callable[[int, int], object] = False,
        errors: Literal["raise"] = "raise",
        each: None = None,
        batch: int = BATCH,
        **options: Unpack[PromptOptions],
    ) -> Generation: ...

    @overload
    def generate(
        self,
        prompt: Sequence[Prompt],
        *,
        progress: bool | Callable[[int, int], object] = False,
        errors: Literal["raise"] = "raise",
        each: Sequence[Options] | None = None,
        batch: int = BATCH,
        **options: Unpack[PromptOptions],
    ) -> list[Generation]: ...

    @overload
    def generate(
        self,
        prompt: Sequence[Prompt],
        *,
        progress: bool | Callable[[int, int], object] = False,
        errors: Literal["return"],
        each: Sequence[Options] | None = None,
        batch: int = BATCH,
        **options: Unpack[PromptOptions],
    ) -> list[Generation | Error]: ...

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        progress: bool | Callable[[int, int], object] = False,
        errors: Literal["raise", "return"] = "raise",
        each: Sequence[Options] | None = None,
        batch: int = BATCH,
        **options: Unpack[PromptOptions],
    ) -> Generation | list[Generation] | list[Generation | Error]:
        """Generates the answer to a prompt, or to many in one batch whose order is kept.

        A text gets the answer of `demask generate TEXT`: it is a user's message, put through the model's template. `Raw` is a text
        that the model continues as it is. `system` puts a system message before a text. A prompt is a text, a conversation, `Raw`, `Tokens` or `Infill`; a list that begins with anything but a message is
        list of prompts. All are prepared before any runs, and `batch` of them run at the same time: more share forwards, and use more
        memory. `each` has options of single prompts, which stand over the common ones;
        `errors="return"` puts the exception of a prompt that fails in its place; `progress` shows how many are done, or is called
        with that and their number.

        Raises `PromptError`, `OptionsError`, `OutOfMemory`, `Closed` and `TypeError` as the first prompt that fails does; the others
        are given up then, and so are all at Ctrl-C.
        """
        if not is_many(prompt):
            _alone(each, errors)
            ticket = self._native.submit(*_asked(prompt, options))
            try:
                return Generation(ticket.answer(), self._words)
            except BaseException:
                ticket.cancel()
                raise
        _callable(progress)
        prepared = self._prepare(prompt, each, options, errors, batch)
        told = _counted(progress, len(prepared))
        found = self._native.answer_all(prepared, batch, errors == "return", told)
        answers: list[Any] = [one if isinstance(one, Exception) else Generation(one, self._words) for one in found]
        return answers

    @overload
    async def agenerate(  # type: ignore[overload-overlap]
        self,
        prompt: Prompt,
        *,
        errors: Literal["raise"] = "raise",
        each: None = None,
        batch: int = BATCH,
        **options: Unpack[PromptOptions],
    ) -> Generation: ...

    @overload
    async def agenerate(
        self,
        prompt: Sequence[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        each: Sequence[Options] | None = None,
        batch: int = BATCH,
        **options: Unpack[PromptOptions],
    ) -> list[Generation]: ...

    @overload
    async def agenerate(
        self,
        prompt: Sequence[Prompt],
        *,
        errors: Literal["return"],
        each: Sequence[Options] | None = None,
        batch: int = BATCH,
        **options: Unpack[PromptOptions],
    ) -> list[Generation | Error]: ...

    async def agenerate(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        errors: Literal["raise", "return"] = "raise",
        each: Sequence[Options] | None = None,
        batch: int = BATCH,
        **options: Unpack[PromptOptions],
    ) -> Generation | list[Generation] | list[Generation | Error]:
        """Generates as `generate` does, and lets the event loop run meanwhile. Cancelling the task cancels the requests."""
        if not is_many(prompt):
            _alone(each, errors)
            return await self._awaited(self._native.submit(*_asked(prompt, options)))
        prepared = self._prepare(prompt, each, options, errors, batch)
        found: list[Any] = list(prepared)
        left = iter(enumerate(prepared))

        async def work() -> None:
            for place, one in left:
                if isinstance(one, _native.Prepared):
                    try:
                        found[place] = await self._awaited(self._native.submit_prepared(one))
                    except Error as error:
                        if errors == "raise":
                            raise
                        found[place] = error

        tasks = [asyncio.create_task(work()) for _ in range(min(batch, len(prepared)))]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return found

    def stream(self, prompt: Prompt, **options: Unpack[PromptOptions]) -> Stream:
        """Streams the answer to a prompt: an iterator of `Update`, behind whose end `answer` is the `Generation`.

        Raises what `generate` does, preparation first, at once.
        """
        return Stream(self._native.submit(*_asked(prompt, options)), self._words)

    def astream(self, prompt: Prompt, **options: Unpack[PromptOptions]) -> AsyncStream:
        """Streams the answer to a prompt for `async for`, as `stream` does. Many at once share forwards."""
        return AsyncStream(self._native.submit(*_asked(prompt, options)), self._words)

    def infill(self, pieces: str | Sequence[str | Hole], **options: Unpack[Options]) -> Generation:
        """Fills the holes of a text: `"text with <mask:3>"`, or pieces between which `Hole(3)` stands.

        Raises `PromptError` if the model cannot look ahead, or there is no hole.
        """
        return self.generate(Infill(pieces), **options)

    # Looks into the model.

    def trace(
        self, prompt: Prompt, *, drafts: bool = False, predictions: bool = False, **options: Unpack[PromptOptions]
    ) -> Trace:
        """Generates the answer to a prompt, and returns what happened on the way: commits and forwards, with the drafts of each forward and with
        all predictions if asked for.

        Raises what `generate` does.
        """
        ticket = self._native.submit_traced(*_asked(prompt, options), drafts, predictions)
        try:
            answer = Generation(ticket.answer(), self._words)
        except BaseException:
            ticket.cancel()
            raise
        return Trace.parse(ticket.trace(), answer)

    def score(
        self,
        context: Prompt,
        continuation: str,
        *,
        draws: int | None = None,
        cfg_scale: float | None = None,
        seed: int | None = None,
        top: int | None = None,
    ) -> Score:
        """Judges how probable a text is behind a prompt: its natural-log probability, of diffusion models a lower bound that is
        estimated from `draws` masks (128 if it is not set). `top` keeps the log-probabilities of tokens, of autoregressive models.

        Raises `OptionsError` if the model has no such estimate (block-causal ones), `PromptError` if one of both is empty.
        """
        found = _native.score(self._native, native(context), text("the continuation", continuation), (draws, cfg_scale, seed, top))
        log_probability, tokens, logprobs, forwards, flops, seconds, cached_tokens = found
        known = [Logprob(*one) for one in logprobs]
        return Score(log_probability, tokens, known, forwards, flops, seconds, cached_tokens)

    def decide(self, prompt: Prompt, questions: Iterable[Mapping[str, Any]]) -> Decisions:
        """Answers questions about a prompt, each by one of given choices, with the probability of every choice. Nothing is
        generated, and nothing is drawn.

        A question is a mapping as in `POST /v1/decisions`: `type` is `"predicate"` (yes or no), `"choice"` with a list of
        `choices`, or `"score"` with `min` and `max` or with a list of `levels`; `instructions` are what the model reads, and a
        `name` is returned with the answer. A model that sees both ways answers all questions on one canvas.

        Raises `OptionsError` for a question that cannot be asked, `PromptError` if all of it is too long.
        """
        return decisions(_native.decide(self._native, native(prompt), as_json(questions)))

    def logits(self, tokens: Iterable[int] | npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """Runs a forward over tokens with the model's own attention, and returns raw logits as f32, `[tokens, vocabulary]`, not
        shifted. It owns its memory and may be written to, so `torch.from_dlpack` takes it without a copy.

        Raises `PromptError` for tokens that the model does not know or too many of them, `OutOfMemory`.
        """
        import numpy

        ids = token_ids(tokens)
        found = _native.logits(self._native, ids)
        return numpy.frombuffer(found, dtype=numpy.float32).reshape(len(ids), -1)

    def hidden(
        self, tokens: Iterable[int] | npt.NDArray[np.integer[Any]], layer: int | Literal["embedding", "final"]
    ) -> npt.NDArray[np.float32]:
        """Runs a forward over tokens, and returns the residual stream behind a layer, counted from 0, as f32, `[tokens, hidden]`:
        `"embedding"` in front of the first, `"final"` behind the norm that the head reads.

        Raises `IndexError` if there is no such layer, and what `logits` does.
        """
        import numpy

        if isinstance(layer, bool) or not isinstance(layer, (int, str)):
            raise TypeError(f"layer is of type {type(layer).__name__}, expected a whole number, 'embedding' or 'final'")
        layers = int(self._info["layers"])
        named = {"embedding": -1, "final": layers}
        place = named.get(layer) if isinstance(layer, str) else layer
        if place is None or not -1 <= place <= layers or (place < 0 or place == layers) != isinstance(layer, str):
            raise IndexError(f"layer is {layer!r}, expected one from 0 to {layers - 1}, 'embedding' or 'final'")
        ids = token_ids(tokens)
        found = _native.hidden(self._native, ids, place + 1)
        return numpy.frombuffer(found, dtype=numpy.float32).reshape(len(ids), -1)

    def cost(self, prompt_tokens: int = 256, *, acceptance: float = 0.0, **options: Unpack[Options]) -> dict[str, Any]:
        """Returns what an answer takes behind so many tokens, as `demask.cost` does, without running anything."""
        model, settings = self._opened
        return cost(model, prompt_tokens=prompt_tokens, acceptance=acceptance, settings=settings, **options)

    def _prepare(
        self, prompts: Sequence[Prompt], each: Sequence[Options] | None, options: PromptOptions, errors: str, batch: int
    ) -> list[Any]:
        """Returns what was prepared of each prompt, or its exception."""
        if errors not in ("raise", "return"):
            raise ValueError(f"errors is {errors!r}, expected 'raise' or 'return'")
        if isinstance(batch, bool) or not isinstance(batch, int):
            raise TypeError(f"batch is of type {type(batch).__name__}, expected a whole number from 1 on")
        if batch < 1:
            raise ValueError(f"batch is {batch}, expected a whole number from 1 on")
        if each is not None and len(each) != len(prompts):
            raise ValueError(f"each has {len(each)} options for {len(prompts)} prompts, expected as many")
        for mine in each or ():
            if not isinstance(mine, Mapping):
                raise TypeError(f"each has an entry of type {type(mine).__name__}, expected a dict of options")
        own: Sequence[Mapping[str, Any]] = each if each is not None else [{}] * len(prompts)
        laid = [{**options, **mine} for mine in own]
        alone(laid)
        wanted = [_asked(prompt, mine) for prompt, mine in zip(prompts, laid, strict=True)]
        return self._native.prepare_all(wanted, errors == "return")

    async def _awaited(self, ticket: _native.Ticket) -> Generation:
        """Waits for an answer, and cancels it with the task."""
        try:
            fields = await waiting().until(ticket.poll_answer)
        except BaseException:
            ticket.cancel()
            raise
        assert fields is not None, "nothing ends the wait but the answer"
        return Generation(fields, self._words)

    # The server's layer.

    def service(
        self,
        *,
        names: Sequence[str] = (),
        keys: str | None = None,
        page: bool = True,
        **bounds: Unpack[RequestBounds],
    ) -> Service:
        """Returns an OpenAI-compatible server over this model without sockets, as `demask serve` is one with them.

        `names` are those that requests may call the model by, `keys` has one client a line (`NAME KEY [weight=NUMBER]
        [rate=REQUESTS_PER_MINUTE]`), `page` says whether the page at `/` is there, the others bound what requests may ask.

        Raises `OptionsError` if a line of `keys` is none.
        """
        return Service(_native.Service(self._native, list(names), keys, page, dict(bounds)))

    async def http(self, method: str, path: str, headers: Headers | None = None, body: Any = b"") -> HttpResponse:
        """Serves one request as `Service.http` does, by a server with the usual bounds and without keys."""
        if self._service is None:
            self._service = self.service()
        return await self._service.http(method, path, headers, body)

    def serve(
        self,
        host: str | None = None,
        port: int | None = None,
        *,
        allowed_hosts: Sequence[str] | None = None,
        cors_origins: Sequence[str] = (),
        **bounds: Unpack[ServiceOptions],
    ) -> Server:
        """Serves this model on a socket, on a thread of the server's own. Host and port are those of `demask serve` unless they are
        set; port 0 takes a free one. Other keywords are those of `service`.

        `allowed_hosts` are names of this host that requests may be sent to (on loopback, its own; elsewhere all), `cors_origins`
        those that pages of other sites may ask from. Raises `OptionsError` if it cannot listen there.
        """
        service = self.service(**bounds)
        hosts = None if allowed_hosts is None else list(allowed_hosts)
        return Server(_native.Server(service._native, host, port, hosts, list(cors_origins)))

    # Its end.

    @property
    def closed(self) -> bool:
        """Reports whether the model was closed and takes no more requests."""
        return self._native.closed

    def close(self) -> None:
        """Cancels what runs, which raises `Closed` where it is waited for, and ends the thread. Nothing happens the second time."""
        self._native.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Model cannot be pickled, its thread belongs to this process: load the model where it is to run")


def _asked(prompt: object, options: Mapping[str, Any]) -> tuple[Native, dict[str, Any]]:
    """Returns a prompt and its options as the native half takes them: the system message is a part of the prompt there."""
    found = dict(options)
    held = asked(prompt, found.pop("system", None))
    if found.get("json_schema") is not None:
        found["json_schema"] = _schema(found["json_schema"])
    if found.get("transfer") is not None:
        found["transfer"] = handed(found["transfer"])
    return held, found


def _schema(of: Any) -> str:
    """Returns a schema as text: a model of pydantic has its own."""
    if hasattr(of, "model_json_schema"):
        of = of.model_json_schema()
    return of if isinstance(of, str) else json.dumps(of)


def _alone(each: object, errors: str) -> None:
    if each is not None or errors != "raise":
        raise TypeError("each and errors go with a list of prompts: give a list, or omit them")


def _counted(progress: bool | Callable[[int, int], object], count: int) -> Callable[[int], object] | None:
    if not isinstance(progress, bool):
        return lambda done: progress(done, count)
    return (lambda done: _shown_count(done, count)) if progress else None


def _shown_count(done: int, count: int) -> None:
    print(f"\r{done} of {count} answers", end="\n" if done == count else "", flush=True)


@atexit.register
def _close_all() -> None:
    """Ends the threads while there is still an interpreter."""
    for model in list(_models):
        model.close()
