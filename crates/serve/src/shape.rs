//! The JSON of answers: one shape for each endpoint, written whole or in chunks.

use demask::{
    Finish, Generation, TokenId, Tokenizer,
    parts::{AnswerPart, AnswerReader},
};
use serde_json::{Map, Value, json};

use crate::{
    answer::{Counts, Head, finish_reason},
    ask::{Judged, Wishes},
    date,
    echo::Echo,
    form::{Answered, Block, Choice, Form},
    inner::Inner,
    logprobs,
    names::Names,
    random,
    run::Run,
};

/// Shape that all chunks and bodies of a request have in common.
#[derive(Debug)]
pub struct Shape {
    /// Form that the request's endpoint has.
    pub form: &'static dyn Form,
    /// What all bodies and messages say of the request.
    pub head: Head,
    /// Fingerprint by which the answers can be made again: model, weights, version.
    fingerprint: String,
    /// Parts that are wanted beside the text.
    pub wishes: Wishes,
    /// Names by which the client set options.
    names: Names,
    /// Text before an answer that is returned with it (`echo`), one for each prompt.
    pub echo: Vec<String>,
    /// Reader of the answers' parts, where the model's template has any.
    pub reader: Option<AnswerReader>,
}

impl Shape {
    /// Makes the shape of a request's answers.
    pub fn new(form: &'static dyn Form, service: &Inner, wishes: Wishes, names: Names) -> Self {
        Self {
            form,
            head: Head {
                id: random::name(form.prefix()),
                created: date::now(),
                model: service.name().to_owned(),
                end_ids: service.handle.info().end_ids().to_vec(),
                request: Map::new(),
            },
            fingerprint: service.fingerprint.clone(),
            wishes,
            names,
            echo: Vec::new(),
            reader: None,
        }
    }

    fn head(&self, chunk: bool) -> Map<String, Value> {
        let mut head = Map::new();
        head.insert("id".to_owned(), json!(self.head.id));
        head.insert("object".to_owned(), json!(self.form.object(chunk)));
        head.insert("created".to_owned(), json!(self.head.created));
        head.insert("model".to_owned(), json!(self.head.model));
        if self.form.is_list() {
            head.insert("system_fingerprint".to_owned(), json!(self.fingerprint));
        }
        head
    }

