//! Runs that get the predictions of a recorded run instead of their network's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use demask_decode::Session;
use demask_step::{ForwardInput, NO_TOKEN, Positions, Predictions, TokenId, TokenScore};

use super::dry_run::{DryRunGroup, MockNetwork, ReplayError, dry_run};
use crate::{
    ModelInfo, TraceLine,
    record::{Number, Record},
};

fn floats(values: &[Number]) -> Vec<f32> {
    values.iter().map(|&value| value.into()).collect()
}

/// The predictions of a record, its tokens translated.
fn predictions(record: &Record, positions: Positions, translate: &BTreeMap<TokenId, TokenId>) -> Predictions {
    let word = |token: TokenId| translate.get(&token).copied().unwrap_or(token);
    let judged = |&(rank, log_probability, best): &(u32, Number, Number)| TokenScore {
        rank,
        log_probability: log_probability.into(),
        best: best.into(),
    };
    Predictions {
        lanes: record.lanes,
        positions,
        tokens: record.tokens.iter().map(|token| token.map_or(NO_TOKEN, word)).collect(),
        confidence: floats(&record.confidence),
        margin: floats(&record.margin),
        entropy: floats(&record.entropy),
        top: record.top.iter().map(|&(token, probability)| (word(token), probability.into())).collect(),
        scores: record.judged.iter().map(judged).collect(),
        ..Predictions::default()
    }
}

/// Tokens that a record names.
fn named(record: &Record) -> impl Iterator<Item = TokenId> + '_ {
    let best = record.top.iter().map(|&(token, _)| token).filter(|&token| token != NO_TOKEN);
    record.tokens.iter().flatten().copied().chain(best)
}

/// Predictions of a recorded run, in its order.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Prompt tokens.
    pub prompt_tokens: usize,
    /// Positions after the prompt, the last block's overhang included.
    pub length: usize,
    /// The decoder with its parameters.
    pub decoder: String,
    /// The cache policy with its parameters.
    pub cache: String,
    records: VecDeque<Record>,
    translate: BTreeMap<TokenId, TokenId>,
    replayed: usize,
}

impl Recorded {
    /// Takes the predictions of a trace.
    ///
    /// # Errors
    /// If it has none.
    pub fn new(lines: Vec<TraceLine>) -> Result<Self, ReplayError> {
        let (mut header, mut records) = (None, VecDeque::new());
        for line in lines {
            match line {
                TraceLine::Header { prompt, length, decoder, cache, .. } => {
                    header = Some((prompt.len(), length, decoder, cache));
                }
                TraceLine::Predictions { record, .. } => records.push_back(record),
                TraceLine::Draft { .. }
                | TraceLine::Target { .. }
                | TraceLine::Step { .. }
                | TraceLine::Replace { .. }
                | TraceLine::Commit { .. } => {}
            }
        }
        let (prompt_tokens, length, decoder, cache) =
            header.filter(|_| !records.is_empty()).ok_or(ReplayError::NoPredictions)?;
        let (translate, taken) = (BTreeMap::new(), 0);
        Ok(Self { prompt_tokens, length, decoder, cache, records, translate, replayed: taken })
    }

    /// Translates its tokens to those of networks with so many tokens and these masks: each to itself, or if that is none of
    /// theirs, or a mask, to one that the trace does not name.
    fn translated(mut self, vocabulary: usize, masks: &[TokenId]) -> Result<Self, ReplayError> {
        let names: BTreeSet<TokenId> = self.records.iter().flat_map(named).collect();
        let fits = |token: &TokenId| (*token as usize) < vocabulary && !masks.contains(token);
        let mut free = (0..vocabulary as TokenId).rev().filter(|token| fits(token) && !names.contains(token));
        for &token in names.iter().filter(|token| !fits(token)) {
            let known = (0..vocabulary as TokenId).filter(fits).count();
            let other = free.next().ok_or(ReplayError::Vocabulary { recorded: names.len(), known })?;
            self.translate.insert(token, other);
        }
        Ok(self)
    }

    /// Refuses a session that is another one than that which was recorded.
    fn check(&self, session: &Session) -> Result<(), ReplayError> {
        let (receipt, response) = (session.receipt(), session.layout().response());
        let length = session.canvas().len() - response;
        let facts = [
            ("a prompt of", format!("{} tokens", self.prompt_tokens), format!("{response} tokens")),
            ("a response of", format!("{} positions", self.length), format!("{length} positions")),
            ("decoder", self.decoder.clone(), receipt.decoder),
            ("cache", self.cache.clone(), receipt.cache),
        ];
        match facts.into_iter().find(|(_, recorded, found)| recorded != found) {
            Some((what, recorded, found)) => Err(ReplayError::Different { what, recorded, found }),
            None => Ok(()),
        }
    }

