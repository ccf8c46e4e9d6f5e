//! Flags of declared settings: their names, help and values follow from the declaration.

use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use demask::{SettingError, Settings};
use demask_settings::Field;

/// Which of a struct's settings are flags, and where.
pub trait Group {
    /// Records whether every command takes them.
    const GLOBAL: bool = false;

    /// Reports whether a setting has a flag.
    fn has(name: &str) -> bool;

    /// Returns the letter of a setting, if it has one.
    fn short(_: &str) -> Option<char> {
        None
    }
}

/// Typed flags of the settings `S` that are in the group `G`.
pub struct Flags<S, G> {
    /// Names of settings with the text after their flags; the text of a switch is `true`.
    typed: Vec<(&'static str, String)>,
    of: PhantomData<fn() -> (S, G)>,
}

impl<S: Settings, G: Group> Flags<S, G> {
    /// Returns the settings.
    ///
    /// # Errors
    /// If a setting does not take its text.
    pub fn settings(&self) -> Result<S, SettingError> {
        let mut settings = S::default();
        for (name, text) in &self.typed {
            settings.set(name, text)?;
        }
        Ok(settings)
    }

    /// Returns the name of the first flag.
    pub fn first(&self) -> Option<&'static str> {
        self.names().next()
    }

    /// Returns the names of the flags.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<'_, S, G> {
        self.typed.iter().map(|(name, _)| *name)
    }

    /// Returns the text of a flag.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.typed.iter().find(|(typed, _)| *typed == name).map(|(_, text)| text.as_str())
    }

    /// Removes a flag.
    pub fn remove(&mut self, name: &str) {
        self.typed.retain(|(typed, _)| *typed != name);
    }

    /// Replaces the typed value of a flag.
    pub fn replace(&mut self, name: &'static str, text: impl Into<String>) {
        self.remove(name);
        self.typed.push((name, text.into()));
    }

    fn fields() -> impl Iterator<Item = &'static Field> {
        S::FIELDS.iter().filter(|field| G::has(field.name))
    }
}

impl<S, G> Clone for Flags<S, G> {
    fn clone(&self) -> Self {
        Self { typed: self.typed.clone(), of: PhantomData }
    }
}

impl<S, G> Default for Flags<S, G> {
    fn default() -> Self {
        Self { typed: Vec::new(), of: PhantomData }
    }
}

impl<S, G> std::fmt::Debug for Flags<S, G> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_map().entries(self.typed.iter().map(|(name, text)| (name, text))).finish()
    }
}

/// Returns the flag of a setting, or of anything else that is named like one: `gen_length` is `--gen-length`.
pub fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

fn argument<G: Group>(name: &'static str, place: &'static str, many: bool) -> Arg {
    let argument = Arg::new(name).long(name.replace('_', "-")).global(G::GLOBAL);
    let argument = match G::short(name) {
        Some(short) => argument.short(short),
        None => argument,
    };
    match (place, many) {
        ("", _) => argument.action(ArgAction::SetTrue),
        (place, true) => argument.value_name(place).action(ArgAction::Append),
        (place, false) => argument.value_name(place),
    }
}

impl<S: Settings, G: Group> Args for Flags<S, G> {
    fn augment_args(command: Command) -> Command {
        let shown = Self::fields().map(|field| argument::<G>(field.name, field.place, field.many).help(field.help()));
        // Flags of earlier versions are read, so that the refusal of their setting is heard.
        let removed = S::REMOVED.iter().map(|(name, ..)| argument::<G>(name, "VALUE", false).hide(true));
        command.args(shown).args(removed)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Settings, G: Group> FromArgMatches for Flags<S, G> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let removed = S::REMOVED.iter().map(|(name, ..)| (*name, "VALUE"));
        for (name, place) in Self::fields().map(|field| (field.name, field.place)).chain(removed) {
            if place.is_empty() {
                if matches.get_flag(name) {
                    self.typed.push((name, "true".to_owned()));
                }
                continue;
            }
            let texts = matches.get_many::<String>(name).into_iter().flatten();
            self.typed.extend(texts.map(|text| (name, text.clone())));
        }
        Ok(())
    }
}

/// Model, device and number formats: flags of every command.
#[derive(Debug)]
pub enum OfModel {}

impl Group for OfModel {
    const GLOBAL: bool = true;

    fn has(name: &str) -> bool {
        !OfServedModel::has(name)
    }

    fn short(name: &str) -> Option<char> {
        match name {
            "model" => Some('m'),
            "threads" => Some('t'),
            _ => None,
        }
    }
}

/// Settings of the model that `serve` alone has.
#[derive(Debug)]
pub enum OfServedModel {}

impl Group for OfServedModel {
    fn has(name: &str) -> bool {
        ["guide", "prefix_cache"].contains(&name)
    }
}

/// All settings of a struct.
#[derive(Debug)]
pub enum All {}

impl Group for All {
    fn has(_: &str) -> bool {
        true
    }
}

/// Options of decoding.
#[derive(Debug)]
pub enum OfDecoding {}

impl Group for OfDecoding {
    fn has(name: &str) -> bool {
        // The seed is a flag of every command, and a command has one guide, whose flag names its model.
        !["seed", "guide"].contains(&name)
    }
}

/// How tasks are asked.
#[derive(Debug)]
pub enum OfAsking {}

impl Group for OfAsking {
    fn has(name: &str) -> bool {
        // A flag of decoding already.
        name != "system"
    }
}
