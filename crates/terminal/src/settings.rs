//! Resolution of the arguments: every decision that needs no model is made here, before anything runs.

use std::{
    io::{self, Read},
    path::Path,
    str::FromStr,
};

use anyhow::Context;
use demask::{
    DeviceOptions, Mask, ModelInfo, Opened, UnusableDevice,
    layers::{decode::OptionsError, tensor::Dtype},
};
use demask::{Error, LoadOptions, Model, Options, Prompt, plain};
use demask_settings::layers::{Layered, Origin};

use crate::{
    args::{DecodeArgs, GenerateArgs, Group, OfModel, SharedArgs},
    env,
    exit::usage,
    help::DEVICE,
    load::{Source, load},
    output::Screen,
};

/// Settings from the shared flags.
#[derive(Debug)]
pub struct Settings {
    /// Model to load.
    pub source: Source,
    /// Records whether a flag names the model: the environment's gives way to what a command names otherwise.
    pub names_model: bool,
    /// Device to run on; not yet compared with the machine.
    device: DeviceOptions,
    /// Key of all randomness.
    pub seed: u64,
    /// Destination of each kind of output.
    pub screen: Screen,
}

impl Settings {
    /// Reads the shared flags and the environment.
    pub fn resolve(shared: &SharedArgs) -> anyhow::Result<Self> {
        let mut model = Layered::new(shared.model.settings()?);
        model.add_environment(OfModel::has, |name| std::env::var_os(name))?;
        Self::of(shared, &model)
    }

    /// Reads the shared flags and the environment for a command without a model: a model or an adapter that the environment names
    /// is of other commands.
    pub fn of_machine(shared: &SharedArgs) -> anyhow::Result<Self> {
        let mut machine = Layered::new(shared.model.settings()?);
        machine.add_environment(|name| DEVICE.contains(&name), |name| std::env::var_os(name))?;
        Self::of(shared, &machine)
    }

    /// Makes them of a model's settings from all sources.
    pub fn of(shared: &SharedArgs, model: &Layered<LoadOptions>) -> anyhow::Result<Self> {
        let options = model.settings();
        options.check()?;
        let usual = DeviceOptions {
            tier: env::tier()?,
            #[cfg(feature = "cuda")]
            cuda: env::cuda(),
            ..DeviceOptions::default()
        };
        Ok(Self {
            device: options.device_options(&usual),
            source: Source(options.clone()),
            names_model: model.origin("model") == Some(&Origin::Flag),
            seed: shared.seed.unwrap_or(0),
            screen: Screen { json: shared.json, quiet: shared.quiet },
        })
    }

    /// Device to run on, compared with this machine: a device that cannot be used is known before a model is read.
    pub fn device(&self) -> Result<DeviceOptions, UnusableDevice> {
        usable(&self.device, &self.source)
    }

    /// Returns the device as it was asked for.
    pub fn asked(&self) -> &DeviceOptions {
        &self.device
    }
}

/// A device compared with this machine, for a model that is not read yet.
pub fn usable(device: &DeviceOptions, source: &Source) -> Result<DeviceOptions, UnusableDevice> {
    let device = device.found()?;
    device.isa()?;
    // A GGUF file may be quantised already: what that means for products is known when it is open.
    if !source.is_gguf() {
        device.products(Dtype::F32)?;
    }
    device.thread_count()?;
    Ok(device)
}

/// One generation, as far as it can be known without the model.
#[derive(Debug)]
pub struct Request {
    /// The prompt.
    pub prompt: Prompt,
    /// Options of the decoding.
    pub options: Options,
    /// The guide, with a decoder that has one.
    pub guide: Option<Source>,
}

impl Request {
    /// Reads the arguments of `generate`, and the prompt's file.
    pub fn resolve(args: &GenerateArgs, seed: u64) -> anyhow::Result<Self> {
        let options = generate_options(&args.decode, seed)?;
        Ok(Self { guide: guide(&args.decode, &options)?, options, prompt: prompt(args)? })
    }

    /// Opens the model that answers it, beside its guide if it has one.
    pub fn open(&self, source: &Source, screen: Screen) -> anyhow::Result<Opened> {
        open_beside(source, self.guide.as_ref(), screen)
    }

    /// Loads the model, and gets the prompt ready for it. What cannot be decoded, or does not fit with its canvas, is refused
    /// before weights are read.
    pub fn load(
        &self,
        opened: Opened,
        device: &DeviceOptions,
        screen: Screen,
    ) -> anyhow::Result<(Model, demask::Request)> {
        let answer = opened.prepare(&self.prompt, &self.options)?;
        let model = load(opened, device, answer.job().needs(), screen)?;
        // Where rows are nearly free is known of a device alone.
        let answer = model.prepare(&self.prompt, &self.options)?;
        Ok((model, answer))
    }
}

/// Opens a model, beside its guide if it has one.
pub fn open_beside(source: &Source, guide: Option<&Source>, screen: Screen) -> anyhow::Result<Opened> {
    let opened = source.open(screen)?;
    Ok(match guide {
        Some(guide) => opened.guided_by(guide.open(screen)?)?,
        None => opened,
    })
}

