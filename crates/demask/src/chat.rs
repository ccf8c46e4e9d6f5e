//! A conversation with a model, message by message.

use demask_checkpoint::Message;

use crate::{Error, Generation, Handle, Options, Prompt};

/// A conversation: the messages so far, and how the next one is answered. It belongs to no model.
///
/// ```no_run
/// # use demask::{Chat, Model};
/// let model = Model::demo()?;
/// let mut chat = Chat::new(None);
/// println!("{}", chat.say(&model, "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?")?);
/// println!("{}", chat.say(&model, "Ada gives 2 away. How many are left?")?);
/// # Ok::<(), demask::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Chat {
    /// Options of the answers.
    pub options: Options,
    messages: Vec<Message>,
    /// Messages that stay when the others are forgotten.
    pinned: usize,
}

impl Chat {
    /// Starts a conversation, after a system message if there is one.
    pub fn new(system: Option<&str>) -> Self {
        let messages: Vec<_> = system.into_iter().map(|text| Message::new("system", text)).collect();
        Self { options: Options::default(), pinned: messages.len(), messages }
    }

    /// Returns the system message, if there is one.
    pub fn system(&self) -> Option<&str> {
        self.messages[..self.pinned].first().map(|message| message.content.as_str())
    }

    /// Sets the system message of the answers from now on; none takes it away.
    pub fn set_system(&mut self, system: Option<&str>) {
        let system = system.map(|text| Message::new("system", text));
        let former = self.pinned;
        self.pinned = system.iter().len();
        self.messages.splice(..former, system);
    }

    /// Returns the number of turns so far: messages of the user with their answers.
    pub fn turns(&self) -> usize {
        (self.messages.len() - self.pinned) / 2
    }

    /// Forgets the oldest turns.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn forget(&mut self, turns: usize) {
        self.messages.drain(self.pinned..self.pinned + 2 * turns);
    }

    /// Takes the last turn back, and returns the message and its answer; none if nothing was said.
    pub fn take_back(&mut self) -> Option<(String, String)> {
        let start = self.messages.len().checked_sub(2).filter(|&start| start >= self.pinned)?;
        let mut turn = self.messages.drain(start..).map(|message| message.content);
        turn.next().zip(turn.next())
    }

    /// Returns the messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the conversation with another message of the user, which is not yet said.
    pub fn with(&self, message: impl Into<String>) -> Prompt {
        Prompt::from(self.messages.iter().cloned().chain([Message::new("user", message)]).collect::<Vec<_>>())
    }

    /// Notes a message of the user and its answer.
    pub fn heard(&mut self, message: impl Into<String>, answer: impl Into<String>) {
        self.messages.extend([Message::new("user", message), Message::new("assistant", answer)]);
    }

    /// Answers a message. One that cannot be answered is not part of the conversation.
    ///
    /// # Errors
    /// If the conversation does not fit any more, or the device fails.
    pub fn say(&mut self, model: &Handle, message: impl Into<String>) -> Result<Generation, Error> {
        let message = message.into();
        let answer = model.generate_with(self.with(message.as_str()), &self.options)?;
        self.heard(message, answer.text.clone().unwrap_or_default());
        Ok(answer)
    }

    /// Forgets everything but the system message.
    pub fn reset(&mut self) {
        self.messages.truncate(self.pinned);
    }
}
