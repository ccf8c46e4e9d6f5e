//! GSM8K (Cobbe et al. 2021): grade-school word problems with worked solutions.

use serde_json::Value;

use super::{
    DataFile, Exemplars, FieldError, Form, Source, Style, Task, fields, published,
    style::{concluded, no_head, solution},
};
use crate::{Gold, Problem, Rule};

/// The task.
pub const TASK: Task = Task {
    name: "gsm8k",
    about: "grade-school word problems; the answer is a number",
    source: Source::hub("openai/gsm8k", "main", &[DataFile::plain("main/test-00000-of-00001.parquet")]),
    exemplars: Exemplars::Published(|| published(PUBLISHED, Gold::Number)),
    styles: &[FLASHDLM, LM_EVAL, COT, BOXED, BOXED_FIRST, LM_EVAL.as_chat()],
    gen_length: 256,
    fields: "`question`, `answer` (the solution, and the number behind `####`)",
    read,
    shuffled: false,
    likelihood: None,
};

/// FlashDLM 4.2. The published code's last sentence is garbled; this is the paper's.
const FLASHDLM: Style = Style {
    name: "flashdlm",
    about: "FlashDLM's paper",
    form: Form::Chat,
    head: no_head,
    ask: |problem| {
        format!(
            "Given the following problem, reason and give a final answer to the problem. \nProblem: {}\nYour response \
             should end with \"The final answer is [answer]\" where [answer] is just the final number to the problem.",
            problem.question
        )
    },
    solve: |problem| concluded(problem, "The final answer is ", ""),
    stop: &[],
    shots: 8,
    rule: Rule::Number(&["The final answer is"]),
};

const LM_EVAL: Style = Style {
    name: "lm-eval",
    about: "lm-evaluation-harness, `gsm8k`",
    form: Form::Text { gap: " " },
    head: no_head,
    ask: |problem| format!("Question: {}\nAnswer:", problem.question),
    solve: |problem| format!("{}\n#### {}", solution(problem), super::style::answer(problem)),
    stop: &["Question:"],
    shots: 5,
    rule: Rule::Number(&["####"]),
};

const COT: Style = Style {
    name: "lm-eval-cot",
    about: "lm-evaluation-harness, `gsm8k_cot`: Dream's evaluation",
    form: Form::Text { gap: " " },
    head: no_head,
    ask: |problem| format!("Q: {}\nA:", problem.question),
    solve: |problem| concluded(problem, "The answer is ", "."),
    stop: &["Q:"],
    shots: 8,
    rule: Rule::Number(&["The answer is"]),
};

/// FreeDave 5.3, as for TraDo and SDAR.
pub(super) const BOXED: Style = Style {
    name: "freedave",
    about: "FreeDave's paper (block-diffusion models)",
    form: Form::Chat,
    head: no_head,
    ask: |problem| {
        format!("{}\nPlease reason step by step, and put your final answer within \\boxed{{}}.", problem.question)
    },
    solve: boxed,
    stop: &[],
    shots: 0,
    rule: Rule::Number(&["\\boxed{"]),
};

/// FreeDave 5.3, as for Dream and LLaDA.
pub(super) const BOXED_FIRST: Style = Style {
    name: "freedave-full",
    about: "FreeDave's paper (full attention: Dream, LLaDA)",
    ask: |problem| {
        format!("You need to put your final answer in \\boxed{{}}. This is the problem:\n{}", problem.question)
    },
    ..BOXED
};

/// A solution with the answer in a box, where it has none yet.
fn boxed(problem: &Problem) -> String {
    match &problem.solution {
        Some(solution) if solution.contains("\\boxed") => solution.clone(),
        _ => concluded(problem, "The final answer is \\boxed{", "}."),
    }
}

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    let answer = fields::text(entry, "answer")?;
    let (solution, number) =
        answer.rsplit_once("####").ok_or(FieldError::odd("answer", "a solution, ####, and a number"))?;
    Ok(Problem {
        id: index.to_string(),
        question: fields::text(entry, "question")?,
        solution: Some(solution.trim().to_owned()),
        gold: Gold::Number(number.trim().to_owned()),
        ..Problem::default()
    })
}

/// The eight exemplars of Wei et al., "Chain-of-Thought Prompting Elicits Reasoning in Large Language Models", 2022,
/// appendix, in their order.
/// Question, reasoning, number.
const PUBLISHED: &[(&str, &str, &str)] = &[
    (
        "There are 15 trees in the grove. Grove workers will plant trees in the grove today. After they are done, there \
         will be 21 trees. How many trees did the grove workers plant today?",
        "There are 15 trees originally. Then there were 21 trees after some more were planted. So there must have been \
         21 - 15 = 6.",
        "6",
    ),
    (
        "If there are 3 cars in the parking lot and 2 more cars arrive, how many cars are in the parking lot?",
        "There are originally 3 cars. 2 more cars arrive. 3 + 2 = 5.",
        "5",
    ),
    (
        "Leah had 32 chocolates and her sister had 42. If they ate 35, how many pieces do they have left in total?",
        "Originally, Leah had 32 chocolates. Her sister had 42. So in total they had 32 + 42 = 74. After eating 35, they \
         had 74 - 35 = 39.",
        "39",
    ),
    (
        "Jason had 20 lollipops. He gave Denny some lollipops. Now Jason has 12 lollipops. How many lollipops did Jason \
         give to Denny?",
        "Jason started with 20 lollipops. Then he had 12 after giving some to Denny. So he gave Denny 20 - 12 = 8.",
        "8",
    ),
    (
        "Shawn has five toys. For Christmas, he got two toys each from his mom and dad. How many toys does he have now?",
        "Shawn started with 5 toys. If he got 2 toys each from his mom and dad, then that is 4 more toys. 5 + 4 = 9.",
        "9",
    ),
    (
        "There were nine computers in the server room. Five more computers were installed each day, from monday to \
         thursday. How many computers are now in the server room?",
        "There were originally 9 computers. For each of 4 days, 5 more computers were added. So 5 * 4 = 20 computers \
         were added. 9 + 20 is 29.",
        "29",
    ),
    (
        "Michael had 58 golf balls. On tuesday, he lost 23 golf balls. On wednesday, he lost 2 more. How many golf balls \
         did he have at the end of wednesday?",
        "Michael started with 58 golf balls. After losing 23 on tuesday, he had 58 - 23 = 35. After losing 2 more, he \
         had 35 - 2 = 33 golf balls.",
        "33",
    ),
    (
        "Olivia has $23. She bought five bagels for $3 each. How much money does she have left?",
        "Olivia had 23 dollars. 5 bagels for 3 dollars each will be 5 x 3 = 15 dollars. So she has 23 - 15 dollars left. \
         23 - 15 is 8.",
        "8",
    ),
];
