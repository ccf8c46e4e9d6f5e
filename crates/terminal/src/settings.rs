//! Resolution of the arguments: every decision that needs no model is made here, before anything runs.

use std::{path::Path, str::FromStr};

use demask::{
    DeviceOptions, ModelInfo, Opened, UnusableDevice,
    layers::{decode::OptionsError, tensor::Dtype},
};
use demask::{Error, Like, LoadOptions, Mask, Model, Options, Prompt, seed};
use demask_settings::layers::{Layered, Origin};

use crate::{
    args::{DecodeArgs, GenerateArgs, Group, OfModel, Seed, SharedArgs},
    env,
    exit::usage,
    help::DEVICE,
    load::{Source, load},
    output::Screen,
    texts,
};

/// Settings from the shared flags.
#[derive(Debug)]
pub struct Settings {
    /// Model to load.
    pub source: Source,
    /// Records whether a flag names the model. A model that a command takes from elsewhere overrides the environment's.
    pub names_model: bool,
    /// Device to run on; not yet compared with the machine.
    device: DeviceOptions,
    /// Key of all randomness.
    pub seed: u64,
    /// Records whether a flag gives the seed.
    pub names_seed: bool,
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
        let screen = Screen { json: shared.json, quiet: shared.quiet };
        let seed = match shared.seed {
            Some(Seed::Given(seed)) => seed,
            Some(Seed::Drawn) => {
                let drawn = seed::drawn();
                screen.remark(&describe_seed(drawn));
                drawn
            }
            None => 0,
        };
        Ok(Self {
            device: options.device_options(&usual),
            source: Source(options.clone()),
            names_model: model.origin("model") == Some(&Origin::Flag),
            seed,
            names_seed: shared.seed.is_some(),
            screen,
        })
    }

    /// Draws a seed for answers at a temperature above 0, unless a flag gives it. Returns a message with the drawn
    /// seed; none if none was drawn.
    pub fn draw_seed(&self, options: &mut Options) -> Option<String> {
        if self.names_seed {
            return None;
        }
        options.seed = None;
        let drawn = options.draw_seed();
        options.seed.get_or_insert(self.seed);
        drawn.map(describe_seed)
    }

    /// Device to run on, compared with this machine: a device that cannot be used is known before a model is read.
    pub fn device(&self) -> Result<DeviceOptions, UnusableDevice> {
        usable(&self.device, &self.source)
    }

    /// Returns the device as it was asked for.
    pub fn requested_device(&self) -> &DeviceOptions {
        &self.device
    }
}

/// Reads the receipt of an answer that another one is to be like.
pub fn like(path: &Path) -> anyhow::Result<Like> {
    let text = texts::read_file(path)?;
    Like::read(&text).map_err(|error| usage(format!("{}: {error}", path.display())))
}

/// Returns what to say of a seed that was drawn.
fn describe_seed(seed: u64) -> String {
    format!("seed {seed}: --seed {seed} draws the same again")
}

