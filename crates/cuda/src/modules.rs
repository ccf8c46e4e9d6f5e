//! The kernels as a card runs them: from the cache, or from the compiler and into the cache.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    cache::{KernelCache, Lookup, Made, Text},
    kernels::{MODULES, Module, OPTIONS},
    nvrtc::Source,
    probe::{Card, NoGpu, Places},
    version::Version,
};

/// Sources of everything that the backend runs.
pub fn sources() -> Vec<Source> {
    let source = |module: &Module| Source {
        name: module.name.to_owned(),
        text: module.source(),
        options: OPTIONS.iter().map(ToString::to_string).collect(),
    };
    MODULES.iter().copied().flatten().map(source).collect()
}

/// Returns one image for each source. `remark` gets warnings that are no errors: files of the cache that are spoiled, a
/// cache that cannot be written.
pub(crate) fn images(
    card: &Card,
    driver: Version,
    places: &Places,
    sources: &[Source],
    remark: &mut dyn FnMut(&str),
) -> Result<Vec<Vec<u8>>, NoGpu> {
    let cache = KernelCache::new(places.kernels.clone());
    let texts: Vec<Text> = sources.iter().map(Text::new).collect();
    let nvrtc = match places.nvrtc(driver) {
        Ok(nvrtc) => nvrtc,
        Err(reason) => {
            let missing = || NoGpu::NoCompiler { card: card.name.clone(), reason: reason.clone() };
            let images = texts.iter().map(|text| match cache.load_any(text, card.capability, driver) {
                Lookup::Found(image) => Ok(image),
                Lookup::Absent => Err(missing()),
                Lookup::Broken(why) => {
                    remark(&format!("{why}: it is not used"));
                    Err(missing())
                }
            });
            return images.collect();
        }
    };
    let target = nvrtc.target(card.capability).map_err(NoGpu::Compiler)?;
    let made = Made { target, by: nvrtc.version() };
    let kept = texts.iter().map(|text| match cache.load(text, made) {
        Lookup::Found(image) => Some(image),
        Lookup::Absent => None,
        Lookup::Broken(why) => {
            remark(&format!("{why}: it is made anew"));
            None
        }
    });
    let mut images: Vec<Option<Vec<u8>>> = kept.collect();
    let missing: Vec<usize> = (0..images.len()).filter(|&index| images[index].is_none()).collect();
    let compiled = in_parallel(&missing, &|&index| nvrtc.compile(&sources[index], target));
    let mut writable = true;
    for (index, compiled) in missing.into_iter().zip(compiled) {
        let image = compiled.map_err(NoGpu::Compiler)?.image;
        if writable && let Err(why) = cache.store(&texts[index], made, &image) {
            remark(&format!("{why}: kernels are compiled again the next time"));
            writable = false;
        }
        images[index] = Some(image);
    }
    Ok(images.into_iter().flatten().collect())
}

/// Reports whether [`images`] would find a compiler, or do without one; nothing is compiled.
pub(crate) fn check(card: &Card, driver: Version, places: &Places, sources: &[Source]) -> Result<(), NoGpu> {
    match places.nvrtc(driver) {
        Ok(nvrtc) => nvrtc.target(card.capability).map(drop).map_err(NoGpu::Compiler),
        Err(_) => images(card, driver, places, sources, &mut |_| ()).map(drop),
    }
}

/// Does something with each item, on as many threads as there are processors; the answers are in the items' order.
fn in_parallel<T: Sync, A: Send>(items: &[T], work: &(impl Fn(&T) -> A + Sync)) -> Vec<A> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = items.get(index)
                {
                    let answer = work(item);
                    answers.lock().unwrap_or_else(PoisonError::into_inner).push((index, answer));
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
