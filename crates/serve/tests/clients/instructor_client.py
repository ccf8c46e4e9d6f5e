"""instructor against a server: objects of a class, whole and as they grow."""

import sys
from typing import Literal

import instructor
import openai
import pydantic
from instructor.core import InstructorRetryException

from checks import KEY, MODEL, QUESTION, URL, equal, run


class Count(pydantic.BaseModel):
    pears: int = pydantic.Field(ge=0, le=99)
    sure: bool
    who: Literal["Ada", "Ben"]


def client(mode):
    return instructor.from_openai(openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=120), mode=mode)


def create(mode, **given):
    messages = [{"role": "user", "content": QUESTION}]
    asked = {"model": MODEL, "messages": messages, "max_tokens": 48, "seed": 7, "max_retries": 0, "response_model": Count}
    return client(mode).chat.completions.create(**{**asked, **given})


def check_schema():
    found = create(instructor.Mode.JSON_SCHEMA)
    assert isinstance(found, Count), found
    equal(create(instructor.Mode.JSON_SCHEMA).model_dump(), found.model_dump(), "the same seed's object")


def check_lists():
    class Two(pydantic.BaseModel):
        names: list[Literal["Ada", "Ben"]] = pydantic.Field(min_length=2, max_length=2)

    equal(len(create(instructor.Mode.JSON_SCHEMA, response_model=Two).names), 2)


def check_stream():
    *_, last = create(instructor.Mode.JSON_SCHEMA, response_model=instructor.Partial[Count], stream=True)
    equal(last.model_dump(), create(instructor.Mode.JSON_SCHEMA).model_dump())


def check_tools():
    """Its usual way: a model whose template writes tools calls one, any other is refused with the field."""
    try:
        assert isinstance(create(instructor.Mode.TOOLS), Count)
    except InstructorRetryException as error:
        assert "the model's template writes none" in str(error), error


if __name__ == "__main__":
    run(sys.modules[__name__])
