"""Receipts as types, for those who check them. Written by tools/python/receipt.py from the library's structs."""

from __future__ import annotations

from typing import TypedDict

from ._options import Options

__all__ = [
    "ConstraintCounts",
    "ConstraintReceipt",
    "DecodingReceipt",
    "DeviceUse",
    "Guided",
    "MemoryUse",
    "Receipt",
    "Rounds",
    "Seconds",
    "Source",
]


class Source(TypedDict):
    """Origin of a constraint, as receipts name it."""

    kind: str
    """`bad_words`, `regex`, `choice`, `json_object` or `json_schema`."""
    hash: str
    """Fingerprint of the language, the tokenizer and the options."""
    narrowed: list[str]
    """What accepts less than was asked for, with its place."""
    ignored: list[str]
    """Parts that were read as a note."""


class ConstraintCounts(TypedDict):
    """Counts of a constraint's commits, changes and fallbacks in one request."""

    forced: int
    """Tokens that were committed because every answer has them."""
    changed: int
    """Tokens in whose place the network whose prediction was taken predicted another one."""
    fallbacks: int
    """Steps that took a single token because none of several still passed the rule's test."""


class ConstraintReceipt(Source, ConstraintCounts):
    """A constraint in a receipt."""

    states: int
    """States of the language."""
    classes: int
    """Classes of tokens that were found so far, by this request and others."""


class Rounds(TypedDict):
    """Forwards of a decoder that verifies drafts, by kind, and the draft tokens by their place in a forward's
    drafts."""

    verify: int
    """Forwards that verified drafts."""
    cold: int
    """Forwards that verified none: they make drafts, or settle what no draft foretold."""
    drafted: list[int]
    """Forwards that verified a draft token at each place, from the first."""
    accepted: list[int]
    """Forwards that accepted the draft token at each place, and with it all before it."""


class _Guided(TypedDict):
    """What is always there."""

    model: str
    """The guide."""
    rows: int
    """Live rows of its forwards."""
    flops: float
    """Floating point operations by formula."""
    accepted: int
    """Drafts that it agreed with."""
    rejected: int
    """Drafts that it disagreed with, the first of a step."""
    acceptance: float
    """The share of accepted ones among both."""


class Guided(_Guided, total=False):
    """Counts of a guide."""

    cached_tokens: int
    """Tokens of its prompt that were not computed, because another request had left their K/V; left out if there
    are none."""


class Seconds(TypedDict):
    """Seconds by part. Where requests share forwards, a request's part of a forward is its rows', so that the
    seconds of all requests together are the clock's."""

    load: float
    """Loading the model, before the answer."""
    model: float
    """Inside the network."""
    guide: float
    """Inside the guide."""
    first_token: float
    """Wall time from the request to the first tokens that were final, others' parts included; `wall` where there
    are none."""
    total: float
    """The whole answer, loading not included."""
    wall: float
    """Wall time from the request to its end, others' parts included: `total` if it ran alone."""
    tokens_per_second: float
    """Tokens a second of wall time: of a causal model those after the first ones, so that the time of the prompt
    does not count, of others all tokens in all of the time."""


class DeviceUse(TypedDict):
    """Bytes of a GPU's memory."""

    current: int
    """Allocated by the model and its guides when the answer was done."""
    peak: int
    """Allocated by them at most; where several networks take some, the sum of their peaks."""
    in_use: int
    """Bytes in use on the whole card when the answer was done, as its driver reports them, including those of other
    processes and of the driver itself."""


class _MemoryUse(TypedDict):
    """What is always there."""

    weights: int
    """Packed weights."""
    guide: int
    """Packed weights of all guides."""
    cache: int
    """K/V pages."""
    peak: int
    """Peak resident memory of the process."""


class MemoryUse(_MemoryUse, total=False):
    """Bytes by part."""

    device: DeviceUse
    """Device memory of the model and its guides; left out where the processor computes."""


class _DecodingReceipt(TypedDict):
    """What is always there."""

    decoder: str
    """The decoder in canonical text, with the parameters that it chose."""
    cache: str
    """The cache policy in canonical text."""
    remasking: str
    """Quantity that ranked predictions."""
    schedule: str
    """Rule by which steps shared the masks."""
    steps: int
    """Steps over all blocks, as resolved."""
    block_length: int
    """Positions of a block, as resolved."""
    exactness: str
    """Claim about the tokens: `reference`, `lossless` or `approximate`."""
    against: str | None
    """The run that a lossless result equals."""
    seed: int
    """Key of all randomness."""
    nfe: int
    """Forwards as the method's paper counts them."""
    forwards: int
    """Forwards that were really run, each piece of a long prompt one."""
    generated_tokens: int
    """Tokens of the answer."""
    tokens_per_nfe: float
    """Tokens of the answer for each NFE; 0 before the first."""
    rows: int
    """Live rows of all forwards, lanes and sequences."""
    computed_rows: int
    """Rows that ran attention and MLP."""
    head_rows: int
    """Rows that the head answered."""
    flops: float
    """Floating point operations by formula."""


class DecodingReceipt(_DecodingReceipt, total=False):
    """Methods, claims and counts of one session. The program that runs the model adds seconds and memory."""

    constraint: ConstraintReceipt
    """The constraint that claims are under; absent without one."""
    given_up: int
    """Masks among the positions to decode that were given up when the time was over, or the memory; none if neither
    was."""
    out_of_memory: bool
    """Records whether they were given up for want of memory; absent if they were not."""
    preempted: int
    """Times that other requests needed its K/V memory, so that it waited; absent if there are none."""
    recomputed_rows: int
    """Rows that were computed again after that, which no other count has; absent if there are none."""
    cached_tokens: int
    """Tokens of the prompt that were not computed, because another request had left their K/V; absent if there are
    none."""
    acceptance: list[int]
    """Forwards with drafts by the number of draft tokens that each accepted, from 0; empty without drafts."""
    rounds: Rounds
    """Rounds of a decoder that verifies drafts in the model's own forwards; absent if it verified none."""
    replaced: int
    """Tokens that took the place of others, and tokens that were taken back; absent if there are none."""


class _Receipt(DecodingReceipt):
    """What is always there."""

    version: str
    """Version of the program."""
    model: str
    """The model."""
    device: str
    """Device, tier, threads, element type."""
    settings: Options
    """Options of the answer that the other fields do not have, each with its value: with these fields enough to
    decode alike. `steps` is among them only where a number was set."""
    guide_nfe: int
    """Forwards of the guide."""
    seconds: Seconds
    """Time of each part."""
    memory: MemoryUse
    """Memory of each part."""


class Receipt(_Receipt, total=False):
    """Methods, counts, time and memory of one answer."""

    more: str
    """How to get a longer answer, if its length, a deadline or memory cut this one; names of options stand in
    backticks."""
    note: str
    """Reason why the method wins little on this model, if it is one that it was not trained for, or why a canvas of
    this length may have a wrong answer."""
    guide: Guided
    """Counts of the guide, if there was one."""
