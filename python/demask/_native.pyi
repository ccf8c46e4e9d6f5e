from _typeshed import SupportsGetItem
from os import PathLike
from typing import Any, Final, SupportsFloat, SupportsIndex, final

__all__ = ["__version__", "Bell", "Commit", "Evaluation", "Forward", "Model", "Prepared", "Questions", "Reply", "Server", "Service", "Started", "Ticket", "Tokenizer", "Update", "cost", "decide", "doctor", "hidden", "logits", "open", "option_fields", "score", "tasks"]

__version__: Final[str]
"""
The version of the package, of both its halves.
"""

@final
class Bell:
    """
    Wakes the tasks of one event loop.
    """
    def __new__(cls, /) -> Bell: ...
    def fileno(self, /) -> int:
        """
        The socket that becomes readable when it rings.
        """
    def heard(self, /) -> list[int]:
        """
        Returns the requests that have rung since it was last heard.
        """

@final
class Commit:
    """
    A token that was committed to a position of the canvas.
    """
    def __repr__(self, /) -> str: ...
    @property
    def confidence(self, /) -> float:
        """
        Probability of the token when it was committed; 1 where a rule, not the model, chose it.
        """
    @property
    def logprob(self, /) -> float | None:
        """
        Natural-log probability; `None` unless `top_logprobs` is set.
        """
    @property
    def position(self, /) -> int:
        """
        The position in the canvas, from 0; the prompt's are the first.
        """
    @property
    def replaces(self, /) -> int | None:
        """
        The id of the token whose place it took, if one stood there.
        """
    @property
    def step(self, /) -> int:
        """
        The forward whose prediction was taken, from 0.
        """
    @property
    def token(self, /) -> int:
        """
        The id of the token.
        """
    @property
    def top(self, /) -> list[tuple[int, float]]:
        """
        The most probable tokens in its place, as pairs of id and log-probability, the best first.
        """

@final
class Evaluation:
    """
    The problems of tasks, rows of models and methods that answer them, and the results.

    It is made alike on every machine that takes part: `configuration` shows whether it was. A worker calls `answer`,
    which loads the model at its first call; the keeper of the results calls `open`, `keep` and `finish`. A process that does
    everything calls `begin`, `run` and `finish`.
    """
    def __len__(self, /) -> int:
        """
        Number of items.
        """
    def __new__(cls, /, tasks: SupportsGetItem[int, str], model: str | PathLike[str] | None, keywords: "dict[str, Any]", decoding: "dict[str, Any]", *, seed: SupportsIndex = 0, limit: SupportsIndex | None = None, shots: SupportsIndex | None = None, shots_file: str | PathLike[str] | None = None, prompt_style: str | None = None, score: str | None = None, likelihood_draws: SupportsIndex | None = None, data: str | PathLike[str] | None = None, subject: str | None = None, system: str | None = None) -> Evaluation:
        """
        Lays out the problems of `tasks`, and the longest prompt of each of them. No weights are read.
        """
    def answer(self, /, items: SupportsGetItem[int, SupportsIndex], batch: SupportsIndex = 1) -> list[str]:
        """
        Runs and judges items, `batch` of them at the same time; returns their lines of `results.jsonl` in the order of
        `items`.
        """
    def begin(self, /, directory: str | PathLike[str] | None, library: str | PathLike[str], batch: SupportsIndex) -> int:
        """
        Opens a results directory, or makes it, or keeps results in memory, for `run`; `library` is the file of this module. Returns
        how many items are missing.
        """
    @property
    def configuration(self, /) -> str:
        """
        Configuration of the results, as in `run.json`.
        """
    def finish(self, /) -> str:
        """
        Writes the reports, and closes the directory; returns the numbers of the table's rows as JSON.
        """
    def keep(self, /, line: str) -> None:
        """
        Writes a line that `answer` returned, here or on another machine, to the directory that is open.
        """
    @staticmethod
    def of_runs(path: str | PathLike[str], text: str | None, model: str | None, keywords: "dict[str, Any]", *, seed: SupportsIndex, limit: SupportsIndex | None, maps: SupportsGetItem[int, tuple[str, str]], data: SupportsGetItem[int, tuple[str, str | PathLike[str]]], tasks: SupportsGetItem[int, str], rows: SupportsGetItem[int, str]) -> Evaluation:
        """
        Lays out a file of runs, a recipe by its name, or the text of such a file, whose name is then in errors alone. `model` is that
        of rows that name none, `keywords` say where rows run that do not say it. `maps`, `data`, `tasks` and `rows` change it as the
        flags of `demask-lab eval` do. No weights are read.
        """
    def open(self, /, directory: str | PathLike[str]) -> list[int]:
        """
        Opens a results directory, or makes it; returns the numbers of the items that it lacks.
        """
    def records(self, /) -> list[str]:
        """
        Returns the lines of `results.jsonl` of an evaluation that is over.
        """
    def report(self, /, format: str, task: str | None, columns: SupportsGetItem[int, str], pairs: bool) -> str:
        """
        Returns the report of an evaluation that is over, in a form: `text`, `markdown`, `html`, `json`, `csv` or `latex`. The last two are
        of one task, and may choose columns. The others may compare every row with every other.
        """
    def run(self, /, batch: SupportsIndex, command: str, progress: Any | None) -> None:
        """
        Runs and judges all items that are missing, `batch` of them at the same time; models and rows take turns as in
        `demask-lab eval`. The results record `command` as the call. `progress` is called with the number of items that
        are made, and hears Ctrl-C.
        """
    def warnings(self, /) -> list[str]:
        """
        Returns the warnings about numbers that mislead, such as many cut answers.
        """

