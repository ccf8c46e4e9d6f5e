//! Job with a list of steps that knows every prediction beforehand, and how it may misbehave.

use std::cell::Cell;

use demask_step::{
    ForwardInput, Job, LayerRows, Mask, Pending, Position, Positions, Predictions, SequenceLimits, SequenceSpec,
    StepPlan,
};

use super::machine::predicted;

/// A step of a job: groups of one request each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) network: usize,
    pub(super) groups: usize,
    pub(super) rows: usize,
    pub(super) kind: Option<bool>,
    /// Whether its rows see none after them, so that it can be cut; its last row predicts then.
    pub(super) causal: bool,
}

/// Misbehaviour of a job, in its last step unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Manner {
    Good,
    /// Panics when it is opened.
    Trips,
    Panics,
    BadPlan,
    NoGroup,
    Stranger,
    TwoNetworks,
    Changes,
}

/// Job with a list of steps that knows every answer beforehand.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) name: u32,
    pub(super) parts: Vec<Part>,
    pub(super) manner: Manner,
    pub(super) needs: Vec<SequenceSpec>,
    pub(super) requests: Vec<ForwardInput>,
    /// Groups of the step that were fed.
    pub(super) fed: usize,
    pub(super) at: usize,
    pub(super) asked: Cell<usize>,
    /// Positions that each step sees more than the one before; 0: memory is taken as a whole.
    pub(super) grows: usize,
    pub(super) preempted: usize,
}

impl Steps {
    pub(super) fn new(name: u32, positions: usize, parts: Vec<Part>, manner: Manner) -> Self {
        let most = |network: usize| {
            let own = parts.iter().filter(|part| part.network == network);
            own.map(|part| part.groups).max().unwrap_or(0)
        };
        let need =
            |network| SequenceSpec { network, limits: SequenceLimits { positions, ..SequenceLimits::default() } };
        let needs = (0..2).flat_map(|network| vec![need(network); most(network)]).collect();
        let mut job = Self {
            name,
            parts,
            manner,
            needs,
            requests: Vec::new(),
            fed: 0,
            at: 0,
            asked: Cell::new(0),
            grows: 0,
            preempted: 0,
        };
        job.fill();
        job
    }

    /// Lets each step see so many positions more than the one before, of which none has memory before that.
    pub(super) fn growing(mut self, by: usize) -> Self {
        self.grows = by;
        self.parts.iter_mut().for_each(|part| part.causal &= by == 0);
        self.needs.iter_mut().filter(|_| by > 0).for_each(|need| need.limits.opens_with = Some(by));
        self.fill();
        self
    }

    /// Rows of its largest group.
    pub(super) fn largest(&self) -> usize {
        self.parts.iter().map(|part| part.rows).max().unwrap_or(0)
    }

    fn fill(&mut self) {
        self.asked.set(0);
        let Some(part) = self.parts.get(self.at).copied() else { return self.requests.clear() };
        let first = self.needs.iter().position(|need| need.network == part.network).unwrap_or(0);
        let groups = self.fed..part.groups;
        let token = |group: usize| self.name << 16 | (self.at as u32) << 8 | group as u32;
        let request = |group: usize| {
            let layers = part.kind.map_or(LayerRows::All, |first_whole| LayerRows::Partial {
                compute: Positions::new(),
                probe: None,
                first_whole,
            });
            let rows = part.rows as Position;
            let plan = if part.causal {
                StepPlan {
                    query: (0..rows).into(),
                    kv_len: rows,
                    mask: Mask::Causal,
                    predict: (rows - 1..rows).into(),
                    ..StepPlan::default()
                }
            } else {
                StepPlan { kv_len: 1, layers, predict: (0..3).into(), ..StepPlan::default() }
            };
            let tokens = vec![token(group); part.rows];
            ForwardInput { sequence: first + group, tokens, plan, ..ForwardInput::default() }
        };
        self.requests = groups.map(request).collect();
        for request in self.requests.iter_mut().filter(|_| self.grows > 0) {
            let positions = self.needs[request.sequence].limits.positions;
            request.plan.kv_len = (self.grows * (self.at + 1)).min(positions) as Position;
        }
        if self.at + 1 < self.parts.len() {
            return;
        }
        match self.manner {
            Manner::BadPlan => self.requests[0].plan.kv_len = 0,
            Manner::Stranger => self.requests[0].sequence = 99,
            Manner::TwoNetworks => {
                let mut other = self.requests[0].clone();
                other.sequence = self.needs.iter().position(|need| need.network != part.network).unwrap_or(99);
                self.requests.push(other);
            }
            _ => {}
        }
    }
}

impl Job for Steps {
    fn needs(&self) -> &[SequenceSpec] {
        &self.needs
    }

    fn pending(&self) -> Pending<'_> {
        if self.requests.is_empty() {
            return Pending::Done;
        }
        let last = self.at + 1 == self.parts.len();
        // It is asked several times before it is fed.
        let asked = self.asked.replace(self.asked.get() + 1);
        let group = usize::from(!last || self.manner != Manner::NoGroup);
        let changed = last && self.manner == Manner::Changes && asked >= 4;
        Pending::Run { requests: if changed { &self.requests[..0] } else { &self.requests }, group }
    }

    fn opened(&mut self, filled: &[Position]) {
        assert_eq!(filled, vec![0; self.needs.len()], "these machines keep nothing");
        assert!(self.manner != Manner::Trips, "this job trips");
    }

    fn preempted(&mut self) {
        assert!(self.grows > 0, "a job whose memory was taken as a whole keeps it");
        self.preempted += 1;
    }

    fn feed(&mut self, answers: &[Predictions]) {
        let last = self.at + 1 == self.parts.len();
        assert!(!(last && self.manner == Manner::Panics), "this job panics");
        for (request, answer) in self.requests.iter().zip(answers) {
            let asked = request.plan.predict.iter();
            let expected: Vec<u32> = asked.map(|position| predicted(request.tokens[0], position)).collect();
            assert_eq!(answer.tokens, expected, "the answers are its own");
        }
        self.fed += answers.len();
        if self.fed == self.parts[self.at].groups {
            (self.fed, self.at) = (0, self.at + 1);
        }
        self.fill();
    }
}

pub(super) fn part(network: usize, groups: usize, rows: usize) -> Part {
    Part { network, groups, rows, kind: None, causal: false }
}

/// A job that reads a prompt of so many rows, which can be cut, and takes steps of one row then.
pub(super) fn reads(name: u32, prompt: usize, steps: usize) -> Steps {
    let prompt = Part { causal: true, ..part(0, 1, prompt) };
    let parts = [vec![prompt], vec![part(0, 1, 1); steps]].concat();
    Steps::new(name, 10, parts, Manner::Good)
}

pub(super) fn plain(name: u32, steps: usize, rows: usize) -> Steps {
    Steps::new(name, 10, vec![part(0, 1, rows); steps], Manner::Good)
}
