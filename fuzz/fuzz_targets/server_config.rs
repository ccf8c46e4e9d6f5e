//! Any text as the file of `demask serve`, and as its file of keys: settings or an error of one line.
#![no_main]

use std::path::Path;

use demask::{LoadOptions, Settings};
use demask_serve::{Keys, ServeOptions};
use demask_settings::{
    layers::Layered,
    toml::{FileError, Reader},
};
use libfuzzer_sys::fuzz_target;

type Read = (Layered<LoadOptions>, Layered<ServeOptions>);

/// Settings of a file; none where a key is unknown.
fn read(text: &str) -> Result<Option<Read>, FileError> {
    let (mut model, mut server) = (Layered::new(LoadOptions::default()), Layered::new(ServeOptions::default()));
    for entry in (Reader { path: Path::new("serve.toml"), text }).parse()?.entries() {
        if !model.add_entry(entry)? && !server.add_entry(entry)? {
            return Ok(None);
        }
    }
    Ok(Some((model, server)))
}

fn values((model, server): &Read) -> String {
    let json = |settings: serde_json::Result<String>| settings.expect("settings are JSON");
    json(serde_json::to_string(model.settings())) + &json(serde_json::to_string(server.settings()))
}

fuzz_target!(|text: &str| {
    match read(text) {
        // What was read and written down is read as the same.
        Ok(Some(settings)) => {
            let written = [settings.0.lines(), settings.1.lines()].concat().join("\n");
            let again = read(&written).ok().flatten().expect("it was written by the program");
            // Defaults are written, too: they are set only where the text said so.
            let mut filled = settings.1.settings().clone();
            filled.fill(again.1.settings().clone());
            assert_eq!(&filled, again.1.settings(), "{text:?}");
            assert_eq!(settings.0.settings(), again.0.settings(), "{text:?}: {}", values(&settings));
        }
        Ok(None) => {}
        Err(refused) => assert!(!refused.to_string().contains('\n'), "{refused}"),
    }
    if let Err(error) = Keys::parse(text) {
        assert!(!error.to_string().contains('\n'));
    }
});
