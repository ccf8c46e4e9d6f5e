//! Everything of a model but its network.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use demask_checkpoint::{AdapterFacts, ChatTemplate, CheckpointText, Family, Tokenizer, Warning};
use demask_decode::ModelFacts;
use demask_engine::NetworkId;
use demask_model::{AdapterUse, ArchSpec};
use demask_step::{Mask, MemoryMeter, TokenId};

use crate::{Error, bridge::Bridge, languages::Languages};

/// Parts of a model but its weights: enough to turn a prompt into a session.
pub struct ModelInfo {
    pub(crate) text: CheckpointText,
    pub(crate) facts: ModelFacts,
    /// Texts of the control tokens.
    controls: Vec<String>,
    /// Memory for K/V beside the weights, where there is a machine to run on; none of a shape alone.
    pub(crate) free_memory: Option<u64>,
    /// Guides, in the order in which they were added.
    pub(crate) guides: Vec<Guide>,
    /// Languages of constraints over its tokens.
    pub(crate) languages: Languages,
    /// Place where it runs, once its weights are loaded.
    pub(crate) machine: OnceLock<Machine>,
}

/// A guide of a model.
pub(crate) struct Guide {
    /// The name that it was given; without one it is called as its model.
    pub(crate) name: Option<String>,
    pub(crate) info: Arc<ModelInfo>,
    pub(crate) bridge: Bridge,
}

impl Guide {
    /// Returns the name that requests choose it by.
    pub(crate) fn called(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.info.name())
    }
}

/// Place where a model runs.
pub(crate) struct Machine {
    pub(crate) network: NetworkId,
    pub(crate) load_time: Duration,
    /// Device, tier, threads, element type.
    pub(crate) device: String,
    /// Bytes of its packed weights.
    pub(crate) weights: usize,
    /// Rows that one forward may have.
    pub(crate) rows: usize,
    /// Reads the memory that it takes of a device of its own.
    pub(crate) meter: Option<Arc<dyn MemoryMeter>>,
}

impl ModelInfo {
    /// Returns two tokens that are no masks and end nothing; fewer only if there are no more.
    pub fn ordinary_tokens(&self) -> [TokenId; 2] {
        let ordinary = |token: &TokenId| Some(*token) != self.facts.mask_id && !self.end_ids().contains(token);
        let mut tokens = (0..self.facts.vocab as TokenId).filter(ordinary);
        let first = tokens.next().unwrap_or(0);
        [first, tokens.next().unwrap_or(first)]
    }

    /// Returns the facts of a checkpoint without weights.
    pub fn of(text: CheckpointText) -> Self {
        let special = &text.special;
        let named = [special.mask, special.eos, special.turn_end, special.bos, special.pad];
        let named = named.into_iter().flatten().chain(special.stop.iter().copied());
        let controls = text.tokenizer.as_ref().map(|tokenizer| tokenizer.controls(named, &text.template));
        let (facts, controls) = (facts(&text), controls.unwrap_or_default());
        Self {
            facts,
            controls,
            text,
            free_memory: None,
            guides: Vec::new(),
            languages: Languages::default(),
            machine: OnceLock::new(),
        }
    }

    /// The model's name, for people.
    pub fn name(&self) -> &str {
        &self.text.name
    }

