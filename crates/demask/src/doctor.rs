//! Report on a machine: its abilities, and the methods that are used on it.

use std::fs;

use demask_checkpoint::FAMILIES;
use demask_cpu::{
    isa::{Isa, Tier},
    linear::{Activations, Products, Quantisation},
    pool::Pool,
};
#[cfg(feature = "cuda")]
use demask_cuda::{self as cuda, Cuda};
use demask_decode::{CacheSpec, DecoderSpec, Others, legality, recommended};
use demask_measure::{ceiling, reading::Reading};
use demask_step::{Mask, SequenceLimits};
use demask_tensor::Dtype;
use serde::Serialize;

use crate::{
    DeviceChoice, DeviceOptions, Footprint, UnusableDevice, WeightChoice,
    costs::{model_shape::ModelShape, shapes::Like},
};

/// Report on a machine: its abilities, and the methods that are used on it unless others are named.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Doctor {
    /// The processor.
    pub cpu: Cpu,
    /// GPUs, or why there are none.
    pub gpu: Gpu,
    /// Memory of the machine.
    pub memory: Memory,
    /// Peak rates, measured in this run.
    pub ceilings: Ceilings,
    /// Methods where neither `decoder` nor `cache` is set.
    pub defaults: Vec<Defaults>,
    /// Released models that there is memory for.
    pub fits: Vec<Fits>,
}

/// Released models that there is memory for, with an answer, in a format of their weights.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fits {
    /// Format of the weights.
    pub quantize: String,
    /// The hub's names of checkpoints, as the table of sizes has them.
    pub models: Vec<&'static str>,
}

/// A processor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cpu {
    /// Name of the processor.
    pub model: String,
    /// The instruction set that computes.
    pub tier: &'static str,
    /// All that it has.
    pub tiers: Vec<&'static str>,
    /// Threads that compute.
    pub threads: usize,
}

/// GPUs of the machine, or the reason why there are none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Gpu {
    /// No usable GPU.
    None {
        /// Reason why there is none.
        reason: String,
    },
    /// A driver was found.
    #[cfg(feature = "cuda")]
    Found(Found),
}

/// GPUs and what drives them.
#[cfg(feature = "cuda")]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// The version of CUDA that the driver is for.
    pub driver: String,
    /// Cards that the driver controls.
    pub cards: Vec<Card>,
    /// The compiler of kernels, or why there is none.
    pub nvrtc: String,
    /// Folder of compiled kernels, if they are kept.
    pub kernels: Option<String>,
    /// What has run on cards, and when one is taken.
    pub standing: &'static str,
}

/// A GPU.
#[cfg(feature = "cuda")]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Card {
    /// Number of the card.
    pub number: usize,
    /// Name of the card.
    pub name: String,
    /// Compute capability of the card.
    pub capability: String,
    /// Memory of the card in bytes.
    pub memory: u64,
    /// Reason why it cannot be used, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Memory of a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Memory {
    /// Total bytes; 0 where nothing is known.
    pub total: u64,
    /// Bytes that this program may still take; 0 where nothing is known.
    pub available: u64,
}

/// Peak rates of a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ceilings {
    /// Reading memory, in GB/s; none if there was too little memory to measure it.
    pub read_gbs: Option<f64>,
    /// Products of f32, in TFLOP/s.
    pub f32_tflops: f64,
    /// Products of bf16, in TFLOP/s.
    pub bf16_tflops: f64,
    /// Products of int8, in TFLOP/s.
    pub int8_tflops: f64,
}

/// The methods that are used for families of models.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Defaults {
    /// Families of models.
    pub families: String,
    /// The decoder.
    pub decoder: String,
    /// The cache policy.
    pub cache: String,
    /// Claim that their tokens may make.
    pub exactness: &'static str,
}

impl Doctor {
    /// Looks at this machine, as far as a model would use it with these settings. It takes the processor for about a second.
    ///
    /// # Errors
    /// If the settings are not for this machine.
    pub fn look(asked: &DeviceOptions) -> Result<Self, UnusableDevice> {
        if matches!(asked.device, DeviceChoice::Cuda(_)) {
            asked.resolved()?;
        }
        let device = &DeviceOptions { device: DeviceChoice::Cpu, ..asked.clone() }.resolved()?;
        device.products(Dtype::F32, Mask::Full)?;
        let (isa, threads) = (device.isa()?, device.thread_count()?);
        Ok(Self {
            cpu: Cpu {
                model: processor(),
                tier: isa.tier().name(),
                tiers: Isa::available().into_iter().map(|isa| isa.tier().name()).collect(),
                threads,
            },
            gpu: gpu(asked),
            memory: Memory {
                total: demask_cpu::total_memory(),
                // The largest number stands for a system that does not say: 0 is reported then.
                available: Some(demask_cpu::available_memory()).filter(|&bytes| bytes < u64::MAX).unwrap_or(0),
            },
            ceilings: ceilings(&Pool::new(threads), isa),
            defaults: defaults(),
            fits: fits(demask_cpu::available_memory()),
        })
    }

    /// Returns how many tiers of the processor are known to this program.
    pub fn known_tiers() -> usize {
        Tier::ALL.len()
    }
}

#[cfg(not(feature = "cuda"))]
fn gpu(_: &DeviceOptions) -> Gpu {
    Gpu::None { reason: "this build runs on the CPU only".to_owned() }
}

