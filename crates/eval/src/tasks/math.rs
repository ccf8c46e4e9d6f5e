//! MATH (Hendrycks et al. 2021) and its subset of 500 problems (Lightman et al. 2023).

use serde_json::Value;

use super::{
    DataFile, Exemplars, FieldError, Form, Source, Style, Task, fields,
    gsm8k::{BOXED, BOXED_FIRST},
    published,
    style::{answer, no_head, solution},
};
use crate::{Gold, Problem, Rule, score::boxed};

/// All seven subjects.
pub const MATH: Task = Task {
    name: "math",
    about: "competition mathematics in seven subjects; the answer is an expression",
    source: Source::hub(
        "EleutherAI/hendrycks_math",
        "main",
        &DataFile::each("{}/test-00000-of-00001.parquet", &SUBJECTS),
    ),
    exemplars: Exemplars::Published(|| published(PUBLISHED, Gold::Math)),
    styles: STYLES,
    gen_length: 256,
    fields: "`problem`, `solution` (the answer in its last box), `type`",
    read,
    shuffled: false,
    likelihood: None,
};

const SUBJECTS: [&str; 7] = [
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
];

/// Five hundred of the test problems.
pub const MATH500: Task = Task {
    name: "math500",
    about: "five hundred problems of MATH's test set",
    source: Source::hub("HuggingFaceH4/MATH-500", "main", &[DataFile::plain("test.jsonl")]),
    fields: "`problem`, `solution`, `answer`, `subject`, `unique_id`",
    ..MATH
};

pub(super) const STYLES: &[Style] = &[
    MINERVA,
    Style { rule: Rule::Math(&["final answer is"]), ..BOXED },
    Style { rule: Rule::Math(&["final answer is"]), ..BOXED_FIRST },
    MINERVA.as_chat(),
];

const MINERVA: Style = Style {
    name: "lm-eval",
    about: "lm-evaluation-harness, `minerva_math`: Dream's, dLLM-Cache's and FreeDave's scripts",
    form: Form::Text { gap: " " },
    head: no_head,
    ask: |problem| format!("Problem:\n{}\n\nSolution:", problem.question),
    solve: |problem| {
        format!("{}\nFinal Answer: The final answer is ${}$. I hope it is correct.", solution(problem), answer(problem))
    },
    stop: &["Problem:"],
    shots: 4,
    rule: Rule::Math(&["final answer is"]),
};

/// Style without exemplars, for problems that have none.
pub(super) const UNSHOWN: Style = Style {
    name: "lm-eval",
    about: "lm-evaluation-harness, `aime24`",
    ask: |problem| format!("Question: {}\nAnswer:", problem.question),
    stop: &["Question:"],
    shots: 0,
    ..MINERVA
};

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    let solution = fields::text(entry, "solution")?;
    let answer = match fields::text(entry, "answer") {
        Ok(answer) => answer,
        // Releases without the field: the answer is what the solution puts in its last box.
        Err(_) => in_box(&solution).ok_or(FieldError::odd("solution", "text with \\boxed{...}"))?.to_owned(),
    };
    Ok(Problem {
        id: fields::name(entry, "unique_id", index),
        question: fields::text(entry, "problem")?,
        subject: fields::any_text(entry, &["subject", "type"]).ok(),
        solution: Some(solution),
        gold: Gold::Math(answer),
        ..Problem::default()
    })
}

/// Content of a solution's last box; a few write `\boxed 3.`.
fn in_box(solution: &str) -> Option<&str> {
    boxed(solution).map(|answer| answer.trim_end_matches('.'))
}

/// The four exemplars of Minerva (Lewkowycz et al. 2022, appendix), which harnesses use for MATH; from MATH's training
/// set.
/// Problem, solution, answer.
const PUBLISHED: &[(&str, &str, &str)] = &[
    (
        "Find the domain of the expression  $\\frac{\\sqrt{x-2}}{\\sqrt{5-x}}$.}",
        "The expressions inside each square root must be non-negative. Therefore, $x-2 \\ge 0$, so $x\\ge2$, and $5 - x \
         \\ge 0$, so $x \\le 5$. Also, the denominator cannot be equal to zero, so $5-x>0$, which gives $x<5$. \
         Therefore, the domain of the expression is $\\boxed{[2,5)}$.",
        "[2,5)",
    ),
    (
        "If $\\det \\mathbf{A} = 2$ and $\\det \\mathbf{B} = 12,$ then find $\\det (\\mathbf{A} \\mathbf{B}).$",
        "We have that $\\det (\\mathbf{A} \\mathbf{B}) = (\\det \\mathbf{A})(\\det \\mathbf{B}) = (2)(12) = \\boxed{24}.$",
        "24",
    ),
    (
        "Terrell usually lifts two 20-pound weights 12 times. If he uses two 15-pound weights instead, how many times \
         must Terrell lift them in order to lift the same total weight?",
        "If Terrell lifts two 20-pound weights 12 times, he lifts a total of $2\\cdot 12\\cdot20=480$ pounds of weight.  \
         If he lifts two 15-pound weights instead for $n$ times, he will lift a total of $2\\cdot15\\cdot n=30n$ pounds \
         of weight.  Equating this to 480 pounds, we can solve for $n$:\n\\begin{align*}\n30n&=480\\\\\n\
         \\Rightarrow\\qquad n&=480/30=\\boxed{16}\n\\end{align*}",
        "16",
    ),
    (
        "If the system of equations\n\n\\begin{align*}\n6x-4y&=a,\\\\\n6y-9x &=b.\n\\end{align*}has a solution $(x, y)$ \
         where $x$ and $y$ are both nonzero,\nfind $\\frac{a}{b},$ assuming $b$ is nonzero.",
        "If we multiply the first equation by $-\\frac{3}{2}$, we obtain\n\n$$6y-9x=-\\frac{3}{2}a.$$Since we also know \
         that $6y-9x=b$, we have\n\n$$-\\frac{3}{2}a=b\\Rightarrow\\frac{a}{b}=\\boxed{-\\frac{2}{3}}.$$",
        "-\\frac{2}{3}",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solutions_without_an_answer_have_a_box() {
        let gold = |solution: &str| {
            let entry = serde_json::json!({"problem": "?", "solution": solution});
            read(&entry, 0).map(|problem| problem.gold)
        };
        let found = |answer: &str| Ok(Gold::Math(answer.to_owned()));
        assert_eq!(gold("so $\\boxed{1}$ or $\\boxed{\\frac{1}{2}}$."), found("\\frac{1}{2}"));
        assert_eq!(gold("so $\\boxed 3.$"), found("3"));
        let refused = "field solution is something else, expected text with \\boxed{...}";
        for solution in ["\\boxed{1", "no box"] {
            assert_eq!(gold(solution).unwrap_err().to_string(), refused);
        }
    }

    #[test]
    fn the_published_answers_stand_in_their_boxes() {
        for problem in published(PUBLISHED, Gold::Math) {
            assert_eq!(in_box(problem.solution.as_deref().unwrap()), Some(answer(&problem).as_str()));
        }
    }
}