@final
class Forward:
    """
    A forward of a request.
    """
    def __repr__(self, /) -> str: ...
    @property
    def accepted(self, /) -> int:
        """
        Draft tokens that were accepted.
        """
    @property
    def drafts(self, /) -> int:
        """
        Drafts that ran in it.
        """
    @property
    def nfe(self, /) -> int:
        """
        NFE so far, this forward included.
        """
    @property
    def rejected(self, /) -> int:
        """
        Draft tokens that were not.
        """
    @property
    def rows(self, /) -> int:
        """
        Rows of the request that entered it.
        """
    @property
    def step(self, /) -> int:
        """
        Index of the forward, from 0.
        """

@final
class Model:
    """
    A loaded model on a thread of its own.
    """
    def answer_all(self, /, prepared: SupportsGetItem[int, Any], width: SupportsIndex, keep: bool, progress: Any | None) -> "list[Any]":
        """
        Runs prepared prompts, `width` of them at the same time, and returns the fields of each answer in their order.
        An entry that is an exception already stays in its place. Where a request fails, its exception is raised and the
        others are given up, or put into its place if `keep` is set. `progress` is called with the number of those that
        are over.
        """
    def close(self, /) -> None:
        """
        Cancels what runs, and ends the thread. Nothing happens if it has ended.
        """
    @property
    def closed(self, /) -> bool: ...
    def info(self, /) -> str:
        """
        Facts about the model and its abilities, as JSON.
        """
    def metrics(self, /) -> str:
        """
        The counts of the engine as they were after its last forward, as JSON. It never waits for a forward.
        """
    def prepare_all(self, /, wanted: "list[tuple[tuple[str, Any], dict[str, Any]]]", keep: bool) -> list[Any]:
        """
        Prepares many prompts, each with its options. Where one cannot be prepared, its exception is raised; if `keep` is set, it
        stands in its place.
        """
    def submit(self, /, prompt: "tuple[str, Any]", options: "dict[str, Any]") -> Ticket:
        """
        Submits a prompt.
        """
    def submit_prepared(self, /, prepared: Prepared) -> Ticket:
        """
        Submits a prepared prompt, once.
        """
    def submit_traced(self, /, prompt: "tuple[str, Any]", options: "dict[str, Any]", drafts: bool, predictions: bool) -> Ticket:
        """
        Submits a prompt whose way is written down: with the drafts of each forward, and with all predictions, if asked for.
        """
    def tokenizer(self, /) -> Tokenizer:
        """
        The model's tokenizer and template.
        """

@final
class Prepared:
    """
    A prompt that is ready to be submitted.
    """

@final
class Questions:
    """
    The problems of a task in the words of a style.
    """
    def __len__(self, /) -> int:
        """
        Number of problems.
        """
    def __new__(cls, /, task: str, *, seed: SupportsIndex, limit: SupportsIndex | None, shots: SupportsIndex | None, shots_file: str | PathLike[str] | None, prompt_style: str | None, data: str | PathLike[str] | None, subject: str | None) -> Questions:
        """
        Reads the problems of a task.
        """
    def item(self, /, index: SupportsIndex) -> str:
        """
        A problem as JSON.
        """
    def judge(self, /, index: SupportsIndex, answer: str) -> str:
        """
        The verdict on an answer to a problem, as JSON.
        """
    def options(self, /) -> str:
        """
        Options of an answer that the task has, as JSON: its length and its stop texts.
        """
    def prompt(self, /, index: SupportsIndex) -> str:
        """
        The prompt of a problem as JSON: a list of messages, or a text that is continued as it is.
        """