#[cfg(feature = "cuda")]
fn gpu(asked: &DeviceOptions) -> Gpu {
    let cuda = match Cuda::probe(&asked.cuda) {
        Ok(cuda) => cuda,
        Err(reason) => return Gpu::None { reason: reason.to_string() },
    };
    let card = |card: &cuda::Card| Card {
        number: card.number,
        name: card.name.clone(),
        capability: format!("{}.{}", card.capability / 10, card.capability % 10),
        memory: card.memory,
        refused: cuda.card(card.number).err().map(|reason| reason.to_string()),
    };
    Gpu::Found(Found {
        driver: cuda.version().to_string(),
        cards: cuda.cards().iter().map(card).collect(),
        nvrtc: match cuda.nvrtc() {
            Ok(nvrtc) => format!("{} ({})", nvrtc.version(), nvrtc.file()),
            Err(reason) => format!("none: {reason}"),
        },
        kernels: cuda.kernel_folder().map(|folder| folder.display().to_string()),
        standing: crate::device::STANDING,
    })
}

fn ceilings(pool: &Pool, isa: Isa) -> Ceilings {
    let bytes = Products {
        quantisation: Some(Quantisation::Q8),
        activations: Activations::Int8,
        ..Products::plain(Dtype::Bf16)
    };
    Ceilings {
        read_gbs: Reading::new(isa, pool).ok().map(|reading| reading.gbs(pool)),
        f32_tflops: ceiling::product_tflops(pool, isa, Products::plain(Dtype::F32)),
        bf16_tflops: ceiling::product_tflops(pool, isa, Products::plain(Dtype::Bf16)),
        int8_tflops: ceiling::product_tflops(pool, isa, bytes),
    }
}

/// Returns the name of the processor, or its architecture where the system does not say.
pub fn processor() -> String {
    system_line("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The value of the first line `key : value` of a system's file.
fn system_line(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
    line.map(|value| value.trim().to_owned())
}

fn defaults() -> Vec<Defaults> {
    let kinds = [Mask::Full, Mask::blocks(4), Mask::Context { context: 0, block: 4 }, Mask::Causal].map(|mask| {
        let alike = FAMILIES.iter().filter(|family| family.attention().kind() == mask.kind());
        let alike = alike.filter(|family| family.decoding().sampler.is_none() && !family.trains_causal_masks());
        let families = alike.map(|family| family.name()).collect::<Vec<_>>().join(", ");
        let (decoder, cache) = recommended(mask);
        of_methods(families, &decoder, &cache)
    });
    let own = FAMILIES.iter().filter(|family| family.decoding().sampler.is_some());
    let own = own.map(|family| of_methods(family.name().to_owned(), &DecoderSpec::default(), &CacheSpec::default()));
    let guessing = FAMILIES.iter().filter(|family| family.trains_causal_masks());
    let guessing = guessing.map(|family| {
        let (decoder, cache) = Others::Guesses.methods(family.attention());
        of_methods(family.name().to_owned(), &decoder, &cache)
    });
    kinds.into_iter().chain(guessing).chain(own).collect()
}

/// Default methods of families, and their exactness.
fn of_methods(families: String, decoder: &DecoderSpec, cache: &CacheSpec) -> Defaults {
    let exactness = legality::exactness(decoder, cache).name();
    Defaults { families, decoder: decoder.to_string(), cache: cache.to_string(), exactness }
}

/// Positions of the answer that a model must have memory for.
const POSITIONS: usize = 1000;

/// Released shapes that fit in so many bytes.
fn fits(available: u64) -> Vec<Fits> {
    let answer = SequenceLimits { positions: POSITIONS, ..SequenceLimits::default() };
    let needs = |like: Like, quantize| {
        let outline = ModelShape::of_shape(like, None).ok()?;
        let device = DeviceOptions { device: DeviceChoice::Cpu, quantize, ..DeviceOptions::default() };
        let options = device.backend_options(Dtype::Bf16, outline.info().facts().mask).ok()?;
        let spec = outline.info().spec();
        Some(
            Footprint::of(spec, (outline.stored(), None), &options, POSITIONS, std::slice::from_ref(&answer))
                .ok()?
                .total(),
        )
    };
    let format = |quantize| {
        let fitting = Like::all().filter(|&like| needs(like, quantize).is_some_and(|needed| needed <= available));
        Fits { quantize: quantize.to_string(), models: fitting.map(Like::hub).collect() }
    };
    [WeightChoice::Q8, WeightChoice::Q4].map(format).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_fit_are_named_by_the_format_of_their_weights() {
        let named = |gigabytes: u64| {
            let models = fits(gigabytes * 1_000_000_000).into_iter().map(|fits| fits.models);
            let asked = ["fredzzp/open-dcoder-0.5B", "JetLM/SDAR-8B-Chat", "JetLM/SDAR-30B-A3B-Chat"];
            models.map(|models| asked.map(|name| models.contains(&name))).collect()
        };
        let (small, middle, large): (Vec<_>, Vec<_>, Vec<_>) = (named(2), named(7), named(40));
        assert_eq!(small, [[true, false, false], [true, false, false]]);
        assert_eq!(middle, [[true, false, false], [true, true, false]]);
        assert_eq!(large, [[true; 3]; 2]);
    }
}