/// A device compared with this machine, for a model that is not read yet.
pub fn usable(device: &DeviceOptions, source: &Source) -> Result<DeviceOptions, UnusableDevice> {
    let device = device.resolved()?;
    device.isa()?;
    // A GGUF file may be quantised already: what that means for products is known when it is open.
    if !source.is_gguf() {
        device.products(Dtype::F32, Mask::Full)?;
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
    /// Reads the arguments of `generate`, the prompt's file and the piped text. Options without a flag are the
    /// receipt's, if there is one.
    pub fn resolve(args: &GenerateArgs, settings: &Settings, like: Option<&Like>) -> anyhow::Result<Self> {
        let mut options = generate_options(&args.decode, settings.seed)?;
        if let Some(like) = like {
            options.seed = options.seed.filter(|_| settings.names_seed);
            options = like.beside(options);
        }
        Ok(Self { guide: guide(&args.decode, &options)?, options, prompt: prompt(args, settings.screen)? })
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

/// Returns the prompt in the one form in which it was given, followed by the piped text.
fn prompt(args: &GenerateArgs, screen: Screen) -> anyhow::Result<Prompt> {
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
        let tokens = token_ids("--prompt-tokens", text)?;
        return match texts::piped(true, screen)? {
            Some(_) => {
                Err(usage("a text on standard input cannot follow --prompt-tokens: omit one, or add < /dev/null"))
            }
            None => Ok(Prompt::Tokens(tokens)),
        };
    }
    let text = whole_text(args, screen)?;
    Ok(match (args.infill, args.raw) {
        (true, _) => Prompt::Infill(text),
        (false, true) => Prompt::Raw(text),
        (false, false) => Prompt::user(text, args.decode.system.as_deref()),
    })
}

/// Returns the text of the prompt: the typed or named one, the piped one, or the first followed by the second.
fn whole_text(args: &GenerateArgs, screen: Screen) -> anyhow::Result<String> {
    let typed = args.prompt.as_ref().or(args.prompt_text.as_ref());
    let named = typed.map(Path::new).filter(|text| texts::is_standard_input(text)).or(args.prompt_file.as_deref());
    let text = match (typed, named) {
        (_, Some(path)) => {
            let text = without_last_newline(texts::read(path)?);
            if texts::is_standard_input(path) {
                let empty = "standard input is empty, expected a prompt there: pipe one, or give it as an argument";
                return if text.is_empty() { Err(usage(empty)) } else { Ok(text) };
            }
            text
        }
        (Some(text), None) if text.is_empty() => return Err(usage("the prompt is empty: expected a text")),
        (Some(text), None) => text.clone(),
        (None, None) => {
            let none = "no prompt: give it as an argument, with --prompt-file FILE (-: standard input) or with --prompt-tokens 1,2,3";
            return texts::piped(false, screen)?.map(without_last_newline).ok_or_else(|| usage(none));
        }
    };
    match texts::piped(true, screen)? {
        None => Ok(text),
        Some(_) if args.infill => Err(usage(
            "--infill fills one text, found the prompt and another one on standard input: omit one, or add < /dev/null",
        )),
        Some(piped) => Ok(format!("{text}\n\n{}", without_last_newline(piped))),
    }
}

/// The newline that editors put at the end of files is no part of a question.
fn without_last_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

/// Options of the decoding, from the arguments.
pub fn generate_options(args: &DecodeArgs, seed: u64) -> Result<Options, Error> {
    Ok(Options { seed: Some(seed), ..args.options.settings()? })
}

/// Returns what to say before an answer of a model with these options.
pub fn notes(info: &ModelInfo, options: &Options) -> impl Iterator<Item = String> + use<> {
    let decoder = options.decoder.as_ref().map_or("", |decoder| decoder.name());
    let long = options.gen_length.and_then(|length| info.long_canvas(length));
    let long = long.map(|note| note.replace("`gen_length`", "--gen-length").replace("`max_tokens`", "--max-tokens"));
    let notes = [long, info.untrained_masks(decoder), without_steps(options)];
    notes.into_iter().flatten().map(|note| format!("note: {note}"))
}

/// Says that steps or a schedule change nothing, where a decoder takes tokens by their confidence alone.
fn without_steps(options: &Options) -> Option<String> {
    let decoder = options.decoder.as_ref().filter(|decoder| decoder.traits().ignores_steps)?;
    let flags = [("--steps", options.steps.is_some()), ("--schedule", options.schedule.is_some())];
    let (flag, _) = flags.into_iter().find(|(_, given)| *given)?;
    Some(format!("{flag} changes nothing beside --decoder {}, which takes tokens by their confidence", decoder.name()))
}

/// Refuses log-probabilities where nothing shows them.
pub fn refuse_logprobs(options: &Options, shown: bool) -> anyhow::Result<()> {
    if options.top_logprobs.is_some() && !shown {
        return Err(usage("--top-logprobs is shown by generate and chat with --json: add --json there, or omit it"));
    }
    Ok(())
}

/// Refuses a deadline where the findings must not depend on the clock.
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
