"""Pictures for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._generation import Generation


def generation(answer: Generation) -> str:
    """Returns an answer's canvas as HTML."""
    return f"<pre>{html.escape(str(answer))}</pre>"
