//! An answer, behind a byte that chooses the template and one that chooses the pieces it comes in: the same parts in whatever
//! pieces.
#![no_main]

use std::sync::OnceLock;

use demask::{
    Conversation, ModelInfo,
    parts::{AnswerPart, AnswerReader},
};
use demask_checkpoint::{Message, ModelFiles};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// Signs of each form of calls, with thoughts and without.
const TEMPLATES: [&str; 8] = [
    "{% if tools %}<tool_call></tool_call>{% endif %}",
    "{% if tools %}<tool_call></tool_call>{% endif %}</think>",
    "{% if tools %}<TOOLCALL></TOOLCALL>{% endif %}",
    "{% if tools %}<TOOLCALL></TOOLCALL>{% endif %}</think>",
    "{% if tools %}{\"name\": \"f\", \"parameters\": {}}{% endif %}",
    "{% if tools %}{\"name\": \"f\", \"parameters\": {}}{% endif %}</think>",
    "{{ messages[0].content }}</think>",
    "{{ messages[0].content }}</think><think>",
];

/// The readers, each of answers to a conversation of the demo under one of the templates.
fn readers() -> &'static [AnswerReader] {
    static READERS: OnceLock<Vec<AnswerReader>> = OnceLock::new();
    READERS.get_or_init(|| TEMPLATES.iter().map(|template| reader(template)).collect())
}

fn reader(template: &'static str) -> AnswerReader {
    macro_rules! file {
        ($name:literal) => {
            ($name, include_bytes!(concat!("../../demo/demo-qwen/", $name)).as_slice())
        };
    }
    let files = vec![
        file!("config.json"),
        file!("generation_config.json"),
        file!("model.safetensors"),
        file!("tokenizer.json"),
        file!("tokenizer_config.json"),
        ("chat_template.jinja", template.as_bytes()),
    ];
    let info = ModelInfo::open(ModelFiles::memory("demo-qwen", files.leak())).expect("the demo opens");
    let conversation = Conversation {
        messages: vec![Message::new("user", "Hi")],
        tools: vec![json!({"type": "function", "function": {"name": "f"}})],
        ..Conversation::default()
    };
    AnswerReader::new(&info, &conversation).expect("the template renders").expect("it has thoughts or calls")
}

/// The parts of an answer in pieces of so many letters; pieces of one part are joined.
fn parts(mut reader: AnswerReader, text: &str, length: usize) -> Vec<AnswerPart> {
    let letters: Vec<char> = text.chars().collect();
    let mut all: Vec<AnswerPart> =
        letters.chunks(length).flat_map(|piece| reader.feed(&piece.iter().collect::<String>())).collect();
    all.extend(reader.end());
    let mut joined: Vec<AnswerPart> = Vec::new();
    for part in all {
        match (joined.last_mut(), part) {
            (Some(AnswerPart::Content(before)), AnswerPart::Content(more))
            | (Some(AnswerPart::Reasoning(before)), AnswerPart::Reasoning(more)) => before.push_str(&more),
            (_, part) => joined.push(part),
        }
    }
    joined
}

fuzz_target!(|input: (u8, u8, &str)| {
    let (template, length, text) = input;
    let reader = &readers()[usize::from(template) % TEMPLATES.len()];
    let whole = parts(reader.clone(), text, text.len().max(1));
    let pieces = parts(reader.clone(), text, 1 + usize::from(length) % 16);
    assert_eq!(pieces, whole, "{text:?}");
    assert!(whole.iter().all(|part| match part {
        AnswerPart::Content(text) | AnswerPart::Reasoning(text) => !text.is_empty(),
        AnswerPart::Call(_) => true,
    }));
});
