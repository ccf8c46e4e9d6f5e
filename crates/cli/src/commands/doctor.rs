//! `demask doctor`: what this machine offers, and which methods are used on it unless others are named.

use demask::DeviceChoice;
#[cfg(feature = "cuda")]
use demask::doctor::{Card, Found};
use demask::doctor::{Defaults, Doctor, Fits, Gpu};

use crate::{output, settings::Settings};

/// Runs the command.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let asked = settings.requested_device();
    if matches!(asked.device, DeviceChoice::Cuda(_)) {
        settings.device()?;
    }
    let report = Doctor::look(asked)?;
    if settings.screen.json { output::json(&report) } else { Ok(output::text(&describe(&report))?) }
}

/// Lines about GPUs.
fn gpu_lines(gpu: &Gpu) -> Vec<String> {
    match gpu {
        Gpu::None { reason } => vec![format!("gpu       none: {reason}")],
        #[cfg(feature = "cuda")]
        Gpu::Found(Found { driver, cards, nvrtc, kernels, standing }) => {
            let cards = cards.iter().map(|Card { number, name, capability, memory, refused }| {
                let refused = refused.as_ref().map_or_else(String::new, |reason| format!("; cannot be used: {reason}"));
                let memory = output::bytes(*memory);
                format!("gpu       cuda:{number} {name}, capability {capability}, {memory}{refused}")
            });
            let kernels = kernels.as_deref().unwrap_or("are not kept: neither XDG_CACHE_HOME nor HOME is set");
            let about = [
                ("driver", format!("CUDA {driver}")),
                ("nvrtc", nvrtc.clone()),
                ("kernels", kernels.to_owned()),
                ("standing", (*standing).to_owned()),
            ];
            let about = about.map(|(name, text)| format!("{name:<9} {text}"));
            cards.chain(about).collect()
        }
    }
}

fn describe(Doctor { cpu, gpu, memory, ceilings, defaults, fits }: &Doctor) -> String {
    let reading = ceilings.read_gbs.map(|gbs| format!("{gbs:.1} GB/s"));
    let reading = reading.unwrap_or_else(|| "not enough memory to measure".to_owned());
    let lacking = Doctor::known_tiers() - cpu.tiers.len();
    let mut lines = vec![
        format!("cpu       {}", cpu.model),
        format!(
            "tier      {} (has {}; {lacking} of {} lacking)",
            cpu.tier,
            cpu.tiers.join(", "),
            Doctor::known_tiers()
        ),
        format!("threads   {}", cpu.threads),
        format!("memory    {}, {} available", output::bytes(memory.total), output::bytes(memory.available)),
    ];
    lines.extend(gpu_lines(gpu));
    lines.extend([
        format!("reading   {reading}"),
        format!("f32       {:.3} TFLOP/s", ceilings.f32_tflops),
        format!("bf16      {:.3} TFLOP/s", ceilings.bf16_tflops),
        format!("int8      {:.3} TFLOP/s", ceilings.int8_tflops),
    ]);
    lines.extend(fits.iter().map(|Fits { quantize, models }| {
        let models = if models.is_empty() { "no released model".to_owned() } else { models.join(", ") };
        format!("fits {quantize:<4} {models}")
    }));
    lines.push("defaults".to_owned());
    lines.extend(defaults.iter().map(|Defaults { families, decoder, cache, exactness }| {
        format!("  {families}: decoder {decoder}, cache {cache} ({exactness})")
    }));
    lines.join("\n") + "\n"
}
