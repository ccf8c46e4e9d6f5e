//! The built-in model: everything can be tried and tested offline.

use std::collections::BTreeSet;

use demask_checkpoint::ModelFiles;

/// Returns the files of `demo/demo-llada`, which are part of the binary.
pub fn files() -> ModelFiles {
    macro_rules! file {
        ($name:literal) => {
            ($name, include_bytes!(concat!("../demo/demo-llada/", $name)).as_slice())
        };
    }
    static FILES: &[(&str, &[u8])] = &[
        file!("config.json"),
        file!("generation_config.json"),
        file!("model.safetensors"),
        file!("tokenizer.json"),
        file!("tokenizer_config.json"),
    ];
    ModelFiles::memory("demo-llada", FILES)
}

/// Returns why the demo cannot know the answer to a question, if it is plain that it cannot: there is no number in it, or a
/// word that is none of the demo's. Its tokenizer was trained on its word problems and holds each of their words whole, so
/// a word that it would have to spell was in none of them. No reason is no promise: right words may make another question.
pub fn beyond(question: &str) -> Option<String> {
    if !question.contains(|character: char| character.is_ascii_digit()) {
        return Some("there is no number in the question".to_owned());
    }
    let known = words();
    let mut asked = question.split(|character: char| !character.is_alphabetic()).filter(|word| !word.is_empty());
    asked.find(|word| !known.contains(*word)).map(|word| format!("\"{word}\" is none of its words"))
}

/// Returns the pieces that the demo's tokenizer holds whole, without the space before them.
fn words() -> BTreeSet<String> {
    let file: serde_json::Value =
        serde_json::from_slice(include_bytes!("../demo/demo-llada/tokenizer.json")).unwrap_or_default();
    let pieces = file["model"]["vocab"].as_object().into_iter().flat_map(serde_json::Map::keys);
    // Byte-level vocabularies write a space as this letter.
    pieces.map(|piece| piece.trim_start_matches('\u{120}').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_of_the_demo_is_within_it() {
        for file in ["wordmath-test.jsonl", "wordmath-dev.jsonl"] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(file);
            for line in std::fs::read_to_string(path).unwrap().lines() {
                let problem: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(beyond(problem["question"].as_str().unwrap()), None, "{line}");
            }
        }
    }

    #[test]
    fn other_questions_are_beyond_it_for_a_reason() {
        for (question, why) in [
            ("Why is the sky blue?", "there is no number in the question"),
            ("", "there is no number in the question"),
            ("A train travels 60 km in 2 hours.", "\"train\" is none of its words"),
            ("Ada has 3 \u{e4}pfel.", "\"\u{e4}pfel\" is none of its words"),
            ("Write a Python function that adds 2 numbers", "\"Write\" is none of its words"),
        ] {
            assert_eq!(beyond(question).as_deref(), Some(why), "{question}");
        }
    }
}
