//! Names by which a client has set the library's options, for messages.

use crate::{Refusal, fields::table::decoding};

/// Options that a client may call by other names.
const LENGTHS: [&str; 3] = ["max_tokens", "gen_length", "block_length"];

/// The client's name of each option that it has set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names(Vec<(&'static str, String)>);

impl Names {
    /// Notes the client's name of an option; the first one is kept.
    pub fn note(&mut self, option: &'static str, told: &str) {
        if self.0.iter().all(|(known, _)| *known != option) {
            self.0.push((option, told.to_owned()));
        }
    }

    /// Returns the client's name of an option, or the name that it would have: options of decoding are under
    /// `diffusion`.
    pub fn of(&self, option: &str) -> String {
        let would = || if decoding().any(|field| field.name == option) { "diffusion." } else { "" };
        let told = self.0.iter().find(|(known, _)| *known == option).map(|(_, told)| told.clone());
        told.unwrap_or_else(|| format!("{}{option}", would()))
    }

    /// Returns a message of the library with the client's names for lengths, which have several; options stand in backticks.
    pub fn with_client_names(&self, message: &str) -> String {
        let is_length = |place: usize, piece: &str| place % 2 == 1 && LENGTHS.contains(&piece);
        let pieces = message.split('`').enumerate();
        let told = pieces.map(|(place, piece)| if is_length(place, piece) { self.of(piece) } else { piece.to_owned() });
        told.collect::<Vec<_>>().join("`")
    }

    /// Returns a refusal in the client's names.
    pub fn refusal(&self, mut refusal: Refusal) -> Refusal {
        refusal.param = refusal.param.map(|param| self.of(&param));
        refusal.message = self.with_client_names(&refusal.message);
        refusal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_speak_of_what_was_sent() {
        let mut names = Names::default();
        names.note("max_tokens", "n_predict");
        names.note("steps", "diffusion.steps");
        names.note("max_tokens", "max_completion_tokens");
        let told = names.with_client_names("`steps` is 5: lower `max_tokens` or `gen_length`, not `stop");
        assert_eq!(told, "`steps` is 5: lower `n_predict` or `diffusion.gen_length`, not `stop");
        names.note("decoder", "decoder");
        assert_eq!(
            ["decoder", "cache", "top_p"].map(|option| names.of(option)),
            ["decoder", "diffusion.cache", "top_p"]
        );
    }
}
