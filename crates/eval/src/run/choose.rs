//! Multiple choice without writing: the option that the model holds for the most probable continuation is its answer, by its
//! likelihood or by a decision.

use std::{collections::VecDeque, time::Instant};

use demask::receipt::peak_memory;
use demask::{Decisions, Error, Likelihood, LikelihoodOptions, Model, Prompt, Question, QuestionKind};
use serde_json::{Value, json};

use super::{
    Answering, Ask, Choosing, Happened, Item, RunError, emit,
    work::{Outcome, Work},
};
use crate::{Counts, Gold, Problem, Verdict, tasks::Candidate};

impl Work<'_, '_> {
    /// Chooses an option for each problem.
    pub(super) fn choose(mut self, model: &Model, pending: VecDeque<Item>) -> Result<(), RunError> {
        for item in pending {
            let (ask, problem) = self.item(item);
            let outcome = match ask.choosing {
                None => continue,
                Some(Choosing::Likelihood(options)) => {
                    let options = LikelihoodOptions { seed: self.combination.seed, ..options };
                    self.judge(model, problem, &ask.candidates(problem)?, &options)
                }
                Some(Choosing::Decision) => {
                    emit(self.observer, Happened::Step)?;
                    self.decide(model, ask, problem)?
                }
            };
            let outcome = match outcome {
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

    fn judge(
        &mut self,
        model: &Model,
        problem: &Problem,
        candidates: &[Candidate],
        options: &LikelihoodOptions,
    ) -> Result<Outcome, Error> {
        let started = Instant::now();
        let pair = |Candidate { context, text }: &Candidate| model.info().pair(&Prompt::Raw(context.clone()), text);
        let pairs = candidates.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        let mut go_on = || (self.observer)(Happened::Step).is_continue();
        let likelihoods = model.log_likelihoods(&pairs, options, &mut go_on)?;
        // The first of those that are equally probable.
        let likelier = |best: usize, index: usize| {
            if likelihoods[index].log_probability > likelihoods[best].log_probability { index } else { best }
        };
        let chosen = (0..likelihoods.len()).reduce(likelier);
        let Candidate { context, text } = chosen.map(|chosen| &candidates[chosen]).ok_or(Error::EmptyLikelihood)?;
        let output = text.trim().to_owned();
        let correct = matches!(problem.gold, Gold::Option(right) if Some(right) == chosen);
        let (cost, total) = (Cost::of_likelihoods(&likelihoods), started.elapsed().as_secs_f64());
        let mut receipt = receipt(model, Answering::Likelihood, &cost, options.seed, total);
        receipt["log_likelihoods"] = likelihoods.iter().map(|one| one.log_probability).collect();
        receipt["option_tokens"] = likelihoods.iter().map(|one| one.tokens).collect();
        Ok(Outcome {
            prompt: context.clone(),
            verdict: Verdict::of(output.clone(), correct),
            output,
            counts: Counts::default(),
            receipt,
        })
    }

    /// Lets the model decide between the options, after the prompt in the words of a style.
    fn decide(&self, model: &Model, ask: &Ask, problem: &Problem) -> Result<Result<Outcome, Error>, RunError> {
        let Some(instructions) = ask.task.decision else { return Ok(Err(Error::EmptyLikelihood)) };
        let (prompt, instructions) = (ask.prompt(problem)?, instructions.of(problem)?);
        let words = model.info().in_words(&prompt)? + &instructions;
        let question = Question::new(instructions, QuestionKind::Choice(problem.options.clone()));
        let started = Instant::now();
        Ok(model.decide(prompt, &[question]).map(|found| {
            let (answer, total) = (&found.answers[0], started.elapsed().as_secs_f64());
            let (cost, seed) = (Cost::of_decisions(&found), self.combination.seed);
            let mut receipt = receipt(model, Answering::Decision, &cost, seed, total);
            receipt["choices"] = json!(answer.choices);
            receipt["probabilities"] = json!(answer.probabilities);
            receipt["mass"] = json!(answer.mass);
            let output = problem.options[answer.choice].clone();
            let correct = matches!(problem.gold, Gold::Option(right) if right == answer.choice);
            let verdict = Verdict::of(output.clone(), correct);
            Outcome { prompt: words, output, verdict, counts: Counts::default(), receipt }
        }))
    }
}

/// What choosing took.
struct Cost {
    forwards: usize,
    flops: f64,
    seconds: f64,
    cached_tokens: usize,
}

impl Cost {
    fn of_likelihoods(all: &[Likelihood]) -> Self {
        Self {
            forwards: all.iter().map(|one| one.forwards).sum(),
            flops: all.iter().map(|one| one.flops).sum(),
            seconds: all.iter().map(|one| one.seconds).sum(),
            cached_tokens: all.iter().map(|one| one.cached_tokens).sum(),
        }
    }

    fn of_decisions(all: &Decisions) -> Self {
        let &Decisions { forwards, flops, seconds, cached_tokens, .. } = all;
        Self { forwards, flops, seconds, cached_tokens }
    }
}

/// The receipt of an answer, as far as a choice has one.
fn receipt(model: &Model, by: Answering, cost: &Cost, seed: u64, total: f64) -> Value {
    let &Cost { forwards, flops, seconds, cached_tokens } = cost;
    let mut memory = json!({"weights": model.weight_bytes(), "peak": peak_memory()});
    if let Some(device) = model.device_memory() {
        memory["device"] = json!(device);
    }
    let mut receipt = json!({
        "model": model.name(),
        "device": model.device(),
        "decoder": by.name(),
        "seed": seed,
        "nfe": forwards,
        "forwards": forwards,
        "flops": flops,
        "seconds": {"load": model.load_time().as_secs_f64(), "model": seconds, "total": total, "wall": total},
        "memory": memory,
    });
    if cached_tokens > 0 {
        receipt["cached_tokens"] = cached_tokens.into();
    }
    receipt
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::{
        Task,
        run::{AskOptions, Asking, tests},
        tasks,
    };

    /// Solutions as candidates, after the question in the words that the model was trained with.
    const CHOICE: &str = r#"
extends = "wordmath"
[likelihood]
context = "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\n{{ question }}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
option = "{{ option }}"
"#;

    fn task() -> &'static Task {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("choice.toml");
        std::fs::write(&path, CHOICE).unwrap();
        tasks::read(&path).unwrap()
    }

    fn problems() -> Vec<Problem> {
        let problem = |more: usize| Problem {
            id: more.to_string(),
            question: format!("Ada has 13 pears. Ben gives Ada {more} more. How many pears are there in the end?"),
            options: [11, 13 + more, 9]
                .map(|sum| format!("13+{more}={sum} pears.\nThe final answer is {sum}"))
                .to_vec(),
            gold: Gold::Option(1),
            ..Problem::default()
        };
        vec![problem(4), problem(6)]
    }

    fn asking() -> Asking {
        let score = Some("likelihood".to_owned());
        let ask = AskOptions { score, likelihood_draws: Some(16), ..AskOptions::default() };
        Asking { ask, ..Asking::default() }
    }

    #[test]
    fn the_likeliest_option_is_the_answer() {
        let mut model = Model::demo().unwrap();
        let task = task();
        let plan = tests::plan(task, problems(), &asking());
        let (made, store) = tests::run_all(&mut model, &plan, 1, &mut |_| ControlFlow::Continue(()));
        assert_eq!(made.unwrap().items, 2);
        let options = match plan.rows[0].asks[0].choosing {
            Some(Choosing::Likelihood(options)) => options,
            other => panic!("{other:?}"),
        };
        for (record, problem) in store.records().iter().zip(problems()) {
            assert_eq!(record.run, "likelihood");
            let mut of = |Candidate { context, text }: &Candidate| {
                let (context, continuation) = model.info().pair(&Prompt::Raw(context.clone()), text).unwrap();
                model.log_likelihood(&context, &continuation, &options).unwrap().log_probability
            };
            let expected: Vec<f64> =
                task.likelihood.unwrap().candidates(&problem, &[]).unwrap().iter().map(&mut of).collect();
            assert_eq!(record.receipt["log_likelihoods"], json!(expected));
            assert!(expected[1] > expected[0] && expected[1] > expected[2], "{expected:?}");
            assert!(record.verdict.correct && record.output == problem.options[1]);
        }
    }

    #[test]
    fn a_task_without_options_is_refused() {
        let model = Model::demo().unwrap();
        let plan = tests::plan(tasks::find("wordmath").unwrap(), problems(), &asking());
        let refused = plan.dry_run(0, &|prompt, options| model.prepare(prompt, options)).unwrap_err().to_string();
        let told = "task wordmath is not asked by likelihood: use `score` generate, or one of ";
        assert!(refused.starts_with(told) && refused.contains("arc-easy, arc-challenge"), "{refused}");
    }
}
