//! Parts that tasks with options share: letters, the instructions of FlashDLM's files, and the words around them.

use serde_json::Value;

use super::{
    FieldError, Form, Style,
    fields::text,
    style::{answer, no_head},
};
use crate::{Gold, Problem, Rule};

/// One of the texts that a likelihood chooses between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Text that the model reads.
    pub context: String,
    /// Text whose likelihood is computed, with the space before it.
    pub text: String,
}

/// Prompting for a likelihood instead of an answer, as a harness does it. The wording is its own: prompts that ask for
/// a letter show the options, these mostly do not.
#[derive(Debug, Clone, Copy)]
pub struct Likelihood {
    /// Text before everything else.
    pub head: fn(&Problem) -> String,
    /// One candidate for each option, without exemplars.
    pub options: fn(&Problem) -> Vec<Candidate>,
    /// Exemplars if nobody says how many (LLaDA's and Dream's evaluation).
    pub shots: usize,
}

impl Likelihood {
    /// One candidate for each option, behind exemplars with their right options.
    pub fn candidates(&self, problem: &Problem, exemplars: &[Problem]) -> Vec<Candidate> {
        let mut before = (self.head)(problem);
        for exemplar in exemplars {
            let right = match exemplar.gold {
                Gold::Option(right) => (self.options)(exemplar).into_iter().nth(right),
                _ => None,
            };
            before.extend(right.map(|Candidate { context, text }| format!("{context}{text}\n\n")));
        }
        let behind =
            |candidate: Candidate| Candidate { context: format!("{before}{}", candidate.context), ..candidate };
        (self.options)(problem).into_iter().map(behind).collect()
    }
}

/// The letter of an option.
pub(super) fn letter(option: usize) -> char {
    char::from(b'A' + (option % 26) as u8)
}

/// The number of an option's letter.
pub(super) fn number(letter: &str) -> Option<usize> {
    let mut bytes = letter.trim().bytes();
    let byte = bytes.next().filter(u8::is_ascii_uppercase)?;
    bytes.next().is_none().then_some(usize::from(byte - b'A'))
}

/// The options below each other: `A. one`.
pub(super) fn lettered(problem: &Problem) -> String {
    listed(problem, "", ". ")
}

/// The options below each other, with marks around their letters.
pub(super) fn listed(problem: &Problem, before: &str, behind: &str) -> String {
    let line = |(index, option)| [before, letter(index).encode_utf8(&mut [0; 4]), behind, option, "\n"].concat();
    problem.options.iter().map(String::as_str).enumerate().map(line).collect()
}

/// One question behind `Question:`, its options, and `Answer:`.
pub(super) fn ask_letter(problem: &Problem) -> String {
    format!("Question: {}\n{}Answer:", problem.question.trim(), lettered(problem))
}

/// Every option as the answer to the same question.
pub(super) fn options_after(problem: &Problem, context: &str) -> Vec<Candidate> {
    let candidate = |option: &String| Candidate { context: context.to_owned(), text: format!(" {option}") };
    problem.options.iter().map(candidate).collect()
}

/// Every letter as the answer to the same question.
pub(super) fn letters_after(problem: &Problem, context: &str) -> Vec<Candidate> {
    let candidate = |option| Candidate { context: context.to_owned(), text: format!(" {}", letter(option)) };
    (0..problem.options.len()).map(candidate).collect()
}

/// The harness itself ranks the options' likelihoods; this is how it words options where it asks for a letter.
pub(super) const LM_EVAL: Style = Style {
    name: "lm-eval",
    about: "lm-evaluation-harness's wording of questions that ask for a letter",
    form: Form::Text { gap: " " },
    head: no_head,
    ask: ask_letter,
    solve: answer,
    stop: &["\n"],
    shots: 0,
    rule: Rule::Letter(&["answer is", "answer:"]),
};

/// A task whose problems are in FlashDLM's files too, as instructions.
pub(super) trait Instructed: Sized {
    /// Wording of the instruction's problems.
    const INSTRUCTION: Instruction;

    /// The wording of those files.
    const FLASHDLM: Style = Style {
        name: "flashdlm",
        about: "FlashDLM's code: the instruction of its files, in the words of its prompt classes",
        form: Form::Chat,
        head: no_head,
        ask: |problem| Self::INSTRUCTION.ask(problem),
        solve: |problem| Self::INSTRUCTION.solve(problem),
        stop: &[],
        shots: 0,
        rule: Rule::Choice { name: Self::INSTRUCTION.word, triggers: FINAL },
    };

