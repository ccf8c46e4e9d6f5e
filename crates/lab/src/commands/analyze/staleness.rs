//! `demask-lab analyze staleness`: how far cached K and V are from the true ones.

use demask::Opened;
use demask::{Error, Options};
use demask_decode::{CacheSpec, DecoderSpec, Registry};

use crate::analysis::staleness::{OfCache, Staleness, measure};

use super::{Subject, loaded};
use crate::{
    args::StalenessArgs,
    exit::usage,
    interrupt::{self, Watched},
    settings::Settings,
};

/// Runs the command.
pub fn run(settings: &Settings, args: &StalenessArgs) -> anyhow::Result<()> {
    let why = "analyze staleness compares the slots of one model without guidance";
    let subject = Subject::resolve(settings, &args.subject, &["guide", "cfg_scale"], why)?;
    let options =
        Options { decoder: Some(subject.options.decoder.clone().unwrap_or_default()), ..subject.options.clone() };
    let named = named(args.caches.as_deref(), &options)?;
    settings.device()?;
    let opened = subject.open(settings)?;
    let over = |cache: &CacheSpec| Options { cache: Some(cache.clone()), ..options.clone() };
    let caches = match named {
        Some(caches) => caches,
        None => possible(settings, &opened, &subject, over),
    };
    let mut first = None;
    for cache in &caches {
        let answer = subject.first(&opened, &over(cache))?;
        refuse_drafts(&options, answer.job().needs()[0].limits.drafts)?;
        first = first.or(Some(answer));
    }
    let first = match first {
        Some(first) => first,
        None => subject.first(&opened, &options)?,
    };
    let decoder = first.session().map(|session| session.receipt().decoder).unwrap_or_default();
    let mut model = loaded(settings, opened, &first)?;
    let mut found = Staleness {
        model: model.name().to_owned(),
        device: model.network().describe(),
        decoder,
        prompts: subject.prompts.len(),
        caches: Vec::new(),
    };
    let _watched = Watched::begin();
    for cache in &caches {
        let mut of_cache = OfCache::new(&cache.to_string(), model.info().spec().layers);
        subject.each(settings, &format!("cache {cache}, "), |prompt, bar| {
            let session = model.session(prompt, &over(cache))?;
            let positions = session.layout().gen_length() as u64;
            measure(&mut model, session, &mut of_cache, &mut |done| {
                bar.set(done as u64, positions);
                !interrupt::requested()
            })?;
            Ok(())
        })?;
        found.caches.push(of_cache);
    }
    subject.report(settings, &found)
}

/// The caches that were named, in one of two ways.
fn named(caches: Option<&str>, options: &Options) -> anyhow::Result<Option<Vec<CacheSpec>>> {
    match (caches, &options.cache) {
        (Some(_), Some(_)) => Err(usage("--caches names every cache that is compared: omit --cache")),
        (Some(text), None) => {
            let specs = text.split('|').map(|spec| spec.trim().parse().map_err(Error::from));
            Ok(Some(specs.collect::<Result<_, _>>()?))
        }
        (None, Some(cache)) => Ok(Some(vec![cache.clone()])),
        (None, None) => Ok(None),
    }
}

/// Every cache that goes with the model and the options, as it is by default; what does not is reported.
fn possible(
    settings: &Settings,
    opened: &Opened,
    subject: &Subject<'_>,
    over: impl Fn(&CacheSpec) -> Options,
) -> Vec<CacheSpec> {
    let kind = opened.info().facts().mask.kind();
    let mut caches = Vec::new();
    for about in Registry::of_program()
        .caches()
        .iter()
        .map(|method| &method.about)
        .filter(|about| about.attention.contains(&kind))
    {
        let Ok(cache) = about.name.parse() else { continue };
        match subject.first(opened, &over(&cache)) {
            Ok(_) => caches.push(cache),
            Err(error) => settings.screen.remark(&format!("without cache {}: {error}", about.name)),
        }
    }
    caches
}

/// Refuses decoders that run drafts: what those see lies beside the slots of the canvas.
fn refuse_drafts(options: &Options, drafts: usize) -> anyhow::Result<()> {
    let decoder = options.decoder.as_ref().map_or("static", DecoderSpec::name);
    if drafts > 1 {
        return Err(usage(format!(
            "analyze staleness compares the canvas's own slots, and decoder {decoder} runs drafts beside them: use \
             --decoder static or threshold"
        )));
    }
    Ok(())
}
