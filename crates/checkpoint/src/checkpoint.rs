//! A whole checkpoint, opened: its architecture, weights by role, tokenizer, special ids, template and settings.

use std::sync::Arc;

use demask_model::{ArchSpec, Role};

use crate::{
    AdapterChoice, AdapterFacts, AdapterFiles, ChatTemplate, CheckpointError, Family, FamilyChoice, GenerationConfig,
    ModelFiles, SpecialTokens, StoredWeights, Tokenizer, Warning,
    adapter::StoredAdapter,
    config::{ModelConfig, parse_config_as},
    families::Evidence,
    fields::TokenIds,
    gguf::{self, Gguf},
    special::Sources,
    weights::WeightFiles,
};

const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";

/// Content of a model directory or of a GGUF file, checked.
pub struct Checkpoint {
    text: CheckpointText,
    weights: StoredWeights,
}

impl Checkpoint {
    /// Opens a checkpoint. The weights are not read: this takes the time of the small files.
    pub fn open(files: ModelFiles) -> Result<Self, CheckpointError> {
        let (parts, weights) = match files.gguf_parts() {
            Some(parts) => {
                let (label, family) = (files.label(""), files.family());
                Parts::of_gguf(gguf::open(parts, &label, family)?, label, family)
            }
            None => Parts::of_directory(&files)?,
        };
        let adapter = files.adapter().cloned();
        let name = files.into_name();
        let name = adapter.as_ref().map_or_else(|| name.clone(), |adapter| adapter.name_beside(&name));
        let mut text = parts.assemble(name)?;
        let open = |files: &AdapterFiles| StoredAdapter::open(files, text.family, &text.spec, text.special.mask);
        let opened = adapter.as_ref().map(open).transpose()?;
        if let (Some(AdapterFiles { choice: AdapterChoice::Auto, .. }), Some(opened)) = (&adapter, &opened) {
            text.warnings.push(Warning::AdapterUse { facts: opened.facts.clone() });
        }
        text.adapter = opened.as_ref().map(|opened| opened.facts.clone());
        let weights = weights.with_adapter(opened);
        if !weights.unexpected().is_empty() {
            text.warnings.push(Warning::UnexpectedTensors { names: weights.unexpected().to_vec() });
        }
        Ok(Self { text, weights })
    }

    /// Name of the model, for people.
    pub fn name(&self) -> &str {
        &self.text.name
    }

    /// The family.
    pub fn family(&self) -> &'static Family {
        self.text.family
    }

    /// The architecture.
    pub fn spec(&self) -> &ArchSpec {
        &self.text.spec
    }

    /// Special tokens, and the ids that end an answer.
    pub fn special(&self) -> &SpecialTokens {
        &self.text.special
    }

    /// The tokenizer; some checkpoints have none and work on ids only.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.text.tokenizer.as_deref()
    }

    /// The chat template: the checkpoint's own, else its family's.
    pub fn template(&self) -> &ChatTemplate {
        &self.text.template
    }

    /// Settings with which the authors decode the model.
    pub fn generation(&self) -> &GenerationConfig {
        &self.text.generation
    }

    /// The weights.
    pub fn weights(&self) -> &StoredWeights {
        &self.weights
    }

    /// Oddities of the files, none of which keeps the model from working.
    pub fn warnings(&self) -> &[Warning] {
        &self.text.warnings
    }

    /// Gives up the weights alone, once they have been packed elsewhere, and keeps the rest.
    pub fn release_weights(self) -> (StoredWeights, CheckpointText) {
        (self.weights, self.text)
    }
}

/// Parts of the files, each source by itself.
struct Parts {
    family: &'static Family,
    spec: ArchSpec,
    ids: TokenIds,
    /// File that names the architecture and the special tokens.
    label: String,
    tokenizer: Option<Tokenizer>,
    template: ChatTemplate,
    generation: GenerationConfig,
    /// The mask that the user names.
    chosen: Option<u32>,
    warnings: Vec<Warning>,
}

