//! Forwards with an adapter: on masks, on all rows beside the weights and in them, and on none.

use std::path::Path;

use demask::{AdapterChoice, DtypeChoice, ModelByHand};
use demask_checkpoint::{AdapterFiles, ModelFiles};

use super::{Device, Devices, cases::Forward, check_forward, checkpoint, files, folder, say};

/// Loads a checkpoint, whose mask is given where its files name none, with an adapter.
pub fn adapted(
    folder: &Path,
    (name, mask): (&str, u32),
    adapter: Option<(&str, AdapterChoice)>,
    device: Device,
    dtype: DtypeChoice,
) -> ModelByHand {
    let family = name.contains("base").then(|| format!("Qwen3:mask={mask}").parse().unwrap());
    let open = |name: &str| ModelFiles::directory(checkpoint(folder, name)).unwrap();
    let adapter = adapter.map(|(name, choice)| AdapterFiles { files: open(name), choice });
    let files = open(name).of_family(family).with_adapter(adapter);
    device.load_files(files, dtype).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Uses of the adapter that an input of a forward file stands for.
fn uses(tag: &str, device: Device) -> Vec<Option<AdapterChoice>> {
    let on_gpu = device == Device::EmulatedGpu;
    match tag.split_once('.').map(|(_, rows)| rows) {
        Some("off") => vec![None],
        Some("all") if on_gpu => vec![Some(AdapterChoice::Merged)],
        Some("all") => vec![Some(AdapterChoice::All), Some(AdapterChoice::Merged)],
        Some(other) => panic!("rows {other}"),
        None if on_gpu => Vec::new(),
        None => vec![Some(AdapterChoice::Masks)],
    }
}

pub fn forwards(on: Devices, dtype: DtypeChoice, tolerance: f32) {
    let (folder, mut failures) = (folder(), Vec::new());
    for path in files(&folder, "forward") {
        let forward = Forward::read(&path);
        let Some(adapter) = forward.adapter.as_deref() else { continue };
        for device in on.in_type(dtype) {
            let mut worst = 0f32;
            for input in &forward.inputs {
                for choice in uses(&input.tag, device) {
                    let mask = if forward.model.contains("base") { 93 } else { 157 };
                    let with = choice.map(|choice| (adapter, choice));
                    let mut model = adapted(&folder, (&forward.model, mask), with, device, dtype);
                    assert_eq!(model.info().facts().mask_id, Some(mask));
                    worst = worst.max(check_forward(&mut model, (&forward, &[input]), tolerance, &mut failures));
                }
            }
            say(&format!("forward {} with {adapter} {dtype} {device}: distance {worst:.1e}", forward.model));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
