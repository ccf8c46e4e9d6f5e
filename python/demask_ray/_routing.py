"""Routing by prefix: equal beginnings of prompts go to one replica, which has their K and V already."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from demask_ray._model import needs_ray

needs_ray("serve")

from ray.serve.request_router import FIFOMixin, PendingRequest, RequestRouter, RunningReplica  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

# Characters of a prompt that decide where it goes: the longest beginning that all turns of a conversation share is its
# first ones, and shorter prompts have too few whole blocks for their K and V to be worth anything.
PREFIX = 256


def prefix_of(body: bytes) -> str | None:
    """Returns a key that is equal for the requests whose prompts begin alike, and none where there is no prompt.

    What tenants keep apart (`cache_salt`) has keys of its own. A body that is not understood is the engine's to refuse.
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(asked, Mapping):
        return None
    begins = _beginning(asked)
    if begins is None:
        return None
    salt = asked.get("cache_salt")
    key = json.dumps([begins[:PREFIX], salt if isinstance(salt, str) else None])
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def _beginning(asked: Mapping[str, Any]) -> str | None:
    """Returns the text that a prompt begins with, or a text that stands for it."""
    messages, prompt = asked.get("messages"), asked.get("prompt")
    if isinstance(messages, list):
        text = ""
        for message in messages:
            text += json.dumps(message, sort_keys=True, ensure_ascii=False)
            if len(text) >= PREFIX:
                break
        return text
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    return json.dumps(prompt[:PREFIX]) if isinstance(prompt, list) else None


def ranked(key: str, names: Sequence[str]) -> list[int]:
    """Returns places of `names`, the one that a key belongs to first.

    Each name is weighed with the key alone (rendezvous hashing): where a name comes or goes, only its own keys move.
    """

    def weight(place: int) -> bytes:
        return hashlib.blake2b(f"{key}\0{names[place]}".encode(), digest_size=8).digest()

    return sorted(range(len(names)), key=weight, reverse=True)


def chosen(order: Sequence[int], lengths: Sequence[int], slack: int) -> list[int]:
    """Returns `order` with those behind the others whose queue is longer by more than `slack` than the shortest one."""
    most = min(lengths, default=0) + slack
    return [place for place in order if lengths[place] <= most] + [place for place in order if lengths[place] > most]


def _two(replicas: list[RunningReplica]) -> list[RunningReplica]:
    return random.sample(replicas, min(2, len(replicas)))


class PrefixRouter(FIFOMixin, RequestRouter):
    """Sends requests of one key (the handle's `session_id`) to one replica, unless it is much fuller than the others.

    `slack` (keyword of the router's configuration, 8 if not given) is by how many requests it may be fuller. Requests
    without a key go to the emptier of two replicas, wherever these are: Ray's own router fills the replica of its own node
    first, up to the last place, while the others' forwards go half empty.
    """

    slack = 8

    def initialize_state(self, **keywords: Any) -> None:
        """Takes the router's keywords."""
        self.slack = int(keywords.get("slack", self.slack))

    def _get_pending_request_matching_metadata(self, request_metadata: Any = None) -> PendingRequest | None:
        """Hands a replica to the request that it was chosen for, where first come, first served would mix up a burst."""
        found: PendingRequest | None = self._get_pending_request_matching_internal_request_id(request_metadata)
        return found

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Returns the replicas in the order in which they are tried."""
        if pending_request is None:
            return [_two(candidate_replicas)]
        # Between two rounds of full replicas the router rests.
        pending_request.routing_context.should_backoff = True
        key = pending_request.metadata.session_id
        if not key:
            return [_two(candidate_replicas)]
        cache = self.replica_queue_len_cache
        lengths = [cache.get(replica.replica_id) or 0 for replica in candidate_replicas]
        order = ranked(key, [replica.replica_id.unique_id for replica in candidate_replicas])
        return [[candidate_replicas[place]] for place in chosen(order, lengths, self.slack)]