impl Parts {
    fn of_directory(files: &ModelFiles) -> Result<(Self, StoredWeights), CheckpointError> {
        let text = files.text(CONFIG)?.ok_or_else(|| CheckpointError::MissingFile {
            file: files.label(CONFIG),
            hint: "expected a model directory in Hugging Face layout, with config.json beside the weights",
        })?;
        let label = files.label(CONFIG);
        let mask_token = Tokenizer::mask_text(files)?;
        let evidence = Evidence { name: files.name(), mask_token: mask_token.as_deref() };
        let ModelConfig { family, mut spec, says_tied, tokens: ids, warnings } =
            parse_config_as(&text, &label, files.family(), evidence)?;
        let generation = match files.text(GENERATION)? {
            Some(text) => GenerationConfig::parse(&text, &files.label(GENERATION))?,
            None => GenerationConfig::default(),
        };
        let tokenizer = Tokenizer::open(files, family)?;
        let template = ChatTemplate::open(files, family, tokenizer.as_ref())?;
        let opened = WeightFiles::open(files)?;
        if !says_tied && !opened.has(family, Role::Head) {
            spec.tied = true;
        }
        let weights = StoredWeights::assemble(opened, family, &spec)?;
        let chosen = files.family().and_then(FamilyChoice::mask);
        Ok((Self { family, spec, ids, label, tokenizer, template, generation, chosen, warnings }, weights))
    }

    /// Parts of configuration files alone, without a tokenizer and weights.
    fn of_configuration(
        name: &str,
        family: &'static Family,
        config: &str,
        generation: &str,
    ) -> Result<Self, CheckpointError> {
        let files = ModelFiles::memory(name, &[]);
        let label = files.label(CONFIG);
        let ModelConfig { family, spec, tokens: ids, warnings, .. } =
            parse_config_as(config.as_bytes(), &label, Some(&FamilyChoice::of(family)), Evidence::default())?;
        let generation = GenerationConfig::parse(generation.as_bytes(), &files.label(GENERATION))?;
        let template = ChatTemplate::open(&files, family, None)?;
        Ok(Self { family, spec, ids, label, tokenizer: None, template, generation, chosen: None, warnings })
    }

    fn of_gguf(file: Gguf, label: String, choice: Option<&FamilyChoice>) -> (Self, StoredWeights) {
        let Gguf { family, spec, ids, tokenizer, template, weights } = file;
        let (generation, warnings) = (GenerationConfig::default(), Vec::new());
        let chosen = choice.and_then(FamilyChoice::mask);
        (Self { family, spec, ids, label, tokenizer, template, generation, chosen, warnings }, weights)
    }

    /// Facts that only all of them together give.
    fn assemble(self, name: String) -> Result<CheckpointText, CheckpointError> {
        let Self { family, spec, ids, label, tokenizer, template, generation, chosen, mut warnings } = self;
        if let Some(tokenizer) = &tokenizer {
            check_vocabulary(tokenizer, &spec)?;
        }
        let sources = Sources {
            family,
            spec: &spec,
            config: &ids,
            generation: &generation.tokens,
            tokenizer: tokenizer.as_ref(),
            chosen,
            file: &label,
        };
        let special = sources.resolve(&mut warnings)?;
        warnings.extend(template.probe()?.map(|message| Warning::BrokenTemplate { message }));
        let tokenizer = tokenizer.map(Arc::new);
        Ok(CheckpointText { name, family, spec, special, tokenizer, template, generation, adapter: None, warnings })
    }
}

/// A checkpoint without its weights, for use while the packed weights run.
#[non_exhaustive]
pub struct CheckpointText {
    /// Name of the model, for people.
    pub name: String,
    /// The family.
    pub family: &'static Family,
    /// The architecture.
    pub spec: ArchSpec,
    /// Special tokens.
    pub special: SpecialTokens,
    /// The tokenizer; shared, because a guide's stays in use beside the model that it guides.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// The chat template.
    pub template: ChatTemplate,
    /// Settings with which the authors decode the model.
    pub generation: GenerationConfig,
    /// Adapter beside the weights.
    pub adapter: Option<AdapterFacts>,
    /// Oddities of the files.
    pub warnings: Vec<Warning>,
}

impl CheckpointText {
    /// Reads the configuration of a model of a family: `config.json` and `generation_config.json`. There is no tokenizer.
    ///
    /// # Errors
    /// If the configuration is not of a model of this family.
    pub fn of_configuration(
        name: &str,
        family: &'static Family,
        config: &str,
        generation: &str,
    ) -> Result<Self, CheckpointError> {
        Parts::of_configuration(name, family, config, generation)?.assemble(name.to_owned())
    }
}

fn check_vocabulary(tokenizer: &Tokenizer, spec: &ArchSpec) -> Result<(), CheckpointError> {
    if tokenizer.largest_id() as usize >= spec.vocabulary {
        return Err(CheckpointError::VocabularyTooLarge {
            file: tokenizer.file().to_owned(),
            largest: tokenizer.largest_id(),
            rows: spec.vocabulary,
        });
    }
    Ok(())
}
