//! Tasks of a model's scheduler: answers, likelihoods, and bare sessions.

use std::ops::ControlFlow;

use demask_decode::Session;
use demask_step::{Need, Pending, Position, Predictions, Prefix, Work};

use crate::{Class, LikelihoodTask, Prepared, RunEvent, answer::Tell};

/// Work for a model's networks, ready to run.
pub enum Task {
    /// A prompt to be answered.
    Answer(Box<Prepared>),
    /// A continuation to be judged.
    Likelihood(Box<LikelihoodTask>),
    /// A canvas to be decoded by a session that somebody else made.
    Session(Box<Session>),
}

impl Task {
    /// Reports the changes since the last call.
    pub(crate) fn look(&mut self, tell: &mut Tell<'_>) -> ControlFlow<()> {
        match self {
            Self::Answer(answer) => answer.look(tell),
            Self::Likelihood(task) => {
                if let Some(at) = task.began.take() {
                    tell(RunEvent::Began { at })?;
                }
                let (done, all) = task.done();
                tell(RunEvent::Draws { done, all })
            }
            Self::Session(_) => ControlFlow::Continue(()),
        }
    }

    /// Joins the deadline of its class with its own: it ends by the earlier one, and waits in that order.
    pub(crate) fn end_by(&mut self, class: Class) -> Class {
        match self {
            Self::Answer(answer) => {
                answer.end_by(class.deadline);
                Class { deadline: answer.deadline(), ..class }
            }
            Self::Likelihood(_) | Self::Session(_) => class,
        }
    }

    /// Index of the guide that it uses; the first, unless set.
    pub(crate) fn guide(&self) -> usize {
        match self {
            Self::Answer(answer) => answer.guide().unwrap_or(0),
            Self::Likelihood(_) | Self::Session(_) => 0,
        }
    }

    fn work(&self) -> &dyn Work {
        match self {
            Self::Answer(answer) => &**answer,
            Self::Likelihood(task) => &**task,
            Self::Session(session) => &**session,
        }
    }
}

impl Work for Task {
    fn needs(&self) -> &[Need] {
        self.work().needs()
    }

    fn pending(&self) -> Pending<'_> {
        self.work().pending()
    }

    fn feed(&mut self, answers: &[Predictions]) {
        match self {
            Self::Answer(answer) => answer.feed(answers),
            Self::Likelihood(task) => task.feed(answers),
            Self::Session(session) => session.feed(answers),
        }
    }

    fn fault(&self) -> Option<&str> {
        self.work().fault()
    }

    fn is_attended(&self) -> bool {
        self.work().is_attended()
    }

    fn begins(&self, sequence: usize) -> Prefix<'_> {
        self.work().begins(sequence)
    }

    fn opened(&mut self, filled: &[Position]) {
        match self {
            Self::Answer(answer) => answer.opened(filled),
            Self::Likelihood(task) => task.opened(filled),
            Self::Session(session) => session.opened(filled),
        }
    }

    fn began(&mut self) {
        match self {
            Self::Answer(answer) => answer.began(),
            Self::Likelihood(task) => task.began(),
            Self::Session(session) => session.began(),
        }
    }

    fn reusable(&self, sequence: usize) -> Prefix<'_> {
        self.work().reusable(sequence)
    }
}

impl From<Prepared> for Task {
    fn from(answer: Prepared) -> Self {
        Self::Answer(Box::new(answer))
    }
}

impl From<LikelihoodTask> for Task {
    fn from(task: LikelihoodTask) -> Self {
        Self::Likelihood(Box::new(task))
    }
}

impl From<Session> for Task {
    fn from(session: Session) -> Self {
        Self::Session(Box::new(session))
    }
}
