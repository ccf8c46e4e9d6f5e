//! Search for the compiler: in the system's folders, in folders of CUDA, and in a Python environment that brought it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// Names of the library, newest first. CUDA 11's has kept its number since 11.2.
const NAMES: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"];

/// Folders of a toolkit's libraries, below its own folder.
const TOOLKIT: [&str; 3] = ["lib64", "lib", "targets/x86_64-linux/lib"];

/// Folders of the compiler's wheels, below a Python environment's packages: CUDA 13, and the ones before.
const WHEELS: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];

/// The toolkit's usual folder, where nobody names another.
pub const DEFAULT_FOLDERS: [&str; 1] = ["/usr/local/cuda"];

/// Candidates to load, the newest first: by name, where the system looks, then in the libraries' folders of toolkits
/// and Python environments.
pub fn candidates(toolkits: &[PathBuf], environments: &[PathBuf]) -> Vec<OsString> {
    let toolkits = toolkits.iter().flat_map(|toolkit| TOOLKIT.map(|folder| toolkit.join(folder)));
    let environments = environments.iter().flat_map(|environment| packages(environment));
    let wheels = environments.flat_map(|packages| WHEELS.map(|folder| packages.join(folder)));
    let folders: Vec<PathBuf> = toolkits.chain(wheels).filter(|folder| folder.is_dir()).collect();
    let places = |name: &'static str| {
        let files = folders.iter().map(move |folder| folder.join(name)).filter(|file| file.exists());
        std::iter::once(OsString::from(name)).chain(files.map(PathBuf::into_os_string)).collect::<Vec<_>>()
    };
    NAMES.into_iter().flat_map(places).collect()
}

/// Folders of packages of a Python environment, whatever its Python's version.
fn packages(environment: &Path) -> Vec<PathBuf> {
    let versions = ["lib", "lib64"].into_iter().filter_map(|lib| fs::read_dir(environment.join(lib)).ok());
    let mut folders: Vec<PathBuf> =
        versions.flatten().flatten().map(|version| version.path().join("site-packages")).collect();
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_and_toolkits_are_looked_into_newest_first() {
        let root = std::env::temp_dir().join(format!("demask-nvrtc-search-{}", std::process::id()));
        let put = |file: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path.into_os_string()
        };
        let twelve = put("venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
        let thirteen = put("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
        let plain = put("toolkit/lib64/libnvrtc.so");
        let found = candidates(&[root.join("toolkit"), root.join("absent")], &[root.join("venv")]);
        fs::remove_dir_all(&root).unwrap();
        let names = NAMES.map(OsString::from);
        let [newest, twelfth, eleventh, any] = names;
        assert_eq!(found, [newest, thirteen, twelfth, twelve, eleventh, any, plain]);
    }
}
