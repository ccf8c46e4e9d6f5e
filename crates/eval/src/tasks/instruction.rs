//! Instructions of FlashDLM's files (made for LLM-Adapters, Hu et al. 2023): problems with options in words.

use serde_json::Value;

use super::FieldError;
use crate::{Gold, Problem};

/// Wording of a problem with options as an instruction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instruction {
    /// Text before the question.
    pub head: &'static str,
    /// Word before an option's number, with a capital.
    pub label: &'static str,
    /// First word of an answer, before the number.
    pub word: &'static str,
    /// Text between two options.
    pub between: &'static str,
}

impl Instruction {
    /// The problem as an instruction.
    pub(super) fn words(&self, problem: &Problem) -> String {
        let Self { head, word, .. } = self;
        let names: Vec<String> = (1..=problem.options.len()).map(|number| format!("{word}{number}")).collect();
        format!("{head}{}\n\nAnswer format: {}", self.numbered(problem), names.join("/"))
    }

    /// Question and numbered options.
    pub(super) fn numbered(&self, problem: &Problem) -> String {
        let options = (1..).zip(&problem.options).map(|(number, option)| format!("{}{number}: {option}", self.label));
        format!("{}\n\n{}", problem.question, options.collect::<Vec<_>>().join(self.between))
    }

    /// The problem of an entry with an instruction.
    pub(super) fn read(&self, entry: &Value, index: usize) -> Result<Problem, FieldError> {
        let text = |field: &str| entry[field].as_str().ok_or_else(|| FieldError::of(field, "text", &entry[field]));
        let parts = self.parts(text("instruction")?);
        let (question, options) =
            parts.ok_or_else(|| FieldError::odd("instruction", "a question, numbered options and an answer format"))?;
        let number = text("answer")?.strip_prefix(self.word).and_then(|number| number.parse::<usize>().ok());
        let gold = number.and_then(|number| number.checked_sub(1)).filter(|option| *option < options.len());
        let gold = gold.ok_or_else(|| FieldError::odd("answer", "the name of an option"))?;
        Ok(Problem { id: index.to_string(), question, options, gold: Gold::Option(gold), ..Problem::default() })
    }

    fn parts(&self, instruction: &str) -> Option<(String, Vec<String>)> {
        let rest = instruction.strip_prefix(self.head)?;
        let (rest, _) = rest.rsplit_once("\n\nAnswer format: ")?;
        let (question, mut rest) = rest.rsplit_once(&format!("\n\n{}1: ", self.label))?;
        let mut options = Vec::new();
        while let Some((option, behind)) =
            rest.split_once(&format!("{}{}{}: ", self.between, self.label, options.len() + 2))
        {
            options.push(option.to_owned());
            rest = behind;
        }
        options.push(rest.to_owned());
        Some((question.to_owned(), options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Instruction = Instruction { head: "Choose: ", label: "Answer", word: "answer", between: " " };

    #[test]
    fn an_instruction_is_read_back_as_it_was_worded() {
        let problem = Problem {
            id: "7".to_owned(),
            question: "Which\n\none?".to_owned(),
            options: vec!["a b".to_owned(), "c ".to_owned(), "d".to_owned()],
            gold: Gold::Option(2),
            ..Problem::default()
        };
        let words = PLAIN.words(&problem);
        assert_eq!(
            words,
            "Choose: Which\n\none?\n\nAnswer1: a b Answer2: c  Answer3: d\n\nAnswer format: answer1/answer2/answer3"
        );
        let entry = serde_json::json!({"instruction": words, "answer": "answer3"});
        assert_eq!(PLAIN.read(&entry, 7).unwrap(), problem);
        let refused = |answer: &str| {
            let entry = serde_json::json!({"instruction": words, "answer": answer});
            PLAIN.read(&entry, 0).unwrap_err().to_string()
        };
        for answer in ["answer4", "answer0", "3", "answer"] {
            assert_eq!(refused(answer), "field answer is something else, expected the name of an option");
        }
    }
}
