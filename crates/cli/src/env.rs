//! Environment variables that `demask` alone reads, beside those of both programs: declared once, with their
//! documentation. `docs/env.md` is written from both lists.

use std::path::PathBuf;

use demask::SettingError;
use demask_settings::layers::typed;
use demask_terminal::env::{Knob, named};

/// A key that clients of `serve` must send, beside those of a file.
const API_KEY: &str = "DEMASK_API_KEY";
const STATE_HOME: &str = "XDG_STATE_HOME";
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// Variables of the program.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: STATE_HOME,
        kind: "directory",
        default: "`$HOME/.local/state`",
        doc: "Where programs keep what they remember: `chat` the history of what was typed, in `demask/history`.",
    },
    Knob {
        name: API_KEY,
        kind: "text",
        default: "unset",
        doc: "A key that clients of `serve` must send, beside those of `--api-key-file`. Set to nothing, it is refused.",
    },
    Knob {
        name: "DEMASK_MODEL",
        kind: "as the flag",
        default: "unset",
        doc: "`--model` of every command. Each flag of the model has such a variable (`DEMASK_DEVICE`, `DEMASK_THREADS`), and each of `serve` (`DEMASK_HOST`, `DEMASK_PORT`, `DEMASK_MAX_GEN_LENGTH`). A flag overrides it. Set to nothing, it is refused.",
    },
    Knob {
        name: NOTIFY_SOCKET,
        kind: "path, or `@` and a name",
        default: "unset",
        doc: "Socket of the service manager, to which `serve` reports that it is ready and about to end. systemd sets it.",
    },
    Knob {
        name: WATCHDOG_USEC,
        kind: "microseconds",
        default: "unset",
        doc: "Time within which `serve` sends the service manager signs of life. systemd sets it with `WatchdogSec`.",
    },
    Knob {
        name: WATCHDOG_PID,
        kind: "process",
        default: "unset",
        doc: "Process that `WATCHDOG_USEC` is for; of another one it is not read.",
    },
];

/// The key that clients of `serve` must send, if the environment names one.
///
/// # Errors
/// If it is set to nothing.
pub fn api_key() -> Result<Option<String>, SettingError> {
    std::env::var_os(API_KEY).map(|value| typed(API_KEY, value)).transpose()
}

/// Name of the variable with a key.
pub const fn api_key_name() -> &'static str {
    API_KEY
}

/// The file with the history of typed messages. None where the user has no directory.
pub fn history() -> Option<PathBuf> {
    let absolute = |name| named(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute(STATE_HOME).or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("demask/history"))
}

/// The socket of the service manager, if it has started the command.
pub fn notify_socket() -> Option<std::ffi::OsString> {
    std::env::var_os(NOTIFY_SOCKET).filter(|name| !name.is_empty())
}

/// The time within which the service manager wants signs of life, if it wants them of this process.
pub fn watchdog() -> Option<std::time::Duration> {
    let own = std::process::id().to_string();
    let meant = named(WATCHDOG_PID).is_none_or(|process| process == own);
    let limit = named(WATCHDOG_USEC)?.parse().ok().filter(|&limit| limit > 0 && meant)?;
    Some(std::time::Duration::from_micros(limit))
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write, fs, path::Path};

    use super::*;

    fn page() -> String {
        let mut page = String::from(
            "# Environment variables\n\n\
             Written from `crates/terminal/src/env.rs` and `crates/cli/src/env.rs`; `DEMASK_BLESS=1 cargo test -p demask-cli` \
             writes it again.\n",
        );
        for (title, knobs) in [("Both programs", demask_terminal::env::KNOBS), ("`demask` alone", KNOBS)] {
            write!(page, "\n## {title}\n\n| variable | values | default | meaning |\n|---|---|---|---|\n").unwrap();
            for Knob { name, kind, default, doc } in knobs {
                writeln!(page, "| `{name}` | {kind} | {default} | {doc} |").unwrap();
            }
        }
        page
    }

    #[test]
    fn the_page_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/env.md");
        if std::env::var_os("DEMASK_BLESS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, page()).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, page(), "docs/env.md differs: run again with DEMASK_BLESS=1");
    }
}
