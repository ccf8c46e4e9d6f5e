//! Interfaces beside OpenAI's first: Anthropic's messages and OpenAI's responses. The text is the chat's, whole and in pieces.

use serde_json::{Value, json};

use demask_serve::Service;

use crate::{
    common::{Kind, json as answer, made, post, read, shared, stream},
    contract::with,
    symptoms::with_template,
};

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

fn chat(more: &Value) -> Value {
    let body = json!({"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 32, "seed": 7});
    made(post(&shared(Kind::Llada).service, "/v1/chat/completions", &with(body, more)))
}

fn text(chat: &Value) -> &str {
    chat["choices"][0]["message"]["content"].as_str().unwrap()
}

/// Names and contents of a stream of named events; each content has the name of its event.
fn named(path: &str, body: &Value) -> Vec<(String, Value)> {
    named_of(&shared(Kind::Llada).service, path, body)
}

fn named_of(service: &Service, path: &str, body: &Value) -> Vec<(String, Value)> {
    let body = with(body.clone(), &json!({"stream": true}));
    let read = read(&mut stream(post(service, path, &body)));
    let events = read.split("\n\n").filter(|event| !event.is_empty() && *event != ":");
    let parts = events.map(|event| {
        let (name, content) = event.split_once('\n').unwrap();
        let (name, content) = (name.strip_prefix("event: ").unwrap(), content.strip_prefix("data: ").unwrap());
        let content: Value = serde_json::from_str(content).unwrap();
        assert_eq!(content["type"], name);
        (name.to_owned(), content)
    });
    parts.collect()
}

fn of<'v>(events: &'v [(String, Value)], name: &str) -> Vec<&'v Value> {
    events.iter().filter(|(event, _)| event == name).map(|(_, content)| content).collect()
}

fn message() -> Value {
    json!({"model": "m", "max_tokens": 32, "seed": 7, "messages": [{"role": "user", "content": QUESTION}]})
}

#[test]
fn messages_are_those_of_the_chat() {
    let chat = chat(&json!({}));
    let found = made(post(&shared(Kind::Llada).service, "/v1/messages", &message()));
    assert_eq!(found["content"], json!([{"type": "text", "text": text(&chat)}]));
    assert_eq!(
        (&found["type"], &found["role"], &found["stop_reason"]),
        (&json!("message"), &json!("assistant"), &json!("end_turn"))
    );
    let usage = &found["usage"];
    let read = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(
        (json!(read), &usage["output_tokens"]),
        (chat["usage"]["prompt_tokens"].clone(), &chat["usage"]["completion_tokens"])
    );
    // In pieces it is the same.
    let events = named("/v1/messages", &message());
    let order: Vec<&str> =
        events.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "content_block_delta").collect();
    let expected = ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"];
    assert_eq!(order, expected);
    let pieces = of(&events, "content_block_delta");
    let joined: String = pieces.iter().map(|piece| piece["delta"]["text"].as_str().unwrap()).collect();
    assert_eq!(joined, text(&chat));
    let end = of(&events, "message_delta")[0];
    assert_eq!(
        (&end["delta"]["stop_reason"], &end["usage"]["output_tokens"]),
        (&json!("end_turn"), &usage["output_tokens"])
    );
}

#[test]
fn a_stop_sequence_and_a_length_end_a_message() {
    let service = &shared(Kind::Llada).service;
    let stopped = made(post(service, "/v1/messages", &with(message(), &json!({"stop_sequences": ["final"]}))));
    assert_eq!((&stopped["stop_reason"], &stopped["stop_sequence"]), (&json!("stop_sequence"), &json!("final")));
    let short = made(post(service, "/v1/messages", &with(message(), &json!({"max_tokens": 2}))));
    assert_eq!((&short["stop_reason"], &short["usage"]["output_tokens"]), (&json!("max_tokens"), &json!(2)));
}

#[test]
fn the_last_turn_of_an_assistant_begins_the_answer() {
    let service = &shared(Kind::Llada).service;
    let turns = json!([{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "3 + 4 = 7."}]);
    let count = |turns: &Value| {
        let body = json!({"model": "m", "messages": turns});
        made(post(service, "/v1/messages/count_tokens", &body))["input_tokens"].as_u64().unwrap()
    };
    let without = count(&json!([turns[0]]));
    let words = made(post(service, "/tokenize", &json!({"prompt": "3 + 4 = 7.", "add_special_tokens": false})));
    assert_eq!(count(&turns), without + words["count"].as_u64().unwrap());
    let body = json!({"model": "m", "max_tokens": 32, "messages": turns});
    let found = made(post(service, "/v1/messages", &body));
    // What was there already is no part of what is returned.
    assert!(!found["content"][0]["text"].as_str().unwrap().starts_with("3 + 4 = 7."), "{found}");
    let body = json!({"messages": turns, "max_tokens": 32, "continue_final_message": true});
    let chat = made(post(service, "/v1/chat/completions", &body));
    assert_eq!(found["content"][0]["text"], text(&chat));
}