@final
class Reply:
    """
    A response on its way. Dropping it cancels its answers before the next forward.
    """
    def cancel(self, /) -> None:
        """
        Cancels the request. Nothing happens if it is over.
        """
    def chunk(self, /, bell: Bell, number: SupportsIndex) -> tuple[bool, bytes | None]:
        """
        Reports whether the next piece of the body is there, with that piece, `None` after the end. If it is not, the
        bell rings with this number once it is.
        """
    def head(self, /, bell: Bell, number: SupportsIndex) -> tuple[int, list[tuple[str, str]]] | None:
        """
        Status and headers, or `None`, and the bell rings with this number once they are known.
        """

@final
class Server:
    """
    An HTTP server over an engine.
    """
    def __new__(cls, /, service: Service, host: str | None, port: "int | None", hosts: SupportsGetItem[int, str] | None, origins: SupportsGetItem[int, str]) -> Server:
        """
        Listens on an address and serves. `hosts` are names of this host that requests may be sent to, `origins` those that pages
        of other sites may ask from.
        """
    @property
    def address(self, /) -> tuple[str, int]:
        """
        The address that it listens on.
        """
    def close(self, /, drain: bool) -> None:
        """
        Ends it: at once, or when its running requests are over. Nothing happens if it has ended.
        """
    @property
    def running(self, /) -> bool:
        """
        Reports whether it serves.
        """

@final
class Service:
    """
    An OpenAI-compatible server over an engine, without sockets.
    """
    def __new__(cls, /, engine: Model, names: SupportsGetItem[int, str], keys: str | None, page: bool, limits: "dict[str, Any]") -> Service:
        """
        Serves an engine. `limits` has bounds by their names, `keys` one a line.
        """
    @property
    def busy(self, /) -> bool:
        """
        Reports whether a request is on its way.
        """
    def drain(self, /) -> None:
        """
        Refuses new requests from now on. Running ones go on.
        """
    def handle(self, /, method: str, path: str, headers: SupportsGetItem[int, tuple[SupportsGetItem[int, SupportsIndex], SupportsGetItem[int, SupportsIndex]]], body: bytes) -> Reply:
        """
        Serves one request, once its head is asked for.
        """

@final
class Started:
    """
    The canvas as it was laid out.
    """
    def __repr__(self, /) -> str: ...
    @property
    def block_length(self, /) -> int:
        """
        Positions of a block.
        """
    @property
    def cache(self, /) -> str:
        """
        The cache policy, with its parameters.
        """
    @property
    def canvas(self, /) -> list[int]:
        """
        All tokens: the prompt, and masks where something is decoded.
        """
    @property
    def decoder(self, /) -> str:
        """
        The decoder, with its parameters.
        """
    @property
    def holes(self, /) -> list[tuple[int, int]]:
        """
        The holes that are filled, as pairs of the first position and the one after the last.
        """
    @property
    def positions(self, /) -> int:
        """
        Positions after the prompt.
        """
    @property
    def prompt_tokens(self, /) -> int:
        """
        Tokens of the prompt.
        """

@final
class Ticket:
    """
    A request on its way. Dropped, it is given up before the next forward.
    """
    def answer(self, /) -> "dict[str, Any]":
        """
        Waits for the answer, without the interpreter.
        """
    def cancel(self, /) -> None:
        """
        Cancels the request before the next forward. Nothing happens if it is over.
        """
    def next(self, /) -> "Update | dict[str, Any]":
        """
        Waits for the next thing that happens, without the interpreter.
        """
    def poll(self, /, bell: Bell, number: SupportsIndex) -> "Update | dict[str, Any] | None":
        """
        Returns what has happened, or `None` and lets the bell ring with this number once there is something.
        """
    def poll_answer(self, /, bell: Bell, number: SupportsIndex) -> "dict[str, Any] | None":
        """
        Returns the answer, or `None` and lets the bell ring with this number once it is there.
        """
    def trace(self, /) -> str:
        """
        The trace so far, one line of JSON each: none of a request that is not traced.
        """
    def wait_for_the_end(self, /) -> None:
        """
        Asks for nothing before the end.
        """