    /// Returns a chunk with one choice.
    pub fn chunk(&self, choice: Value) -> Map<String, Value> {
        let mut chunk = self.head(true);
        match (self.form.is_flat(), choice) {
            (true, Value::Object(choice)) => chunk.extend(choice),
            (_, choice) => drop(chunk.insert("choices".to_owned(), json!([choice]))),
        }
        if self.wishes.stream.is_some_and(|stream| stream.usage) {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        chunk
    }

    /// Returns the choice that ends an answer in a stream, without text; `calls`: functions are called in it.
    pub fn last(&self, index: usize, generation: &Generation, calls: bool) -> Value {
        let mut part = self.form.part(index, "", false, None);
        part["finish_reason"] = json!(finish_of(generation.finish, calls));
        part["stop_reason"] = self.head.stop_reason(generation);
        let mut part = self.form.last(part, generation);
        if self.wishes.token_ids && !self.form.is_flat() {
            part["token_ids"] = json!(token_ids(generation));
        }
        part
    }

    /// Returns the last chunk before the end of a stream: counts of tokens, and no choice.
    pub fn usage_chunk(&self, usage: &Value) -> Map<String, Value> {
        let mut chunk = self.head(true);
        chunk.insert("choices".to_owned(), json!([]));
        chunk.insert("usage".to_owned(), usage.clone());
        chunk
    }

    /// Returns the object `diffusion` of an answer: its seed, its NFE and, where requested, its receipt.
    pub fn diffusion(&self, generation: &Generation, seed: u64) -> Value {
        let mut diffusion = json!({"seed": seed, "nfe": generation.receipt.decoding.nfe});
        if self.wishes.receipt {
            let mut receipt = serde_json::to_value(&generation.receipt).unwrap_or_default();
            if let Some(more) = &generation.receipt.more {
                receipt["more"] = json!(self.names.with_client_names(more));
            }
            diffusion["receipt"] = receipt;
        }
        diffusion
    }

    /// Returns the body of a request whose answers are all over. Each answer is written by itself: as values, all of them
    /// together would take many times the memory of their text.
    pub fn whole(&self, run: &Run, tokenizer: Option<&Tokenizer>) -> String {
        if let (Some(dialect), Some((answer, _))) = (self.form.dialect(), run.answer(0)) {
            let blocks = Block::all(self.all_parts(answer));
            return dialect.body(&self.head, &answered(answer, &blocks, tokenizer)).to_string();
        }
        let mut body = self.head(false);
        let answers: Vec<_> = (0..run.len()).filter_map(|index| run.answer(index)).collect();
        let choices = answers.iter().enumerate().map(|(index, (generation, seed))| {
            let mut choice = self.choice(index, generation, tokenizer);
            if let Some(echo) = run.echoes().get(index / self.wishes.choices) {
                choice["logprobs"] = json!(logprobs::behind(echo, self.echo_of(index), Some(generation), tokenizer));
            }
            if !self.form.is_flat() {
                choice["diffusion"] = self.diffusion(generation, *seed);
            }
            choice
        });
        let judged = (self.wishes.judged == Judged::Alone).then(|| self.judged(run, tokenizer));
        let mut choices = choices.chain(judged.into_iter().flatten());
        if let Some((generation, seed)) = answers.first() {
            body.insert("diffusion".to_owned(), self.diffusion(generation, *seed));
        }
        let mut list = None;
        if self.form.is_list() {
            let written: Vec<String> = choices.map(|choice| choice.to_string()).collect();
            list = Some(written.join(","));
        } else if let Some(Value::Object(choice)) = choices.next() {
            body.extend(choice);
        }
        let usage = match self.wishes.judged {
            Judged::Alone => {
                let of = |echo: &Echo| Counts { prompt: echo.tokens(), ..Counts::default() };
                self.usage(self.repeated(run).map(of))
            }
            Judged::No | Judged::BesideAnswers => self.usage(answers.iter().map(|(answer, _)| Counts::of(answer))),
        };
        let usage = json!({"usage": usage}).to_string();
        let head = Value::Object(body).to_string();
        // Objects of at least one field each, put together.
        let (head, usage) = (head.strip_suffix('}').unwrap_or(&head), usage.strip_prefix('{').unwrap_or(&usage));
        match list {
            Some(list) => format!("{head},\"choices\":[{list}],{usage}"),
            None => format!("{head},{usage}"),
        }
    }

    /// The judged prompts, each as often as answers to it are asked for.
    fn repeated<'a>(&self, run: &'a Run) -> impl Iterator<Item = &'a Echo> + use<'a> {
        let choices = self.wishes.choices;
        run.echoes().iter().flat_map(move |echo| std::iter::repeat_n(echo, choices))
    }

    /// The choices of a request that generates nothing.
    fn judged(&self, run: &Run, tokenizer: Option<&Tokenizer>) -> impl Iterator<Item = Value> {
        self.repeated(run).enumerate().map(move |(index, echo)| {
            let mut choice = json!({
                "index": index,
                "text": self.echo.get(index / self.wishes.choices),
                "logprobs": logprobs::behind(echo, self.echo_of(index), None, tokenizer),
                "finish_reason": finish_reason(Finish::Length),
                "stop_reason": null,
            });
            if self.wishes.token_ids {
                choice["token_ids"] = json!([]);
            }
            choice
        })
    }

    /// A choice of a whole body.
    fn choice(&self, index: usize, generation: &Generation, tokenizer: Option<&Tokenizer>) -> Value {
        let wanted = self.wishes.logprobs;
        let logprobs = wanted.then(|| logprobs::from(self.form, generation, 0, tokenizer)).flatten();
        let (text, asides) = self.parts_of(generation);
        let mut choice = self.form.choice(Choice {
            index,
            text: format!("{}{text}", self.echo_of(index)),
            logprobs,
            finish: finish_of(generation.finish, asides.iter().any(is_call)),
            stop: self.head.stop_reason(generation),
            holes: &generation.holes,
            asides: &asides,
        });
        if self.wishes.token_ids {
            choice["token_ids"] = json!(token_ids(generation));
        }
        choice
    }

