//! Multiple choice by likelihood: the option that the model holds for the most probable continuation is its answer.

use std::{collections::VecDeque, time::Instant};

use demask::internals::peak_memory;
use demask::{Error, Likelihood, LikelihoodOptions, Model, Prompt};
use serde_json::{Value, json};

use super::{Happened, Item, Outcome, RunError, Work};
use crate::{Gold, Verdict, tasks::Candidate};

/// What stands for decoder and cache in the names of such combinations.
pub const LABEL: &str = "likelihood";

impl Work<'_, '_> {
    /// Chooses an option for each problem.
    pub(super) fn choose(
        mut self,
        model: &mut Model,
        pending: VecDeque<Item>,
        options: LikelihoodOptions,
    ) -> Result<(), RunError> {
        for item in pending {
            let outcome = match self.judge(model, item, &options) {
                Ok(outcome) => outcome,
                Err(Error::Interrupted) => return Err(RunError::Interrupted),
                Err(error) => {
                    self.refuse(item, error)?;
                    continue;
                }
            };
            self.record(item, outcome)?;
        }
        Ok(())
    }

    fn judge(&mut self, model: &mut Model, (at, index): Item, options: &LikelihoodOptions) -> Result<Outcome, Error> {
        let started = Instant::now();
        let plans = self.runs.plans;
        let (plan, problem) = (&plans[at], &plans[at].problems[index]);
        let candidates = plan.candidates(problem);
        let mut likelihoods = Vec::new();
        for Candidate { context, text } in &candidates {
            let (context, continuation) = model.prompter().pair(&Prompt::Raw(context.clone()), text)?;
            let mut go_on = || (self.observer)(Happened::Step).is_continue();
            likelihoods.push(model.log_likelihood(&context, &continuation, options, &mut go_on)?);
        }
        // The first of those that are equally probable.
        let likelier = |best: usize, index: usize| {
            if likelihoods[index].log_probability > likelihoods[best].log_probability { index } else { best }
        };
        let chosen = (0..likelihoods.len()).reduce(likelier);
        let Candidate { context, text } = chosen.map(|chosen| &candidates[chosen]).ok_or(Error::EmptyLikelihood)?;
        let output = text.trim().to_owned();
        let correct = matches!(problem.gold, Gold::Option(right) if Some(right) == chosen);
        Ok(Outcome {
            prompt: context.clone(),
            verdict: Verdict::of(output.clone(), correct),
            output,
            tokens: 0,
            receipt: receipt(model, &likelihoods, options.seed, started.elapsed().as_secs_f64()),
        })
    }
}

/// The receipt of an answer, as far as likelihoods have one, and the likelihoods themselves.
fn receipt(model: &Model, likelihoods: &[Likelihood], seed: u64, total: f64) -> Value {
    let forwards: usize = likelihoods.iter().map(|one| one.forwards).sum();
    let flops: f64 = likelihoods.iter().map(|one| one.flops).sum();
    let seconds: f64 = likelihoods.iter().map(|one| one.seconds).sum();
    let network = model.network();
    json!({
        "model": model.name(),
        "device": network.describe(),
        "decoder": LABEL,
        "seed": seed,
        "nfe": forwards,
        "forwards": forwards,
        "flops": flops,
        "seconds": {"load": model.load_time().as_secs_f64(), "model": seconds, "total": total, "wall": total},
        "memory": {"weights": network.weight_bytes(), "peak": peak_memory()},
        "log_likelihoods": likelihoods.iter().map(|one| one.log_probability).collect::<Vec<_>>(),
        "option_tokens": likelihoods.iter().map(|one| one.tokens).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::{ops::ControlFlow, sync::LazyLock};

    use demask::Options;

    use super::*;
    use crate::{
        Problem, Task,
        data::Shots,
        run::{Combination, Plan, Runs, Store, Swept, rehearse, run},
        tasks,
    };

    /// Solutions as candidates, behind the question in the words that the model was trained with.
    fn solutions(problem: &Problem) -> Vec<Candidate> {
        let turn = |role: &str, text: &str| format!("<|start_header_id|>{role}<|end_header_id|>\n\n{text}");
        let context = format!("<|startoftext|>{}<|eot_id|>{}", turn("user", &problem.question), turn("assistant", ""));
        let candidate = |option: &String| Candidate { context: context.clone(), text: option.clone() };
        problem.options.iter().map(candidate).collect()
    }

    static TASK: LazyLock<Task> = LazyLock::new(|| Task {
        name: "choice",
        likelihood: Some(tasks::Likelihood { head: |_| String::new(), options: solutions, shots: 0 }),
        ..*tasks::find("wordmath").unwrap()
    });

    fn plan() -> Plan {
        let problem = |more: usize| Problem {
            id: more.to_string(),
            question: format!("Ada has 13 pears. Ben gives Ada {more} more. How many pears are there in the end?"),
            options: [11, 13 + more, 9]
                .map(|sum| format!("13+{more}={sum} pears.\nThe final answer is {sum}"))
                .to_vec(),
            gold: Gold::Option(1),
            ..Problem::default()
        };
        let problems = vec![problem(4), problem(6)];
        Plan { task: &TASK, style: &TASK.styles[0], problems, available: 2, shots: Shots::default(), system: None }
    }

    #[test]
    fn the_likeliest_option_is_the_answer() {
        let mut model = Model::demo().unwrap();
        let options = LikelihoodOptions { draws: 16, ..LikelihoodOptions::default() };
        let swept = Swept { values: Vec::new(), options: Options::default(), likelihood: Some(options) };
        let plans = [plan()];
        let rehearsed = rehearse(&|prompt, options| model.prepare(prompt, options), &plans, &[swept]).unwrap();
        let combinations: Vec<Combination> = rehearsed.into_iter().map(|one| one.combination).collect();
        assert_eq!(combinations[0].label, "likelihood");
        let mut store = Store::nowhere();
        let runs = Runs { plans: &plans, combinations: &combinations, width: 1, permission: None };
        let made = run(&mut model, runs, &mut store, &mut |_| ControlFlow::Continue(()));
        assert_eq!(made.unwrap().items, 2);
        for (record, problem) in store.records().iter().zip(&plans[0].problems) {
            let mut of = |Candidate { context, text }: &Candidate| {
                let (context, continuation) = model.prompter().pair(&Prompt::Raw(context.clone()), text).unwrap();
                model.log_likelihood(&context, &continuation, &options, &mut || true).unwrap().log_probability
            };
            let expected: Vec<f64> = solutions(problem).iter().map(&mut of).collect();
            assert_eq!(record.receipt["log_likelihoods"], json!(expected));
            assert!(expected[1] > expected[0] && expected[1] > expected[2], "{expected:?}");
            assert!(record.verdict.correct && record.output == problem.options[1]);
        }
    }

    #[test]
    fn a_task_without_options_is_refused() {
        let model = Model::demo().unwrap();
        let likelihood = Some(LikelihoodOptions::default());
        let swept = Swept { values: Vec::new(), options: Options::default(), likelihood };
        let task = tasks::find("wordmath").unwrap();
        let plans = [plan(), Plan { task, ..plan() }];
        let refused =
            rehearse(&|prompt, options| model.prepare(prompt, options), &plans, &[swept]).unwrap_err().to_string();
        let told = "task wordmath is not asked by likelihood: use `score` generate, or one of ";
        assert!(refused.starts_with(told) && refused.contains("arc-easy, arc-challenge"), "{refused}");
    }
}