    /// One problem from an entry of the dataset itself.
    fn own(entry: &Value, index: usize) -> Result<Problem, FieldError>;

    /// One problem from an entry of either.
    fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
        match entry.get("instruction") {
            Some(_) => Self::INSTRUCTION.read(entry, index),
            None => Self::own(entry, index),
        }
    }
}

/// A task that the appendix of FlashDLM's paper words.
pub(super) trait Printed: Instructed {
    /// The words around question and options.
    const FRAME: Frame;
    /// Exemplars in the paper's runs.
    const SHOTS: usize = 0;

    /// The wording of appendix C.5.
    const PAPER: Style = Style {
        name: PAPER,
        about: PAPER_ABOUT,
        ask: |problem| Self::FRAME.around(&Self::INSTRUCTION.bare(problem)),
        solve: |problem| Self::INSTRUCTION.solve_capitalised(problem),
        shots: Self::SHOTS,
        ..Self::FLASHDLM
    };
}

/// Name of the wording of FlashDLM's appendix.
pub(super) const PAPER: &str = "flashdlm-paper";

/// Origin of those words.
pub(super) const PAPER_ABOUT: &str = "FlashDLM, appendix C.5; what the page abridges is in the words of the authors' \
                                      program";

/// Phrases before the answer in FlashDLM's wordings, and in its files.
pub(super) const FINAL: &[&str] = &["the final answer is", "the correct answer is"];

/// The words of a FlashDLM prompt before and behind the problem.
pub(super) struct Frame {
    /// Text before the problem.
    pub before: &'static str,
    /// Behind the problem.
    pub behind: &'static str,
}

impl Frame {
    /// A problem between the words.
    pub(super) fn around(&self, problem: &str) -> String {
        [self.before, problem, self.behind].concat()
    }
}

/// Wording of a problem with options in an instruction of FlashDLM's files (made for LLM-Adapters, Hu et al. 2023).
pub(super) struct Instruction {
    /// Text before the question.
    pub head: &'static str,
    /// Word before an option's number, with a capital.
    pub label: &'static str,
    /// First word of an answer, before the number.
    pub word: &'static str,
    /// Text between two options.
    pub between: &'static str,
    /// The words that the program puts around the instruction, its slips included.
    pub frame: Frame,
}

impl Instruction {
    /// The problem as an instruction.
    fn words(&self, problem: &Problem) -> String {
        let Self { head, word, .. } = self;
        let names: Vec<String> = (1..=problem.options.len()).map(|number| format!("{word}{number}")).collect();
        format!("{head}{}\n\nAnswer format: {}", self.bare(problem), names.join("/"))
    }

    /// Question and numbered options.
    fn bare(&self, problem: &Problem) -> String {
        let options = (1..).zip(&problem.options).map(|(number, option)| format!("{}{number}: {option}", self.label));
        format!("{}\n\n{}", problem.question, options.collect::<Vec<_>>().join(self.between))
    }

    /// The problem of an entry with an instruction.
    fn read(&self, entry: &Value, index: usize) -> Result<Problem, FieldError> {
        let instruction = text(entry, "instruction")?;
        let parts = self.parts(&instruction);
        let (question, options) =
            parts.ok_or_else(|| FieldError::odd("instruction", "a question, numbered options and an answer format"))?;
        let gold = text(entry, "answer")?;
        let number = gold.strip_prefix(self.word).and_then(|number| number.parse::<usize>().ok());
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

    /// The program's prompt.
    fn ask(&self, problem: &Problem) -> String {
        self.frame.around(&self.words(problem))
    }

    /// Answer of an exemplar in the paper's wording.
    fn solve_capitalised(&self, problem: &Problem) -> String {
        match problem.gold {
            Gold::Option(option) => format!("The final answer is {}{}", self.label, option + 1),
            _ => String::new(),
        }
    }

    /// Answer of an exemplar.
    fn solve(&self, problem: &Problem) -> String {
        match problem.gold {
            Gold::Option(option) => format!("The final answer is {}{}", self.word, option + 1),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Instruction = Instruction {
        head: "Choose: ",
        label: "Answer",
        word: "answer",
        between: " ",
        frame: Frame { before: "<", behind: ">" },
    };

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
