"""How probable texts are."""

from __future__ import annotations

from typing import NamedTuple

from ._generation import Logprob

__all__ = ["Score"]


class Score(NamedTuple):
    """Log-probability of a text behind another one."""

    log_probability: float
    """Its natural-log probability; of diffusion models a lower bound, estimated from draws."""
    tokens: int
    """Tokens of the text."""
    logprobs: list[Logprob]
    """Of autoregressive models, if `top` is set: the log-probability of each token behind those before it."""
    forwards: int
    """Times that the model was asked."""
    flops: float
    """Floating point operations by formula."""
    seconds: float
    """Seconds in the network."""
    cached_tokens: int
    """Tokens of what is before it that were not computed, because an earlier request had left their K/V: of autoregressive models."""

    @property
    def per_token(self) -> float:
        """Mean log-probability of a token."""
        return self.log_probability / self.tokens