#[test]
fn responses_are_those_of_the_chat() {
    let chat = chat(&json!({}));
    let body = json!({"input": QUESTION, "max_output_tokens": 32, "seed": 7, "metadata": {"a": "b"}});
    let found = made(post(&shared(Kind::Llada).service, "/v1/responses", &body));
    assert_eq!((&found["object"], &found["status"]), (&json!("response"), &json!("completed")));
    assert_eq!(found["output"][0]["content"][0]["text"], text(&chat));
    assert_eq!(
        (&found["metadata"], &found["max_output_tokens"], &found["store"]),
        (&json!({"a": "b"}), &json!(32), &json!(false))
    );
    assert_eq!(found["usage"]["total_tokens"], chat["usage"]["total_tokens"]);
    let events = named("/v1/responses", &body);
    let numbers: Vec<u64> = events.iter().map(|(_, content)| content["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let pieces = of(&events, "response.output_text.delta");
    let joined: String = pieces.iter().map(|piece| piece["delta"].as_str().unwrap()).collect();
    assert_eq!(joined, text(&chat));
    assert_eq!(of(&events, "response.output_text.done")[0]["text"], text(&chat));
    let (name, end) = events.last().unwrap();
    assert_eq!(
        (name.as_str(), &end["response"]["output"][0]["content"]),
        ("response.completed", &found["output"][0]["content"])
    );
    // Instructions and items are the system's and the others' messages.
    let items = json!([{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]);
    let cut = json!({"input": items, "instructions": "Be brief.", "max_output_tokens": 2});
    let found = made(post(&shared(Kind::Llada).service, "/v1/responses", &cut));
    assert_eq!(
        (&found["status"], &found["incomplete_details"]),
        (&json!("incomplete"), &json!({"reason": "max_output_tokens"}))
    );
}

#[test]
fn what_these_interfaces_cannot_do_is_refused_by_name() {
    let service = &shared(Kind::Llada).service;
    for (path, body, param, words) in [
        (
            "/v1/responses",
            json!({"input": "a", "previous_response_id": "resp_1"}),
            "previous_response_id",
            "none is stored here",
        ),
        ("/v1/responses", json!({"input": "a", "store": true}), "store", "does not implement"),
        ("/v1/responses", json!({"input": [{"type": "image"}]}), "input[0].type", "expected message"),
        ("/v1/responses", json!({"input": []}), "input", "expected 1 to"),
        ("/v1/responses", json!({}), "input", "missing"),
        ("/v1/responses", json!({"input": "a", "diffusion": {"receipt": true}}), "diffusion.receipt", "no place"),
        (
            "/v1/responses",
            json!({"input": "a", "stream": true, "diffusion": {"frames": "canvas"}}),
            "diffusion.frames",
            "no place",
        ),
        ("/v1/responses", json!({"input": "a", "max_output_tokens": 100_000_000}), "max_output_tokens", "lower it"),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "a"}], "continue_final_message": true}),
            "messages",
            "not the assistant's",
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": false}),
            "add_generation_prompt",
            "no turn to answer in",
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"nothing": 1}}),
            "chat_template_kwargs.nothing",
            "no variable",
        ),
    ] {
        let (status, found) = answer(post(service, path, &body));
        assert_eq!((status, &found["error"]["param"]), (400, &json!(param)), "{found}");
        assert!(found["error"]["message"].as_str().unwrap().contains(words), "{found}");
    }
    for (body, words) in [
        (json!({"model": "m", "messages": [{"role": "user", "content": "a"}]}), "`max_tokens` is missing"),
        (
            json!({"model": "m", "max_tokens": 4, "messages": [{"role": "system", "content": "a"}]}),
            "expected user or assistant",
        ),
        (
            json!({"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": [{"type": "image"}]}]}),
            "a part of type \"image\"",
        ),
        (
            json!({"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "a"}], "thinking": {"type": "enabled", "budget_tokens": 1024}}),
            "thinking",
        ),
    ] {
        let (status, found) = answer(post(service, "/v1/messages", &body));
        assert_eq!(
            (status, &found["type"], &found["error"]["type"]),
            (400, &json!("error"), &json!("invalid_request_error")),
            "{found}"
        );
        assert!(found["error"]["message"].as_str().unwrap().contains(words), "{found}");
    }
}