    /// Returns an answer's text, and its other parts: thoughts and calls.
    pub fn parts_of(&self, generation: &Generation) -> (String, Vec<AnswerPart>) {
        sorted(self.all_parts(generation))
    }

    /// Returns the parts of an answer in their order.
    fn all_parts(&self, generation: &Generation) -> Vec<AnswerPart> {
        let text = self.text_of(generation);
        let Some(mut reader) = self.reader.clone() else { return vec![AnswerPart::Content(text)] };
        reader.feed(&text).into_iter().chain(reader.end()).collect()
    }

    /// Returns the text before an answer that is returned with it.
    pub fn echo_of(&self, index: usize) -> &str {
        self.echo.get(index / self.wishes.choices).map_or("", String::as_str)
    }

    /// An answer's text; its ids, if the model has no tokenizer. Of a text with holes it is what fills them, but where
    /// the whole text was asked for.
    pub fn text_of(&self, generation: &Generation) -> String {
        match &generation.holes[..] {
            [_, ..] if !self.form.has_whole_text() => generation.holes.concat(),
            _ => generation.to_string(),
        }
    }

    /// Returns the sums of the tokens of prompts and answers, given for all answers in their order; a prompt counts once,
    /// however many answers it gets. Once all are over, the tokens a second of all together follow.
    pub fn usage(&self, counts: impl Iterator<Item = Counts>) -> Value {
        let mut sums = Counts::default();
        for (index, counts) in counts.enumerate() {
            if index.is_multiple_of(self.wishes.choices) {
                sums.prompt += counts.prompt;
                sums.cached += counts.cached;
            }
            sums.generated += counts.generated;
            let before = if index == 0 { Some(0.0) } else { sums.per_second };
            sums.per_second = before.zip(counts.per_second).map(|(before, own)| before + own);
        }
        let Counts { prompt, cached, generated: completion, per_second } = sums;
        let mut usage = json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        });
        if let Some(per_second) = per_second.filter(|_| completion > 0) {
            usage["tokens_per_second"] = json!((per_second * 100.0).round() / 100.0);
        }
        usage
    }
}

/// Returns an answer with its blocks, and how many tokens its thoughts have.
pub fn answered<'a>(answer: &'a Generation, blocks: &'a [Block], tokenizer: Option<&Tokenizer>) -> Answered<'a> {
    let thoughts = blocks.iter().filter_map(|block| match &block.part {
        AnswerPart::Reasoning(text) => Some(tokenizer?.encode(text, false).ok()?.len()),
        _ => None,
    });
    Answered { answer, blocks, thought: thoughts.sum() }
}

/// Puts the text of parts together, and returns the others beside it.
pub fn sorted(parts: impl IntoIterator<Item = AnswerPart>) -> (String, Vec<AnswerPart>) {
    let (mut text, mut asides) = (String::new(), Vec::new());
    for part in parts {
        match part {
            AnswerPart::Content(more) => text.push_str(&more),
            part => asides.push(part),
        }
    }
    (text, asides)
}

/// Reports whether a part is a call.
pub fn is_call(part: &AnswerPart) -> bool {
    matches!(part, AnswerPart::Call(_))
}

/// Word for how an answer ended, which may ask for calls.
fn finish_of(finish: Finish, calls: bool) -> &'static str {
    match finish_reason(finish) {
        "stop" if calls => "tool_calls",
        word => word,
    }
}

/// The answer's tokens; of a text with holes those that fill them, hole after hole.
fn token_ids(generation: &Generation) -> Vec<TokenId> {
    match &generation.hole_positions[..] {
        [] => generation.tokens.clone(),
        holes => holes.iter().filter_map(|hole| generation.canvas.get(hole.clone())).flatten().copied().collect(),
    }
}
