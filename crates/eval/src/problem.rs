//! One problem, in the words that all prompts and scorers share.

use demask::fingerprint::Identity;

/// One problem of a task, as its data file states it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Problem {
    /// Name of the problem: the file's own, or the line's number.
    pub id: String,
    /// The question.
    pub question: String,
    /// Text that the question refers to: a passage, the start of a program.
    pub context: Option<String>,
    /// The subject or the sort of problem, where the file names one.
    pub subject: Option<String>,
    /// The options of multiple choice, in the order in which they are shown.
    pub options: Vec<String>,
    /// A worked solution, where the file has one: exemplars show it.
    pub solution: Option<String>,
    /// JSON schema of its answers, as text, where it has one.
    pub schema: Option<String>,
    /// The right answer.
    pub gold: Gold,
}

impl Problem {
    /// Returns its right answer, for people.
    pub fn expected(&self) -> String {
        match &self.gold {
            Gold::Number(text) | Gold::Math(text) => text.clone(),
            Gold::Option(index) => self.options.get(*index).cloned().unwrap_or_default(),
            Gold::Text(texts) => texts.join(" | "),
            Gold::Program { tests, .. } => tests.clone(),
            Gold::Json(text) => text.clone().unwrap_or_default(),
        }
    }

    /// Returns what identifies it on disk.
    pub fn fields(&self) -> Identity {
        // Whoever adds a field decides here how it is identified.
        let Self { id, question, context, subject, options, solution, schema, gold } = self;
        let fields = Identity::new("problem", 1)
            .field("id", id)
            .field("question", question)
            .optional("context", context.as_ref())
            .optional("subject", subject.as_ref());
        let fields = options.iter().fold(fields, |fields, option| fields.field("option", option));
        let fields = fields.optional("solution", solution.as_ref()).optional("schema", schema.as_ref());
        match gold {
            Gold::Number(text) => fields.field("number", text),
            Gold::Math(text) => fields.field("math", text),
            Gold::Option(index) => fields.field("right option", index),
            Gold::Text(texts) => texts.iter().fold(fields, |fields, text| fields.field("text", text)),
            Gold::Json(text) => fields.optional("json", text.as_ref()),
            Gold::Program { prompt, tests, entry_point } => {
                fields.field("prompt", prompt).field("tests", tests).optional("entry_point", entry_point.as_ref())
            }
        }
    }
}

/// A right answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Gold {
    /// A number as the file writes it.
    Number(String),
    /// A mathematical expression in LaTeX.
    Math(String),
    /// An option, counted from 0.
    Option(usize),
    /// Any of these texts.
    Text(Vec<String>),
    /// A program that passes.
    Program {
        /// Code before the completion; empty if the answer is the whole program.
        prompt: String,
        /// Statements that raise if the program is wrong.
        tests: String,
        /// The function that the tests call, if the file names one.
        entry_point: Option<String>,
    },
    /// This value in JSON, or any value that the problem's schema allows.
    Json(Option<String>),
}

impl Default for Gold {
    fn default() -> Self {
        Self::Text(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results directories hold these numbers: where they change, no earlier directory goes on.
    #[test]
    fn problems_are_identified_as_ever() {
        let short = Problem { id: "1".to_owned(), question: "2 + 2?".to_owned(), ..Problem::default() };
        let long = Problem {
            context: Some("sums".to_owned()),
            subject: Some("numbers".to_owned()),
            options: vec!["3".to_owned(), "4".to_owned()],
            solution: Some("2 + 2 = 4".to_owned()),
            ..short.clone()
        };
        let program = Gold::Program { prompt: "def f".to_owned(), tests: "f()".to_owned(), entry_point: None };
        let golds = [
            (Gold::Number("4".to_owned()), 0x36b4_34d4_660f_ae77, 0xe3c7_48f7_7a62_9a23),
            (Gold::Math("4".to_owned()), 0x611c_246d_f182_f294, 0x5be1_9831_f510_ad25),
            (Gold::Option(1), 0x1e0c_18fe_072e_7fbd, 0xa025_59bd_5021_c0a6),
            (Gold::Text(vec!["4".to_owned(), "four".to_owned()]), 0xe355_447f_d342_b6aa, 0xf5a6_71fe_cc60_31b6),
            (program, 0xe25b_63ca_2efb_d706, 0x4956_464d_ace8_b248),
        ];
        for (gold, first, second) in golds {
            let found = [&short, &long].map(|of| Problem { gold: gold.clone(), ..of.clone() }.fields().fingerprint());
            assert_eq!(found, [first, second], "{gold:?}: {found:#x?}");
        }
    }
}
