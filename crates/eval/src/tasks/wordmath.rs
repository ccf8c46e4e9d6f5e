//! The demo models' own word problems.

use serde_json::Value;

use super::{
    Exemplars, FieldError, Form, Source, Style, Task,
    fields::{text, whole},
    style::{no_head, solution},
};
use crate::{Gold, Problem, Rule};

/// The task. The demo models answer without exemplars: they know nothing but these problems.
pub const TASK: Task = Task {
    name: "wordmath",
    about: "the demo models' grade-school word problems",
    source: Source::BuiltIn(include_str!("../../data/wordmath-test.jsonl")),
    exemplars: Exemplars::None,
    styles: &[Style {
        name: "demo",
        about: "the demo models' training text",
        form: Form::Chat,
        head: no_head,
        ask: |problem| problem.question.clone(),
        solve: solution,
        stop: &[],
        shots: 0,
        rule: Rule::Number(&["The final answer is"]),
    }],
    gen_length: 64,
    fields: "`question`, `solution`, `answer`",
    read,
    shuffled: false,
    likelihood: None,
};

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
        let Source::BuiltIn(lines) = TASK.source else { panic!("not built in") };
        let problems: Vec<_> = lines
            .lines()
            .enumerate()
            .map(|(index, line)| read(&serde_json::from_str(line).unwrap(), index).unwrap())
            .collect();
        assert_eq!(problems.len(), 500);
        assert!(
            problems
                .iter()
                .all(|problem| TASK.styles[0].rule.judge(problem, problem.solution.as_ref().unwrap()).correct)
        );
    }
}
