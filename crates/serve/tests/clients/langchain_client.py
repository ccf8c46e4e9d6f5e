"""LangChain's classes against a server."""

import sys
from typing import Literal

import pydantic
from langchain_openai import ChatOpenAI, OpenAI

from checks import KEY, MODEL, QUESTION, URL, equal, run


def chat(**given):
    return ChatOpenAI(base_url=f"{URL}/v1", api_key=KEY, model=MODEL, seed=7, max_retries=0, max_tokens=32, **given)


def check_invoke():
    found = chat().invoke(QUESTION)
    assert found.content and found.response_metadata["finish_reason"] in ("stop", "length")
    assert found.usage_metadata["output_tokens"] > 0


def check_stream():
    whole = chat().invoke(QUESTION).content
    equal("".join(chunk.content for chunk in chat().stream(QUESTION)), whole)
    chunks = list(chat(stream_usage=True).stream(QUESTION))
    usages = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert usages and usages[-1]["output_tokens"] > 0


def check_frames_are_ignored():
    whole = chat().invoke(QUESTION).content
    framed = chat(extra_body={"diffusion": {"frames": "commits"}})
    equal("".join(chunk.content for chunk in framed.stream(QUESTION)), whole)


def check_batch_and_logprobs():
    equal(len(chat().batch([QUESTION, "Ben has 2 apples."])), 2)
    found = chat().bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
    assert found.response_metadata["logprobs"]["content"]


def check_conversation():
    talk = [("system", "Answer briefly."), ("human", QUESTION), ("ai", "7"), ("human", "And one more?")]
    assert isinstance(chat().invoke(talk).content, str)


class Count(pydantic.BaseModel):
    """Pears in the end."""

    pears: int = pydantic.Field(ge=0, le=99)
    sure: bool
    who: Literal["Ada", "Ben"]


def check_structured_output():
    model = ChatOpenAI(base_url=f"{URL}/v1", api_key=KEY, model=MODEL, seed=7, max_retries=0, max_tokens=48)
    for given in ({}, {"method": "json_schema", "strict": True}, {"include_raw": True}):
        found = model.with_structured_output(Count, **given).invoke(QUESTION)
        assert isinstance(found["parsed"] if "include_raw" in given else found, Count), (given, found)
    schema = model.with_structured_output(Count.model_json_schema(), method="json_schema").invoke(QUESTION)
    Count.model_validate(schema)
    assert isinstance(model.with_structured_output(None, method="json_mode").invoke(QUESTION), dict)


def check_structured_streams():
    model = ChatOpenAI(base_url=f"{URL}/v1", api_key=KEY, model=MODEL, seed=7, max_retries=0, max_tokens=48)
    structured = model.with_structured_output(Count)
    *_, last = structured.stream(QUESTION)
    equal(last, structured.invoke(QUESTION))


def check_completions():
    plain = OpenAI(base_url=f"{URL}/v1", api_key=KEY, model=MODEL, max_retries=0, max_tokens=16, temperature=0, seed=7)
    equal("".join(plain.stream("Ada has")), plain.invoke("Ada has"))


if __name__ == "__main__":
    run(sys.modules[__name__])