    /// Runs a session of these networks without them, and returns what they have to predict for it to be the recorded run.
    /// `see` as for [`dry_run`].
    ///
    /// # Errors
    /// If the session is not the recorded one.
    pub fn script(
        self,
        session: &mut Session,
        networks: &[&ModelInfo],
        see: &mut dyn FnMut(&DryRunGroup<'_>, &mut [Predictions]),
    ) -> Result<Script, ReplayError> {
        self.check(session)?;
        let facts = networks.iter().map(|info| info.facts());
        let vocabulary = facts.clone().map(|facts| facts.vocab).min().unwrap_or(0);
        let masks: Vec<TokenId> = facts.filter_map(|facts| facts.mask_id).collect();
        let mut recorded = self.translated(vocabulary, &masks)?;
        let mut feeds = Vec::new();
        dry_run(session, &mut recorded, &mut |asked, answers| {
            see(asked, answers);
            feeds.push(answers.to_vec());
        })?;
        Ok(Script { feeds: feeds.into() })
    }
}

impl MockNetwork for Recorded {
    fn answer(
        &mut self,
        asked: &DryRunGroup<'_>,
        ForwardInput { plan, .. }: &ForwardInput,
    ) -> Result<Predictions, ReplayError> {
        let mut positions = Positions::new();
        positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
        let record = self.records.pop_front().ok_or(ReplayError::Short { steps: self.replayed })?;
        self.replayed = record.step + 1;
        let lanes = plan.lanes.count();
        let told = |lanes: usize, network: usize, positions: &Positions| {
            let whose = if network == 0 { "" } else { " of the guide" };
            if lanes > 1 { format!("{positions}{whose} in {lanes} drafts") } else { format!("{positions}{whose}") }
        };
        let mut were = Positions::new();
        record.positions.iter().for_each(|&position| were.insert(position));
        let rows = lanes * positions.len();
        let whole = record.tokens.len() == rows && record.confidence.len() == rows;
        if (record.lanes, record.network, &were) != (lanes, asked.network, &positions) || !whole {
            return Err(ReplayError::Elsewhere {
                step: asked.step,
                found: told(lanes, asked.network, &positions),
                recorded: told(record.lanes, record.network, &were),
            });
        }
        Ok(predictions(&record, positions, &self.translate))
    }
}

/// Predictions for each feed of a session, which take the place of the networks' own.
#[derive(Debug, Clone, Default)]
pub struct Script {
    feeds: VecDeque<Vec<Predictions>>,
}

impl Script {
    /// Returns what to feed in place of `answers`, which it costs all the same. They are fed themselves after its end.
    pub fn next(&mut self, answers: &[Predictions]) -> Vec<Predictions> {
        let Some(mut feed) = self.feeds.pop_front() else { return answers.to_vec() };
        feed.iter_mut().zip(answers).for_each(|(told, ran)| told.cost = ran.cost);
        feed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TRACE_VERSION;

    fn recorded(tokens: &[Option<TokenId>]) -> Recorded {
        let header = TraceLine::Header {
            version: TRACE_VERSION,
            model: "m".into(),
            prompt: vec![1, 2],
            length: 4,
            given: Vec::new(),
            decoder: "static".into(),
            cache: "none".into(),
            seed: 0,
        };
        let record = Record { lanes: 1, tokens: tokens.to_vec(), top: vec![(6, 0.5.into())], ..Record::default() };
        let predictions = TraceLine::Predictions { record };
        Recorded::new(vec![header, predictions]).unwrap()
    }

    #[test]
    fn tokens_that_a_model_lacks_become_others_that_the_trace_does_not_name() {
        let named = [Some(3), Some(7), Some(9), None];
        // 9 is the mask and 12 tokens are known: 3, 6 and 7 stay.
        let translated = recorded(&named).translated(12, &[9]).unwrap();
        assert_eq!(translated.translate, BTreeMap::from([(9, 11)]));
        let translated = recorded(&named).translated(8, &[0]).unwrap();
        assert_eq!(translated.translate, BTreeMap::from([(9, 5)]));
        let refused = recorded(&named).translated(5, &[0, 1]).unwrap_err();
        assert_eq!(refused, ReplayError::Vocabulary { recorded: 4, known: 3 });
        let predicted = recorded(&named).translated(12, &[9]).unwrap();
        let predictions = predictions(&predicted.records[0], Positions::new(), &predicted.translate);
        assert_eq!((predictions.tokens, predictions.top), (vec![3, 7, 11, NO_TOKEN], vec![(6, 0.5)]));
    }

    #[test]
    fn numbers_of_a_trace_may_be_infinite() {
        for value in [0.1f32, -0.0, f32::MIN, f32::MAX, f32::INFINITY, f32::NEG_INFINITY] {
            let text = serde_json::to_string(&Number::from(value)).unwrap();
            let read: f32 = serde_json::from_str::<Number>(&text).unwrap().into();
            assert_eq!(read.to_bits(), value.to_bits(), "{text}");
        }
    }
}
