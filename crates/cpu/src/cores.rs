//! Cores that threads may run on.

use std::thread;

/// The number of threads that this process may use: processors, less what affinity and control groups take away.
pub fn available_threads() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The number of threads that a product is best divided among: physical cores of the fast kind, as far as affinity and control
/// groups leave them to this process. A core's second thread shares its units of multiplication, and a slow core is waited for
/// at the end of each product.
///
/// All available threads where the system says nothing about its cores. Linux and macOS are asked.
pub fn fast_cores() -> usize {
    let available = available_threads();
    system_cores().map_or(available, |cores| cores.clamp(1, available))
}

/// Fast cores among the processors that this process may run on.
#[cfg(target_os = "linux")]
fn system_cores() -> Option<usize> {
    linux::fast_cores("/sys/devices".as_ref(), &linux::affinity())
}

/// Cores of the fastest kind, or all where there is one kind.
#[cfg(target_os = "macos")]
fn system_cores() -> Option<usize> {
    let cores = [c"hw.perflevel0.physicalcpu", c"hw.physicalcpu"].into_iter().find_map(crate::macos::number)?;
    usize::try_from(cores).ok()
}

/// Nothing: other systems are not asked for their cores.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn system_cores() -> Option<usize> {
    None
}

/// Cores as the files of Linux describe them.
#[cfg(target_os = "linux")]
mod linux {
    use std::{collections::BTreeSet, fs, path::Path};

    /// Numbers of the processors that this process may run on; none if the system has more than a set has room for.
    pub(super) fn affinity() -> Vec<usize> {
        // SAFETY: a set is plain bits, and the call writes no more than its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
                return Vec::new();
            }
            (0..libc::CPU_SETSIZE as usize).filter(|&processor| libc::CPU_ISSET(processor, &set)).collect()
        }
    }

    /// Number of different cores of these processors, without slow ones beside fast ones; none if a processor's core is
    /// unknown. `devices` is the system's folder of devices.
    pub(super) fn fast_cores(devices: &Path, processors: &[usize]) -> Option<usize> {
        let folder = |processor: usize| devices.join(format!("system/cpu/cpu{processor}"));
        let capacity = |processor: usize| read(&folder(processor).join("cpu_capacity"))?.parse::<u32>().ok();
        let largest = processors.iter().filter_map(|&processor| capacity(processor)).max();
        // Processors of Intel with two kinds of cores; where there is one kind, the file is missing.
        let intel = read(&devices.join("cpu_core/cpus")).map(|list| numbers(&list));
        let fast = |processor: usize| match (&intel, capacity(processor), largest) {
            (Some(fast), ..) => fast.contains(&processor),
            (None, Some(capacity), Some(largest)) => 2 * capacity >= largest,
            _ => true,
        };
        // The name of a core is the list of its processors.
        let core = |processor: usize| read(&folder(processor).join("topology/thread_siblings_list"));
        let cores = |fast: &dyn Fn(usize) -> bool| {
            let chosen = processors.iter().filter(|&&processor| fast(processor));
            chosen.map(|&processor| core(processor)).collect::<Option<BTreeSet<_>>>().map(|cores| cores.len())
        };
        let found = cores(&fast)?;
        // A process that may run on slow cores alone takes those.
        if found > 0 { Some(found) } else { cores(&|_| true).filter(|&cores| cores > 0) }
    }

    /// The text of a file, without the end of its line.
    fn read(path: &Path) -> Option<String> {
        Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
    }

    /// Numbers of a list as `0-3,8`.
    fn numbers(list: &str) -> Vec<usize> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..=last.parse().ok()?)
        };
        list.split(',').filter_map(range).flatten().collect()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// A folder of devices with these files.
        fn devices(files: &[(String, &str)]) -> tempfile::TempDir {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            }
            folder
        }

        fn siblings(processor: usize, list: &str) -> (String, &str) {
            (format!("system/cpu/cpu{processor}/topology/thread_siblings_list"), list)
        }

        #[test]
        fn a_core_of_two_threads_counts_once() {
            let files: Vec<_> = (0..8).map(|n| siblings(n, ["0,4", "1,5", "2,6", "3,7"][n % 4])).collect();
            let folder = devices(&files);
            let cores = |processors: &[usize]| fast_cores(folder.path(), processors);
            assert_eq!(cores(&[0, 1, 2, 3, 4, 5, 6, 7]), Some(4));
            assert_eq!(cores(&[0, 4, 5]), Some(2));
            assert_eq!(cores(&[6]), Some(1));
        }

        #[test]
        fn slow_cores_are_left_out_beside_fast_ones() {
            let lists = ["0-1", "0-1", "2-3", "2-3", "4", "5"];
            let mut files: Vec<_> = (0..6).map(|n| siblings(n, lists[n])).collect();
            files.push(("cpu_core/cpus".into(), "0-3"));
            let intel = devices(&files);
            let _ = files.pop();
            let capacities = ["1024", "1024", "880", "880", "300", "300"];
            files.extend((0..6).map(|n| (format!("system/cpu/cpu{n}/cpu_capacity"), capacities[n])));
            for folder in [intel, devices(&files)] {
                assert_eq!(fast_cores(folder.path(), &[0, 1, 2, 3, 4, 5]), Some(2));
                assert_eq!(fast_cores(folder.path(), &[2, 5]), Some(1));
                assert_eq!(fast_cores(folder.path(), &[4, 5]), Some(2), "there are no others");
            }
        }

        #[test]
        fn a_system_that_hides_its_cores_is_not_guessed_at() {
            let folder = devices(&[siblings(0, "0-1")]);
            assert_eq!(fast_cores(folder.path(), &[0, 1]), None);
            assert_eq!(fast_cores(folder.path(), &[]), None);
        }

        #[test]
        fn this_process_has_cores() {
            let processors = affinity();
            assert!(!processors.is_empty());
            assert!((1..=processors.len()).contains(&super::super::fast_cores()));
        }
    }
}
