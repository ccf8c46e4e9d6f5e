//! Room for a model: the memory and the disk that it takes, compared with the free ones before its weights are fetched.

use std::path::{Path, PathBuf};

use demask::{
    DeviceChoice, DeviceOptions, Footprint, TooLarge,
    layers::{
        checkpoint::{Checkpoint, Survey},
        cpu::available_memory,
        step::SequenceLimits,
    },
};

use crate::{
    env,
    output::{Screen, bytes, counted},
};

/// Positions of the answer that a model must have memory for.
const POSITIONS: usize = 1000;

/// Returns the memory that a model takes with an answer, as the loader checks it.
///
/// # Errors
/// If the device cannot be used.
pub fn footprint(checkpoint: &Checkpoint, device: &DeviceOptions) -> anyhow::Result<Footprint> {
    let options = device.backend_options(checkpoint.weights().main_dtype(), checkpoint.spec().attention)?;
    let answer = SequenceLimits { positions: POSITIONS, ..SequenceLimits::default() };
    Ok(Footprint::of_files(checkpoint.spec(), checkpoint.weights(), &options, POSITIONS, &[answer])?)
}

/// Returns the bytes of memory that are free, where the system says it.
pub fn free_memory() -> Option<u64> {
    // The largest number is that of a system that does not say.
    Some(available_memory()).filter(|&free| free < u64::MAX)
}

/// A model of which weights are still to be fetched, and what there is room for.
pub struct Room<'a> {
    name: &'a str,
    files: usize,
    bytes: u64,
    /// Memory that is needed and that is free; none on a GPU, whose own counts.
    memory: Option<(u64, u64)>,
    /// Bytes that are free where it would be kept.
    disk: Option<u64>,
    cache: PathBuf,
}

/// Weights too large for the disk.
#[derive(Debug, thiserror::Error)]
#[error("{name} takes {} of disk and {} are free in {cache}: free some, or choose another place with HF_HOME", bytes(*.needed), bytes(*.free))]
pub struct DiskTooSmall {
    name: String,
    needed: u64,
    free: u64,
    cache: String,
}

impl<'a> Room<'a> {
    /// Compares a survey's findings with this machine. Without a checkpoint the needed memory is unknown.
    ///
    /// # Errors
    /// If the device cannot be used.
    pub fn of(
        name: &'a str,
        found: &Survey,
        checkpoint: Option<&Checkpoint>,
        device: &DeviceOptions,
    ) -> anyhow::Result<Self> {
        let cache = env::hub().cache;
        let processor = !matches!(device.device, DeviceChoice::Cuda(_));
        let needs = checkpoint.filter(|_| processor).map(|checkpoint| footprint(checkpoint, device)).transpose()?;
        let memory = needs.map(|needs| needs.total()).zip(free_memory());
        let Survey { missing_files: files, missing_bytes: bytes, .. } = *found;
        Ok(Self { name, files, bytes, memory, disk: free_disk(&cache), cache })
    }

    /// Says in a line how much is fetched and needed, where somebody waits for it.
    pub fn report(&self, screen: Screen) {
        if screen.has_bars() {
            screen.remark(&self.line());
        }
    }

    fn line(&self) -> String {
        let fetched = format!("{} in {}", bytes(self.bytes), counted(self.files, "file"));
        let needed =
            self.memory.map(|(needed, free)| format!("; needs {} of memory, {} free", bytes(needed), bytes(free)));
        fetched + &needed.unwrap_or_default()
    }

    /// Says that there is too little memory, if there is.
    pub fn warn_of_memory(&self, screen: Screen) {
        if let Some((needed, free)) = self.memory.filter(|(needed, free)| needed > free) {
            screen.remark(&format!(
                "warning: {} needs {} of memory as it is stored, and {} are free: see demask inspect {0}",
                self.name,
                bytes(needed),
                bytes(free)
            ));
        }
    }

    /// Refuses weights for which the disk has no room.
    ///
    /// # Errors
    /// If there is less room than they take.
    pub fn check_disk(&self) -> Result<(), DiskTooSmall> {
        match self.disk.filter(|&free| free < self.bytes) {
            None => Ok(()),
            Some(free) => Err(DiskTooSmall {
                name: self.name.to_owned(),
                needed: self.bytes,
                free,
                cache: self.cache.display().to_string(),
            }),
        }
    }

    /// Refuses a model that does not fit in the memory.
    ///
    /// # Errors
    /// If it needs more than is free: what quantisation would make it fit.
    pub fn check_memory(&self, checkpoint: &Checkpoint, device: &DeviceOptions) -> Result<(), TooLarge> {
        let Some((_, free)) = self.memory else { return Ok(()) };
        let needs = |quantize| footprint(checkpoint, &DeviceOptions { quantize, ..device.clone() }).unwrap_or_default();
        TooLarge::check(self.name, "memory", device.quantize, needs, free)
    }
}

/// Bytes that are free on the disk of a folder, which need not be there yet.
#[cfg(unix)]
fn free_disk(folder: &Path) -> Option<u64> {
    let here = std::path::absolute(folder).ok()?;
    let about = rustix::fs::statvfs(here.ancestors().find(|folder| folder.exists())?).ok()?;
    about.f_bavail.checked_mul(about.f_frsize)
}

/// The standard library knows no free bytes of a disk.
#[cfg(not(unix))]
fn free_disk(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> Room<'static> {
        let cache = PathBuf::from("/cache");
        Room {
            name: "org/name",
            files: 3,
            bytes: 5 << 30,
            memory: Some((6 << 30, 13 << 30)),
            disk: Some(1 << 40),
            cache,
        }
    }

    #[test]
    fn a_line_says_what_is_fetched_and_needed() {
        assert_eq!(room().line(), "5.0 GiB in 3 files; needs 6.0 GiB of memory, 13.0 GiB free");
        assert_eq!(Room { files: 1, memory: None, ..room() }.line(), "5.0 GiB in 1 file");
    }

    #[test]
    fn a_disk_that_is_too_small_is_named_with_both_numbers() {
        assert!(room().check_disk().is_ok() && Room { disk: None, ..room() }.check_disk().is_ok());
        assert_eq!(
            Room { disk: Some(1 << 30), ..room() }.check_disk().unwrap_err().to_string(),
            "org/name takes 5.0 GiB of disk and 1.0 GiB are free in /cache: free some, or choose another place with HF_HOME"
        );
    }

    #[test]
    #[cfg(unix)]
    fn the_disk_of_a_folder_that_is_not_there_is_that_of_those_above() {
        assert!(free_disk(Path::new("/no/such/folder")).is_some_and(|free| free > 0));
    }
}
