"""How two benchmark programs read streams, written anew by their rules: vLLM's `bench serve`, and guidellm.

Both are too heavy to install for a check (one wants vLLM, the other torch), and both read streams by hand: what they
would miss or stumble over is seen here at once. The standard library alone.
"""

import codecs
import json
import sys
import urllib.request

from checks import KEY, MODEL, QUESTION, URL, equal, run


def opened(path, body=None, headers=()):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", **dict(headers)}
    return urllib.request.urlopen(urllib.request.Request(URL + path, data, headers), timeout=120)


def messages(response):
    """What vLLM's handler takes for messages: pieces between empty lines, torn where the network tears them."""
    left, decoder = "", codecs.getincrementaldecoder("utf-8")()
    while piece := response.read1(64):
        left += decoder.decode(piece)
        while "\n\n" in left:
            message, left = left.split("\n\n", 1)
            yield message.strip()
    equal(left.strip(), "", "what is left behind the last message")


def vllm(path, body):
    """Text, times of text and usage, as `vllm bench serve` finds them; a message that it cannot read is an error."""
    texts, token_times, usage, done = [], 0, None, False
    with opened(path, body, {"x-request-id": "bench-0"}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for message in messages(response):
            # A comment glued to data would take the data with it.
            if not message or message.startswith(":"):
                continue
            assert message.startswith("data: "), message
            data = message.removeprefix("data: ")
            if data == "[DONE]":
                done = True
                continue
            assert "\n" not in data, f"more than one line in a message: {data}"
            found = json.loads(data)
            if choices := found.get("choices"):
                # Any choice counts as a token's time, the first as the time to the first token.
                text = choices[0]["delta"].get("content") if "delta" in choices[0] else choices[0]["text"]
                if token_times == 0:
                    assert text, f"the first chunk with a choice has no text: {data}"
                token_times += 1
                texts.append(text or "")
            elif found.get("usage"):
                usage = found["usage"]
    assert done, "no [DONE]"
    return "".join(texts), token_times, usage


VLLM_CHAT = {
    "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
    "max_completion_tokens": 32,
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.0,
    "repetition_penalty": 1.0,
    "logprobs": None,
    "ignore_eos": True,
}


def check_vllm_chat():
    text, times, usage = vllm("/v1/chat/completions", {"model": MODEL, **VLLM_CHAT})
    assert text and times > 1
    equal(usage["completion_tokens"], 32, "tokens with ignore_eos")


def check_vllm_completions():
    body = {
        "model": MODEL,
        "prompt": QUESTION,
        "max_tokens": 16,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "repetition_penalty": 1.0,
        "logprobs": None,
        "ignore_eos": True,
    }
    text, _, usage = vllm("/v1/completions", body)
    assert text and usage["completion_tokens"] == 16, usage


def check_vllm_reads_frames():
    """Frames are chunks of their own; their texts stay whole."""
    plain, _, _ = vllm("/v1/chat/completions", {"model": MODEL, **VLLM_CHAT})
    with opened("/v1/chat/completions", {"model": MODEL, **VLLM_CHAT, "diffusion": {"frames": "commits"}}) as response:
        found = [json.loads(line[6:]) for line in response if line.startswith(b"data: {")]
    texts = [choice["delta"].get("content") or "" for chunk in found for choice in chunk["choices"]]
    equal("".join(texts), plain)


def guidellm(path, body):
    """Texts and usages, as guidellm finds them line by line; error chunks raise."""
    texts, usages, done = [], [], False
    with opened(path, body) as response:
        for line in response:
            line = line.decode().strip()
            if not line or not line.startswith("data:"):
                continue
            data = line.removeprefix("data:").strip()
            if data == "[DONE]":
                done = True
                break
            found = json.loads(data)
            assert "error" not in found, data
            usages.append(found.get("usage"))
            for choice in found.get("choices", []):
                texts.append(choice.get("delta", {}).get("content") or choice.get("text") or "")
    assert done, "no [DONE]"
    return "".join(texts), usages


def check_guidellm_starts():
    equal(opened("/health").status, 200)
    equal(json.load(opened("/v1/models"))["data"][0]["id"], MODEL)


def check_guidellm_chat():
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_completion_tokens": 16,
        "max_tokens": 16,
        "stop": None,
        "ignore_eos": True,
    }
    text, usages = guidellm("/v1/chat/completions", body)
    assert text
    equal(usages[-1]["completion_tokens"], 16)
    counts = [usage["completion_tokens"] for usage in usages if usage]
    equal(counts, sorted(counts), "counts of tokens, which only grow,")
    equal(len(counts), len(usages), "chunks with usage, which was asked for continuously,")


def check_guidellm_completions():
    body = {
        "model": MODEL,
        "prompt": QUESTION,
        "stream": True,
        "max_tokens": 16,
        "stop": None,
        "ignore_eos": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    text, usages = guidellm("/v1/completions", body)
    assert text and usages[-1]["completion_tokens"] == 16


def check_the_bytes_of_a_stream():
    """One line of data a message, LF only, no names, no ids; [DONE] at the end and nothing behind it."""
    with opened("/v1/chat/completions", {"model": MODEL, **VLLM_CHAT}) as response:
        all_of_it = response.read()
    assert all_of_it.endswith(b"data: [DONE]\n\n") and all_of_it.count(b"[DONE]") == 1, all_of_it[-80:]
    assert b"\r" not in all_of_it
    for message in all_of_it.decode().split("\n\n")[:-1]:
        assert message == ":" or (message.startswith("data: ") and "\n" not in message), message


if __name__ == "__main__":
    run(sys.modules[__name__])
