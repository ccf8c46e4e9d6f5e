"""outlines against a server, as OpenAI's and as vLLM's: schemas, expressions and choices."""

import json
import re
import sys
from typing import Literal

import openai
import outlines
import pydantic

from checks import KEY, MODEL, QUESTION, URL, equal, run

CLIENT = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=120)
KINDS = [outlines.from_openai(CLIENT, MODEL), outlines.from_vllm(CLIENT, MODEL)]


class Count(pydantic.BaseModel):
    pears: int = pydantic.Field(ge=0, le=99)
    sure: bool
    who: Literal["Ada", "Ben"]


def check_schemas():
    for model in KINDS:
        Count.model_validate_json(model(QUESTION, Count, max_tokens=48, seed=7))
        schema = outlines.json_schema(json.dumps(Count.model_json_schema()))
        Count.model_validate_json(model(QUESTION, schema, max_tokens=48, seed=7))


def check_streams():
    for model in KINDS:
        whole = model(QUESTION, Count, max_tokens=48, seed=7)
        equal("".join(model.stream(QUESTION, Count, max_tokens=48, seed=7)), whole)


def check_expressions_and_choices():
    model = KINDS[1]
    found = model(QUESTION, outlines.regex(r"The final answer is [0-9]{1,3}\."), max_tokens=32, seed=7)
    assert re.fullmatch(r"The final answer is [0-9]{1,3}\.", found), found
    found = model(QUESTION, Literal["seven", "eight"], max_tokens=8, seed=7)
    assert found in ("seven", "eight"), found
    assert model(QUESTION, int, max_tokens=8, seed=7).lstrip("+-").isdecimal()


if __name__ == "__main__":
    run(sys.modules[__name__])