/// A template that writes tools, calls, results and thoughts, and opens a thought.
const TEMPLATE: &str = "{% for t in tools or [] %}<tool_call>{{ t.function.name }}{{ t.function.description or '' }}{% endfor %}\
    {% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}{{ m.reasoning_content }}</think>{% endif %}\
    {% for c in m.tool_calls or [] %}{{ c.function.name }}:{{ c.function.arguments.a + 1 }}{% endfor %}{{ m.content }}\
    {% endfor %}{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}";

fn digit() -> Value {
    json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]})
}

/// The same conversation with a thought, a call and its result, in the form of each interface.
fn conversations() -> [(&'static str, Value); 3] {
    let chat = json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls":
            [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 6}"}}]},
        {"role": "tool", "content": "7", "tool_call_id": "c1"},
        {"role": "user", "content": "r"},
    ]);
    let messages = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "so"},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 6}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "7"}]},
            {"type": "text", "text": "r"}]},
    ]);
    let items = json!([
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{\"a\": 6}"},
        {"type": "function_call_output", "call_id": "c1", "output": "7"},
        {"role": "user", "content": "r"},
    ]);
    let function = json!({"name": "add", "description": "d", "parameters": digit()});
    [
        (
            "/v1/chat/completions",
            json!({"messages": chat, "max_tokens": 96, "tools": [{"type": "function", "function": function}]}),
        ),
        (
            "/v1/messages",
            json!({"model": "m", "system": "s", "messages": messages, "max_tokens": 96,
            "tools": [{"name": "add", "description": "d", "input_schema": digit()}]}),
        ),
        (
            "/v1/responses",
            json!({"instructions": "s", "input": items, "max_output_tokens": 96,
            "tools": [with(function, &json!({"type": "function", "strict": true}))]}),
        ),
    ]
}

#[test]
fn a_conversation_with_calls_is_the_same_prompt_in_every_interface() {
    let served = with_template("dialects_history", TEMPLATE);
    let counted = conversations().map(|(path, body)| {
        let usage = made(post(&served.service, path, &body))["usage"].clone();
        let of = |name: &str| usage[name].as_u64().unwrap_or(0);
        of("prompt_tokens") + of("input_tokens") + of("cache_read_input_tokens")
    });
    assert!(counted[0] == counted[1] && counted[0] == counted[2], "{counted:?}");
    let [_, (_, messages), _] = conversations();
    let count = json!({"model": "m", "system": "s", "messages": messages["messages"], "tools": messages["tools"]});
    assert_eq!(made(post(&served.service, "/v1/messages/count_tokens", &count))["input_tokens"], counted[0]);
}

#[test]
fn a_call_that_is_asked_for_is_a_tool_use_whole_and_in_pieces() {
    let served = with_template("dialects_tool_use", TEMPLATE);
    let [_, (path, body), _] = conversations();
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "add"})] {
        let body = with(body.clone(), &json!({"tool_choice": choice, "thinking": {"type": "disabled"}, "seed": 3}));
        let found = made(post(&served.service, path, &body));
        assert_eq!(found["stop_reason"], "tool_use", "{found}");
        let [call] = &found["content"].as_array().unwrap()[..] else { panic!("{found}") };
        assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("add")));
        assert!(
            call["id"].as_str().unwrap().starts_with("toolu_") && call["input"]["a"].as_u64().unwrap() <= 2,
            "{call}"
        );
        let events = named_of(&served.service, path, &body);
        let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ];
        assert_eq!(names, expected);
        let begun = &events[1].1["content_block"];
        assert_eq!((&begun["type"], &begun["input"]), (&json!("tool_use"), &json!({})));
        let input: Value = serde_json::from_str(events[2].1["delta"]["partial_json"].as_str().unwrap()).unwrap();
        assert_eq!((&input, &events[4].1["delta"]["stop_reason"]), (&call["input"], &json!("tool_use")));
    }
}