@final
class Tokenizer:
    """
    A model's tokenizer and chat template.
    """
    def decode(self, /, tokens: SupportsGetItem[int, SupportsIndex], special: bool) -> str:
        """
        The text of tokens; `special` keeps those that are no text.
        """
    def encode(self, /, text: str, special: bool) -> list[int]:
        """
        The tokens of a text; `special` adds the tokens that the tokenizer puts around texts.
        """
    def pieces(self, /, tokens: SupportsGetItem[int, SupportsIndex]) -> list[str]:
        """
        The pieces of text that tokens stand for, each for itself; a special token has its name.
        """
    def template(self, /, messages: SupportsGetItem[int, tuple[str, str, str]], generation_prompt: bool) -> str:
        """
        Messages as the model's template puts them.
        """
    def token(self, /, token: SupportsIndex) -> bytes | None:
        """
        The bytes of a token; none of one that is no text.
        """

@final
class Update:
    """
    Changes of a request since the last update.
    """
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    @property
    def commits(self, /) -> list[Commit]:
        """
        Tokens that were committed, in their order.
        """
    @property
    def forwards(self, /) -> list[Forward]:
        """
        Forwards since the last update, at most 256 of them.
        """
    @property
    def holes(self, /) -> list[tuple[int, str]]:
        """
        Texts of holes that can no longer change, as pairs of the hole's index and its text.
        """
    @property
    def masks(self, /) -> int:
        """
        Masks that are left in the canvas.
        """
    @property
    def nfe(self, /) -> int:
        """
        NFE so far; 0 if no forward has ended since the last update.
        """
    @property
    def settled(self, /) -> int:
        """
        Count of positions after the prompt that can no longer change and belong to the answer.
        """
    @property
    def started(self, /) -> Started | None:
        """
        The canvas as it was laid out, in the first update; `None` in the others.
        """
    @property
    def steps(self, /) -> int:
        """
        Number of forwards since the last update.
        """
    @property
    def taken_back(self, /) -> list[int]:
        """
        Positions whose tokens were taken back: masks stand there again.
        """
    @property
    def text(self, /) -> str:
        """
        Text that can no longer change.
        """

def cost(model: str | PathLike[str] | None, like: str | None, settings: "dict[str, Any]", prompt_length: SupportsIndex, acceptance: SupportsFloat | SupportsIndex, keywords: "dict[str, Any]") -> str:
    """
    Costs of an answer, as JSON: of a released shape (`like`), of a model's files, or of the built-in model.
    """

def decide(engine: Model, prompt: "tuple[str, Any]", questions: str) -> str:
    """
    Answers questions about a prompt, which are JSON, as the answers are.
    """

def doctor(settings: "dict[str, Any]") -> str:
    """
    Abilities of this machine, as JSON. The measurement takes the processor for about a second.
    """

def hidden(engine: Model, tokens: SupportsGetItem[int, SupportsIndex], place: SupportsIndex) -> bytearray:
    """
    Runs a forward over tokens, and returns a layer's output, `[tokens, hidden]` as f32: 0 is the embedding, 1 the first
    layer, and one after the last layer the final norm.
    """

def logits(engine: Model, tokens: SupportsGetItem[int, SupportsIndex]) -> bytearray:
    """
    Runs a forward over tokens, and returns their logits, `[tokens, vocabulary]` as f32.
    """

def open(model: str | PathLike[str] | None, keywords: "dict[str, Any]", progress: Any | None = None) -> Model:
    """
    Opens a model, the built-in one if none is named, and starts its thread. The keywords are those of `demask.load`.
    `progress(name, done, total)` is called with the bytes that were read and those there are.
    """

def option_fields() -> str:
    """
    Declared settings as JSON, by the struct that has them, and `bounds` of a service without sockets: for each its
    name, the kind of its values, its default and its description.
    """

def score(engine: Model, context: "tuple[str, Any]", continuation: str, how: tuple[SupportsIndex | None, SupportsFloat | SupportsIndex | None, SupportsIndex | None, SupportsIndex | None]) -> tuple[float, int, list[tuple[float | None, list[tuple[int, float]]]], int, float, float, int]:
    """
    Judges how probable a text is after a prompt. `how` is the number of draws, the scale of guidance, the seed, each with the
    library's default, and how many other tokens are reported in the place of each, if any.
    """

def tasks() -> str:
    """
    The tasks that have names, as JSON.
    """
