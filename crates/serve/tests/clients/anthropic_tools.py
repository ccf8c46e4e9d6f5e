"""Anthropic's official Python client against a model whose template writes tools and opens thoughts."""

import sys

import anthropic

from checks import KEY, MODEL, URL, equal, run

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=120)
DIGIT = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
TOOLS = [{"name": "add", "description": "Adds.", "input_schema": DIGIT}]
ASKED = [{"role": "user", "content": "q"}]
CALLS = {"tools": TOOLS, "tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}, "max_tokens": 96}
THINKS = {"extra_body": {"regex": "hm</think>\n\nyes"}, "max_tokens": 64}


def streamed(**given):
    with client.messages.stream(model=MODEL, messages=ASKED, **given) as stream:
        kinds = [event.type for event in stream]
        return kinds, stream.get_final_message()


def check_a_call():
    found = client.messages.create(model=MODEL, messages=ASKED, **CALLS)
    [call] = found.content
    equal((found.stop_reason, call.type, call.name), ("tool_use", "tool_use", "add"))
    assert call.input["a"] in (1, 2), call
    kinds, end = streamed(**CALLS)
    assert "input_json" in kinds, kinds
    equal((end.stop_reason, end.content[0].name, end.content[0].input), ("tool_use", "add", call.input))


def check_a_result():
    used = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "2"}
    turns = [*ASKED, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    found = client.messages.create(model=MODEL, messages=turns, tools=TOOLS, max_tokens=8)
    counted = client.messages.count_tokens(model=MODEL, messages=turns, tools=TOOLS).input_tokens
    equal(counted, found.usage.input_tokens + found.usage.cache_read_input_tokens)
    fewer = client.messages.count_tokens(model=MODEL, messages=ASKED, tools=TOOLS).input_tokens
    assert counted > fewer, (counted, fewer)


def check_a_thought():
    found = client.messages.create(model=MODEL, messages=ASKED, **THINKS)
    equal([block.type for block in found.content], ["thinking", "text"])
    equal((found.content[0].thinking, found.content[1].text), ("hm", "yes"))
    kinds, end = streamed(**THINKS)
    assert "thinking" in kinds and "text" in kinds, kinds
    equal([block.to_dict() for block in end.content], [block.to_dict() for block in found.content])


if __name__ == "__main__":
    run(sys.modules[__name__])
