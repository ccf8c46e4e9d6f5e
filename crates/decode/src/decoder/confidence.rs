//! The distribution whose probabilities and entropies a decoder compares with its thresholds: the model's own, or the
//! one that tokens are drawn from (specs/models.md#7).

use demask_step::ConfidenceOf;

use crate::choices;

choices! {
    /// Distribution that confidences are read from.
    pub enum Confidence {
        /// The softmax of the logits, whatever the temperature and the filters.
        Clean = "clean",
        /// The tempered and filtered distribution, as programs of Dream, SDAR, LLaDA2 and RND1 read it.
        Tempered = "tempered",
    }
}

impl From<Confidence> for ConfidenceOf {
    fn from(confidence: Confidence) -> Self {
        match confidence {
            Confidence::Clean => Self::Raw,
            Confidence::Tempered => Self::Drawn,
        }
    }
}
