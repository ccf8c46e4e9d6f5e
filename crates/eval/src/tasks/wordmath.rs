//! The demo models' own word problems.

use demask::{Prompt, checkpoint::Message};
use serde_json::Value;

use super::{FieldError, Source, Style, Task, text, whole};
use crate::{Gold, Problem, Rule};

/// The task. The demo models answer without exemplars: they know nothing but these problems.
pub const TASK: Task = Task {
    name: "wordmath",
    about: "the demo models' grade-school word problems",
    source: Source::BuiltIn(include_str!("../../../../demo/wordmath-test.jsonl")),
    styles: &[Style { name: "demo", prompt, stop: &[] }],
    shots: 0,
    gen_length: 64,
    read,
    rule: Rule::Number(&["The final answer is"]),
};

/// The questions as a user's messages, the exemplars' solutions as the assistant's.
fn prompt(problem: &Problem, shots: &[Problem]) -> Prompt {
    let solved = shots.iter().flat_map(|shot| {
        let solution = shot.solution.clone().unwrap_or_default();
        [Message::new("user", shot.question.as_str()), Message::new("assistant", solution)]
    });
    Prompt::Chat(solved.chain([Message::new("user", problem.question.as_str())]).collect())
}

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    Ok(Problem {
        id: index.to_string(),
        question: text(entry, "question")?,
        solution: Some(text(entry, "solution")?),
        gold: Gold::Number(whole(entry, "answer")?.to_string()),
        ..Problem::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_read_and_their_solutions_are_right() {
        let Source::BuiltIn(lines) = TASK.source;
        let problems: Vec<_> = lines
            .lines()
            .enumerate()
            .map(|(index, line)| read(&serde_json::from_str(line).unwrap(), index).unwrap())
            .collect();
        assert_eq!(problems.len(), 500);
        assert!(problems.iter().all(|problem| TASK.rule.judge(problem, problem.solution.as_ref().unwrap()).correct));
    }
}
