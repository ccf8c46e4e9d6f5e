"""Conversations, message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._generation import Generation
from ._model import Model
from ._stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import Options

__all__ = ["Chat"]


class Chat:
    """A conversation with a model. Options that are given here hold for every message, those of a message for it alone.

    >>> chat = demask.Chat(model, system="Be brief.", max_tokens=64)
    >>> print(chat.say("Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?"))
    >>> for update in chat.stream("And if Ben takes 2 of them back?"): print(update, end="")
    >>> chat.reset()  # forgets all but the system message
    """

    __slots__ = ("_kept", "messages", "model", "options")

    model: Model
    messages: list[dict[str, str]]
    """The messages so far, the newest last."""
    options: Options

    def __init__(self, model: Model, system: str | None = None, **options: Unpack[Options]) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model is of type {type(model).__name__}, expected what demask.load or demask.demo returns")
        self.model = model
        self.options = options
        self.messages = [] if system is None else [{"role": "system", "content": system}]
        self._kept = len(self.messages)

    def say(self, message: str, **options: Unpack[Options]) -> Generation:
        """Generates the answer to a message. A message whose answer fails is not part of the conversation.

        Raises what `Model.generate` does.
        """
        said = [*self.messages, {"role": "user", "content": message}]
        answer = self.model.generate(said, **self._merged(options))
        self._hear(message, answer)
        return answer

    def stream(self, message: str, **options: Unpack[Options]) -> Stream:
        """Streams the answer to a message. It is part of the conversation once the stream has come to its end."""
        said = [*self.messages, {"role": "user", "content": message}]
        stream = self.model.stream(said, **self._merged(options))
        stream.then(lambda answer: self._hear(message, answer))
        return stream

    def reset(self) -> None:
        """Forgets everything but the system message."""
        del self.messages[self._kept :]

    def _merged(self, options: Options) -> Options:
        merged = self.options.copy()
        merged.update(options)
        return merged

    def _hear(self, message: str, answer: Generation) -> None:
        self.messages += [{"role": "user", "content": message}, {"role": "assistant", "content": str(answer)}]

    def __repr__(self) -> str:
        return f"<demask.Chat with {self.model.name}, {len(self.messages)} messages>"
