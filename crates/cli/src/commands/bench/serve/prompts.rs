//! Prompts of a measurement: lines of a file, or words drawn by a key.

use std::path::Path;

use demask::internals::step::random::token_bits;
use serde_json::{Map, Value, json};

use super::plan::Endpoint;
use crate::{exit::usage, settings::read_text};

/// Words that random prompts are made of: short, of all tokenizers' vocabularies.
const WORDS: [&str; 32] = [
    "the", "a", "one", "two", "three", "pears", "apples", "boxes", "Ada", "Ben", "gives", "takes", "buys", "has",
    "more", "than", "and", "then", "how", "many", "are", "left", "in", "all", "red", "blue", "old", "new", "day",
    "week", "town", "house",
];

/// One prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// Text.
    Text(String),
    /// Messages of a chat, as the server takes them.
    Messages(Value),
    /// Token ids.
    Tokens(Value),
}

impl Prompt {
    /// Adds it to a request's body; `None` if the endpoint does not take it.
    pub fn put(&self, endpoint: Endpoint, body: &mut Map<String, Value>) -> Option<()> {
        let (name, value) = match (self, endpoint) {
            (Self::Text(text), Endpoint::Chat) => ("messages", json!([{"role": "user", "content": text}])),
            (Self::Messages(messages), Endpoint::Chat) => ("messages", messages.clone()),
            (Self::Text(text), Endpoint::Completions) => ("prompt", json!(text)),
            (Self::Tokens(tokens), Endpoint::Completions) => ("prompt", tokens.clone()),
            (Self::Tokens(_), Endpoint::Chat) | (Self::Messages(_), Endpoint::Completions) => return None,
        };
        body.insert(name.to_owned(), value);
        Some(())
    }
}

/// A prompt of so many random words, the same for the same seed and number.
pub fn random(words: usize, seed: u64, number: usize) -> Prompt {
    let key = token_bits(seed, number as u32);
    let word = |place: u32| WORDS[(token_bits(key, place) % WORDS.len() as u64) as usize];
    Prompt::Text((0..words as u32).map(word).collect::<Vec<_>>().join(" "))
}

/// Prompts of a file, `-`: standard input. Lines of JSON if the first one begins with a brace, else a prompt a line;
/// blank lines are left out.
pub fn read(path: &Path, endpoint: Endpoint) -> anyhow::Result<Vec<Prompt>> {
    let name = path.display();
    let text = read_text(path)?;
    let lines = || text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let is_json = lines().next().is_some_and(|(_, line)| line.trim_start().starts_with('{'));
    let one = |(at, line): (usize, &str)| {
        let prompt = if is_json { of_json(line) } else { Ok(Prompt::Text(line.to_owned())) };
        let prompt = prompt.map_err(|why| usage(format!("{name}, line {}: {why}", at + 1)))?;
        match prompt.put(endpoint, &mut Map::new()) {
            Some(()) => Ok(prompt),
            None => Err(usage(format!("{name}, line {}: {}", at + 1, endpoint.refusal()))),
        }
    };
    let prompts: Vec<_> = lines().map(one).collect::<anyhow::Result<_>>()?;
    if prompts.is_empty() { Err(usage(format!("{name} has no prompts: expected one a line"))) } else { Ok(prompts) }
}

/// A prompt of a line of JSON.
fn of_json(line: &str) -> Result<Prompt, String> {
    let expected = "expected an object with \"prompt\", \"question\" or \"messages\"";
    let item: Map<String, Value> = serde_json::from_str(line).map_err(|error| format!("{error}: {expected}"))?;
    let is_token = |value: &Value| value.as_u64().is_some_and(|token| u32::try_from(token).is_ok());
    match (item.get("messages"), item.get("prompt").or_else(|| item.get("question"))) {
        (Some(messages @ Value::Array(_)), _) => Ok(Prompt::Messages(messages.clone())),
        (Some(_), _) => Err("\"messages\" is no list".to_owned()),
        (None, Some(Value::String(text))) => Ok(Prompt::Text(text.clone())),
        (None, Some(Value::Array(tokens))) if tokens.iter().all(is_token) => Ok(Prompt::Tokens(json!(tokens))),
        (None, Some(_)) => Err("the prompt is neither text nor a list of token ids".to_owned()),
        (None, None) => Err(format!("no prompt: {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_all(text: &str, endpoint: Endpoint) -> Result<Vec<Prompt>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        read(file.path(), endpoint)
            .map_err(|error| error.to_string().replace(&file.path().display().to_string(), "FILE"))
    }

    #[test]
    fn files_have_a_prompt_a_line() {
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(read_all("one\n\n two\n", Endpoint::Chat).unwrap(), [text("one"), text(" two")]);
        let lines = "{\"question\":\"q\",\"answer\":7}\n{\"prompt\":\"p\"}\n";
        assert_eq!(read_all(lines, Endpoint::Chat).unwrap(), [text("q"), text("p")]);
        let lines = "{\"prompt\":[1,2]}\n";
        assert_eq!(read_all(lines, Endpoint::Completions).unwrap(), [Prompt::Tokens(json!([1, 2]))]);
        let lines = "{\"messages\":[{\"role\":\"user\",\"content\":\"m\"}]}";
        let found = read_all(lines, Endpoint::Chat).unwrap();
        let mut body = Map::new();
        found[0].put(Endpoint::Chat, &mut body).unwrap();
        assert_eq!(body["messages"][0]["content"], "m");
    }

    #[test]
    fn lines_that_are_no_prompts_are_named() {
        let refusal = |text: &str, endpoint| read_all(text, endpoint).unwrap_err();
        assert_eq!(refusal("\n", Endpoint::Chat), "FILE has no prompts: expected one a line");
        assert!(refusal("{\"prompt\":\"p\"}\nplain\n", Endpoint::Chat).starts_with("FILE, line 2: "));
        assert!(refusal("{\"text\":1}", Endpoint::Chat).ends_with("\"prompt\", \"question\" or \"messages\""));
        assert!(refusal("{\"prompt\":[1,-2]}", Endpoint::Completions).contains("neither text nor a list"));
        assert!(refusal("{\"prompt\":[1]}", Endpoint::Chat).contains("takes text or messages"));
        assert!(refusal("{\"messages\":[]}", Endpoint::Completions).contains("takes text or token ids"));
        assert!(refusal("{\"messages\":3}", Endpoint::Chat).contains("no list"));
    }

    #[test]
    fn random_words_repeat_by_their_seed() {
        assert_eq!(random(8, 1, 2), random(8, 1, 2));
        assert_ne!(random(8, 1, 2), random(8, 1, 3));
        assert_ne!(random(8, 1, 2), random(8, 2, 2));
        let Prompt::Text(text) = random(8, 1, 2) else { panic!("text") };
        assert_eq!(text.split(' ').count(), 8);
    }
}
