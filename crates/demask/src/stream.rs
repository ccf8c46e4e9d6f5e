//! An answer as it is made, on the thread that asks for it.

use std::{ops::ControlFlow, task::Poll};

use crate::{
    Class, Error, Generation, Likelihood, LikelihoodOptions, Mail, Model, Options, Outcome, Prompt, RequestId,
    mailbox::Mailbox, ticket::typed,
};

/// An answer while it is made: an iterator over updates, the last mail the answer itself. Each call runs forwards until there
/// is something to report. Dropped before its end, the request is cancelled.
pub struct Stream<'m> {
    model: &'m mut Model,
    id: RequestId,
    mailbox: Mailbox,
}

impl Model {
    /// Answers a prompt piece by piece.
    ///
    /// ```no_run
    /// # use demask::{Options, Mail, Model};
    /// let mut model = Model::demo()?;
    /// for mail in model.stream("Ada has 3 pears. Ben gives Ada 4 more. How many?", &Options::default())? {
    ///     match mail {
    ///         Mail::Update(update) => print!("{}", update.text),
    ///         Mail::Over(answer) => println!(" ({} NFE)", answer?.receipt.decoding.nfe),
    ///     }
    /// }
    /// # Ok::<(), demask::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, the options contradict each other or the model, or there can never be
    /// memory for it. What goes wrong later is the last mail.
    pub fn stream(&mut self, prompt: impl Into<Prompt>, options: &Options) -> Result<Stream<'_>, Error> {
        let answer = self.prepare(&prompt.into(), options)?;
        let id = self.submit(answer, Class::default())?;
        Ok(Stream { model: self, id, mailbox: Mailbox::default() })
    }
}

impl Stream<'_> {
    /// Runs a forward, and puts what became of it into the mailbox.
    fn step(&mut self) {
        let Self { model, id, mailbox } = self;
        let over = model.step(&mut |one, progress| {
            if one == *id {
                mailbox.tell(&progress);
            }
            ControlFlow::Continue(())
        });
        mailbox.deliver();
        for (one, outcome) in over {
            if one == *id {
                mailbox.close(outcome);
            } else {
                // Somebody else's: the next step of the model hands it over.
                model.over.push((one, outcome));
            }
        }
    }
}

impl Iterator for Stream<'_> {
    type Item = Mail<Generation>;

    fn next(&mut self) -> Option<Mail<Generation>> {
        loop {
            match self.mailbox.poll(None) {
                Poll::Ready(mail) => return mail.map(typed),
                Poll::Pending => self.step(),
            }
        }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.model.cancel(self.id);
        // What a cancelled request leaves is of no use to anybody.
        let id = self.id;
        self.model.over.retain(|(one, _)| *one != id);
    }
}

impl Model {
    /// Answers a prompt with the model's own methods and lengths.
    ///
    /// ```
    /// let answer = demask::Model::demo()?.generate("Ada has 3 pears. Ben gives Ada 4 more. How many in the end?")?;
    /// assert!(answer.to_string().ends_with("The final answer is 7"));
    /// # Ok::<(), demask::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens or does not fit, or the device fails.
    pub fn generate(&mut self, prompt: impl Into<Prompt>) -> Result<Generation, Error> {
        self.generate_with(prompt, &Options::default())
    }

    /// Answers a prompt.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, the options contradict each other or the model, or the device fails.
    pub fn generate_with(&mut self, prompt: impl Into<Prompt>, options: &Options) -> Result<Generation, Error> {
        self.watch(&prompt.into(), options, &mut |_| ControlFlow::Continue(()))
    }

    /// Fills the `<mask:N>` holes of a text in place.
    ///
    /// # Errors
    /// If the model cannot look ahead, or the text has no hole.
    pub fn infill(&mut self, text: impl Into<String>, options: &Options) -> Result<Generation, Error> {
        self.generate_with(Prompt::Infill(text.into()), options)
    }

    /// Judges how probable a text is behind a prompt: its natural-log probability, or a lower bound of it. Diffusion models
    /// estimate it from draws.
    ///
    /// # Errors
    /// If the model has no such estimate (block-causal ones), or one of the texts is empty.
    pub fn score(
        &mut self,
        prompt: impl Into<Prompt>,
        continuation: &str,
        options: &LikelihoodOptions,
    ) -> Result<Likelihood, Error> {
        let (context, continuation) = self.prompter().pair(&prompt.into(), continuation)?;
        self.log_likelihood(&context, &continuation, options, &mut || true)
    }

    /// Answers many prompts, which share forwards, and returns what came of each in their order.
    ///
    /// # Errors
    /// A prompt that cannot be answered has an error in its place, and the others their answers.
    pub fn batch<P: Into<Prompt>>(
        &mut self,
        prompts: impl IntoIterator<Item = P>,
        options: &Options,
    ) -> Vec<Result<Generation, Error>> {
        let submit = |model: &mut Self, prompt: P| {
            let answer = model.prepare(&prompt.into(), options)?;
            model.submit(answer, Class::default())
        };
        let submitted: Vec<_> = prompts.into_iter().map(|prompt| submit(self, prompt)).collect();
        let wait =
            |submitted: Result<RequestId, _>| match self.run_to_end(submitted?, &mut |_| ControlFlow::Continue(()))? {
                Outcome::Answer(answer) => Ok(*answer),
                Outcome::Likelihoods(_) | Outcome::Session(_) => unreachable!("a prepared prompt is answered"),
            };
        submitted.into_iter().map(wait).collect()
    }
}