/// The prompt in the one form in which it was given.
fn prompt(args: &GenerateArgs) -> anyhow::Result<Prompt> {
    let given = [
        ("the argument", args.prompt.is_some()),
        ("--prompt", args.prompt_text.is_some()),
        ("--prompt-file", args.prompt_file.is_some()),
        ("--prompt-tokens", args.prompt_tokens.is_some()),
    ];
    let given: Vec<_> = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
    if given.len() > 1 {
        return Err(usage(format!("found prompts in {}, expected one: omit the others", given.join(" and in "))));
    }
    let templateless = args.raw || args.infill || args.prompt_tokens.is_some();
    if templateless && args.decode.system.is_some() {
        return Err(usage(
            "--system is put into words by the chat template: omit it, or --raw, --infill and --prompt-tokens",
        ));
    }
    if let Some(text) = &args.prompt_tokens {
        if args.infill {
            return Err(usage("--infill needs text with <mask:N> holes: give the prompt as text, not as tokens"));
        }
        return Ok(Prompt::Tokens(token_ids("--prompt-tokens", text)?));
    }
    let text = match (args.prompt.as_ref().or(args.prompt_text.as_ref()), &args.prompt_file) {
        (Some(text), _) => text.clone(),
        (_, Some(path)) => {
            let mut text = read_text(path)?;
            // The newline that editors put at the end of files is no part of a question.
            if text.ends_with('\n') {
                text.pop();
            }
            text
        }
        _ => {
            return Err(usage(
                "no prompt: give it as an argument, with --prompt-file FILE (-: standard input) or with --prompt-tokens 1,2,3",
            ));
        }
    };
    Ok(match (args.infill, args.raw) {
        (true, _) => Prompt::Infill(text),
        (false, true) => Prompt::Raw(text),
        (false, false) => Prompt::user(text, args.decode.system.as_deref()),
    })
}

/// Options of the decoding, from the arguments.
pub fn generate_options(args: &DecodeArgs, seed: u64) -> Result<Options, Error> {
    Ok(Options { seed: Some(seed), ..args.options.settings()? })
}

/// Returns what to say before an answer of a model with these options.
pub fn notes(info: &ModelInfo, options: &Options) -> impl Iterator<Item = String> + use<> {
    let decoder = options.decoder.as_ref().map_or("", |decoder| decoder.name());
    let untrained = info.untrained_masks(decoder).map(|note| format!("note: {note}"));
    [long_canvas(info, options), untrained].into_iter().flatten()
}

/// Returns what to say of a canvas that is far longer than the model is made for: under full attention its length is no bound
/// but an input, and other answers come of it.
fn long_canvas(info: &ModelInfo, options: &Options) -> Option<String> {
    let (recommended, length) = (info.recommended_length(), options.gen_length?);
    (info.facts().mask == Mask::Full && length > 2 * recommended).then(|| {
        format!(
            "note: --gen-length {length} is an input, which every position sees, and this model is made for {recommended}: answers \
             may be wrong; --max-tokens bounds an answer and changes nothing else"
        )
    })
}

/// Refuses log-probabilities where nothing shows them.
pub fn refuse_logprobs(options: &Options, shown: bool) -> anyhow::Result<()> {
    if options.top_logprobs.is_some() && !shown {
        return Err(usage("--top-logprobs is shown by generate and chat with --json: add --json there, or omit it"));
    }
    Ok(())
}

/// Refuses a deadline where what is found must not depend on the clock.
pub fn refuse_deadline(options: &Options) -> anyhow::Result<()> {
    if options.deadline_ms.is_some() {
        return Err(usage("--deadline-ms ends answers by the clock, in generate and chat: omit it"));
    }
    Ok(())
}

/// The guide, with a decoder that has one.
pub fn guide(args: &DecodeArgs, options: &Options) -> anyhow::Result<Option<Source>> {
    let decoder = options.decoder.as_ref();
    match (&args.guide, decoder.filter(|_| options.wants_guide())) {
        (Some(_), None) => Err(usage("--guide goes with --decoder guided: omit it or name that decoder")),
        (None, Some(decoder)) => Err(Error::from(OptionsError::guide_missing(decoder.name())).into()),
        (guide, _) => Ok(guide.clone().map(Source::from)),
    }
}

/// Numbers separated by commas.
pub fn numbers<T: FromStr>(flag: &str, text: &str, what: &str) -> anyhow::Result<Vec<T>> {
    let text = text.trim();
    let pieces = text.split(',').map(str::trim);
    // No list at all is an empty one; a gap in a list is a slip of the finger.
    let numbers = pieces.filter(|piece| !text.is_empty() || !piece.is_empty()).map(|piece| {
        piece.parse().map_err(|_| usage(format!("{flag}: \"{piece}\" is not {what}: expected 1,2,3 or the like")))
    });
    numbers.collect()
}

/// Token ids separated by commas.
pub fn token_ids(flag: &str, text: &str) -> anyhow::Result<Vec<u32>> {
    numbers(flag, text, "a token id")
}

/// A text file, or standard input for `-`.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let context = || format!("cannot read {}", path.display());
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = io::stdin().read_to_end(&mut bytes);
        return read.and_then(|_| plain::decoded(bytes)).context("cannot read standard input");
    }
    plain::read(path).with_context(context)
}