#[test]
fn a_call_that_is_asked_for_is_a_function_call_whole_and_in_pieces() {
    let served = with_template("dialects_function_call", TEMPLATE);
    let [_, _, (path, body)] = conversations();
    for choice in [json!("required"), json!({"type": "function", "name": "add"})] {
        let body = with(body.clone(), &json!({"tool_choice": choice, "seed": 3}));
        let found = made(post(&served.service, path, &body));
        assert_eq!((&found["status"], &found["tool_choice"]), (&json!("completed"), &choice), "{found}");
        let call = found["output"].as_array().unwrap().last().unwrap();
        assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("add")), "{found}");
        assert!(
            call["call_id"].as_str().unwrap().starts_with("call_") && call["id"].as_str().unwrap().starts_with("fc_")
        );
        let events = named_of(&served.service, path, &body);
        let done = of(&events, "response.function_call_arguments.done");
        let delta = of(&events, "response.function_call_arguments.delta");
        assert_eq!((done.len(), &done[0]["arguments"]), (1, &call["arguments"]));
        assert_eq!((&delta[0]["delta"], &delta[0]["item_id"]), (&call["arguments"], &done[0]["item_id"]));
        let added = of(&events, "response.output_item.added");
        let over = of(&events, "response.output_item.done");
        assert_eq!((added.len(), &added.last().unwrap()["item"]["arguments"]), (over.len(), &json!("")));
        let (name, end) = events.last().unwrap();
        let output: Vec<&Value> = over.iter().map(|done| &done["item"]).collect();
        assert_eq!((name.as_str(), &end["response"]["output"]), ("response.completed", &json!(output)));
    }
}

#[test]
fn a_thought_is_a_block_of_its_own_whole_and_in_pieces() {
    let served = with_template("dialects_thought", TEMPLATE);
    let form = json!({"regex": "hm</think>\n\nyes", "seed": 1});
    let body = with(json!({"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "q"}]}), &form);
    let found = made(post(&served.service, "/v1/messages", &body));
    let blocks = json!([{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "yes"}]);
    assert_eq!(found["content"], blocks);
    let events = named_of(&served.service, "/v1/messages", &body);
    let said = |name: &str| -> String {
        of(&events, "content_block_delta").iter().filter_map(|event| event["delta"][name].as_str()).collect()
    };
    assert_eq!((said("thinking"), said("text")), ("hm".to_owned(), "yes".to_owned()));
    let opened = of(&events, "content_block_start");
    let kinds: Vec<(&Value, &Value)> =
        opened.iter().map(|event| (&event["index"], &event["content_block"]["type"])).collect();
    assert_eq!(kinds, [(&json!(0), &json!("thinking")), (&json!(1), &json!("text"))]);
    let body = with(json!({"max_output_tokens": 64, "input": "q"}), &form);
    let found = made(post(&served.service, "/v1/responses", &body));
    assert_eq!(found["output"][0]["content"], json!([{"type": "reasoning_text", "text": "hm"}]), "{found}");
    assert_eq!(found["output"][1]["content"][0]["text"], "yes");
    assert!(found["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
    let events = named_of(&served.service, "/v1/responses", &body);
    let thought: String =
        of(&events, "response.reasoning_text.delta").iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!((thought.as_str(), &of(&events, "response.reasoning_text.done")[0]["text"]), ("hm", &json!("hm")));
    assert_eq!(of(&events, "response.output_text.done")[0]["output_index"], 1);
}

#[test]
fn tools_that_cannot_be_are_refused_in_every_interface() {
    let tools = with_template("dialects_refusals", TEMPLATE);
    let [_, (_, messages), (_, responses)] = conversations();
    let none = &shared(Kind::Llada).service;
    for (service, path, body, more, param, words) in [
        (none, "/v1/messages", &messages, json!({}), "messages[1].content", "writes no tools"),
        (none, "/v1/responses", &responses, json!({}), "input[3].type", "writes no tools"),
        (none, "/v1/responses", &responses, json!({"input": "q"}), "tools", "template writes none"),
        (
            &tools.service,
            "/v1/messages",
            &messages,
            json!({"tools": [{"type": "bash_20250124", "name": "bash"}]}),
            "tools[0]",
            "custom",
        ),
        (
            &tools.service,
            "/v1/messages",
            &messages,
            json!({"tool_choice": {"type": "tool", "name": "f"}}),
            "tool_choice",
            "none of `tools`",
        ),
        (
            &tools.service,
            "/v1/messages",
            &messages,
            json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}),
            "tool_choice.disable_parallel_tool_use",
            "one call at most",
        ),
        (
            &tools.service,
            "/v1/responses",
            &responses,
            json!({"tools": [{"type": "web_search"}]}),
            "tools[0]",
            "expected function",
        ),
        (
            &tools.service,
            "/v1/responses",
            &responses,
            json!({"tool_choice": "always"}),
            "tool_choice",
            "none, auto, required",
        ),
        (
            &tools.service,
            "/v1/responses",
            &responses,
            json!({"parallel_tool_calls": false}),
            "parallel_tool_calls",
            "one call at most",
        ),
    ] {
        let (status, found) = answer(post(service, path, &with(body.clone(), &more)));
        assert_eq!((status, &found["error"]["param"]), (400, &json!(param)), "{found}");
        assert!(found["error"]["message"].as_str().unwrap().contains(words), "{found}");
    }
}