    /// The model's family.
    pub fn family(&self) -> &'static Family {
        self.text.family
    }

    /// Returns the architecture.
    pub fn spec(&self) -> &ArchSpec {
        &self.text.spec
    }

    /// Returns the facts that decoding needs.
    pub fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    /// Returns facts about the adapter beside the weights, if there is one.
    pub fn adapter(&self) -> Option<&AdapterFacts> {
        self.text.adapter.as_ref()
    }

    /// Returns whether it is a causal model whose masks, with its adapter, are trained to guess tokens.
    pub fn guesses_at_masks(&self) -> bool {
        let of_adapter = self.adapter().is_some_and(|adapter| matches!(adapter.usage, AdapterUse::Masks(_)));
        self.facts.mask == Mask::Causal && (of_adapter || self.family().trains_causal_masks())
    }

    /// Returns what to say of guesses at masks by a model that was not trained to make them: nothing is wrong, and little is won.
    pub fn untrained_masks(&self, decoder: &str) -> Option<String> {
        let guesses = decoder.split(':').next() == Some("isd");
        (guesses && !self.guesses_at_masks()).then(|| {
            format!(
                "{} was not trained with masks, so that decoder isd's guesses seldom come true: the tokens are those of ar, in \
                 hardly fewer forwards",
                self.family()
            )
        })
    }

    /// Returns why no request can take K/V that another one has computed of the same first tokens; none if one can.
    pub fn why_no_prefixes(&self) -> Option<&'static str> {
        (self.facts.mask == Mask::Full).then_some("this model's K/V depend on its whole canvas")
    }

    /// Returns the bytes for K/V beside the weights: those that were left when it was loaded; 0 of a shape alone.
    pub fn free_memory(&self) -> u64 {
        self.free_memory.unwrap_or(0)
    }

    /// Returns what about the checkpoint is odd but not wrong.
    pub fn warnings(&self) -> &[Warning] {
        &self.text.warnings
    }

    /// The tokenizer, or the error that says what to do without.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.text.tokenizer.as_deref().ok_or_else(|| Error::NoTokenizer { model: self.name().to_owned() })
    }

    /// The chat template.
    pub fn template(&self) -> &ChatTemplate {
        &self.text.template
    }

    /// Texts of the control tokens, which no message spells.
    pub(crate) fn controls(&self) -> &[String] {
        &self.controls
    }

    /// Duration of the loading, its guides' included.
    pub fn load_time(&self) -> Duration {
        let own = self.machine.get().map_or(Duration::ZERO, |machine| machine.load_time);
        own + self.guides.iter().map(|guide| guide.info.load_time()).sum::<Duration>()
    }

    /// Returns the device that runs it: device, tier, threads, element type. Empty before it is loaded.
    pub fn device(&self) -> &str {
        self.machine.get().map_or("", |machine| &machine.device)
    }

    /// Returns the bytes of its packed weights, its guides' not included; 0 before it is loaded.
    pub fn weight_bytes(&self) -> usize {
        self.machine.get().map_or(0, |machine| machine.weights)
    }

    /// Notes that its network has another name.
    pub(crate) fn move_to(&mut self, network: NetworkId) {
        if let Some(machine) = self.machine.get_mut() {
            machine.network = network;
        }
    }

    /// Puts a guide beside it, called as its model.
    pub fn add_guide(&mut self, guide: Arc<Self>, bridge: Bridge) {
        self.guides.push(Guide { name: None, info: guide, bridge });
    }

    /// Returns what turns prompts into sessions of each of its networks: its own, and its first guide's.
    pub fn infos(&self) -> Vec<&Self> {
        std::iter::once(self).chain(self.guides.first().map(|guide| &*guide.info)).collect()
    }

    /// Returns the names that requests choose its guides by.
    pub fn guides(&self) -> Vec<&str> {
        self.guides.iter().map(Guide::called).collect()
    }

    /// Tokens that end an answer.
    pub fn end_ids(&self) -> &[TokenId] {
        &self.text.special.stop
    }

    /// The end-of-text token alone (LLaDA's `logits_eos_inf` speaks of this one only).
    pub(crate) fn eos_ids(&self) -> Result<Vec<TokenId>, Error> {
        let eos = self.text.special.eos;
        eos.map(|eos| vec![eos]).ok_or_else(|| Error::NoEnd { model: self.name().to_owned() })
    }
}

fn facts(text: &CheckpointText) -> ModelFacts {
    let spec = &text.spec;
    ModelFacts {
        mask: spec.attention,
        shift: spec.shift as u32,
        mask_id: text.special.mask,
        vocab: spec.vocabulary,
        context: spec.context,
        layers: spec.layers,
        blocks: spec.blocks,
        free_rows: demask_decode::FREE_ROWS,
    }
}
