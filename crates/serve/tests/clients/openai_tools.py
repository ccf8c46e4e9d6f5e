"""OpenAI's official Python client against a model whose template writes tools and opens thoughts: the interface of responses."""

import json
import sys

import openai

from checks import KEY, MODEL, URL, equal, run

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=120)
DIGIT = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
TOOLS = [{"type": "function", "name": "add", "description": "Adds.", "parameters": DIGIT, "strict": True}]
CALLS = {"tools": TOOLS, "tool_choice": "required", "max_output_tokens": 96}
THINKS = {"extra_body": {"regex": "hm</think>\n\nyes"}, "max_output_tokens": 64}


def streamed(**given):
    with client.responses.stream(model=MODEL, input="q", **given) as stream:
        kinds = [event.type for event in stream]
        return kinds, stream.get_final_response()


def check_a_call():
    found = client.responses.create(model=MODEL, input="q", **CALLS)
    [call] = found.output
    equal((found.status, call.type, call.name), ("completed", "function_call", "add"))
    assert json.loads(call.arguments)["a"] in (1, 2), call
    kinds, end = streamed(**CALLS)
    assert "response.function_call_arguments.delta" in kinds and "response.function_call_arguments.done" in kinds, kinds
    equal((end.output[0].name, end.output[0].arguments), ("add", call.arguments))


def check_a_result():
    call = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a": 1}'}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "2"}
    turns = [{"role": "user", "content": "q"}, call, result]
    found = client.responses.create(model=MODEL, input=turns, tools=TOOLS, max_output_tokens=8)
    fewer = client.responses.create(model=MODEL, input=turns[:1], tools=TOOLS, max_output_tokens=8)
    assert found.usage.input_tokens > fewer.usage.input_tokens


def check_a_thought():
    found = client.responses.create(model=MODEL, input="q", **THINKS)
    equal([item.type for item in found.output], ["reasoning", "message"])
    equal((found.output[0].content[0].text, found.output_text), ("hm", "yes"))
    kinds, end = streamed(**THINKS)
    assert "response.reasoning_text.delta" in kinds and "response.output_text.delta" in kinds, kinds
    equal(end.output_text, "yes")
    again = client.responses.create(
        model=MODEL, input=[{"role": "user", "content": "q"}, *[item.to_dict() for item in found.output], {"role": "user", "content": "r"}]
    )
    assert again.usage.input_tokens > found.usage.input_tokens


if __name__ == "__main__":
    run(sys.modules[__name__])
