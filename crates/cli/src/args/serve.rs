//! The flags of `serve`, each of which may also stand in the environment or in a file.

use std::{ops::RangeInclusive, path::PathBuf};

use clap::{Args, builder::ValueParser};

use super::SharedArgs;

/// Texts behind one flag, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List(pub Vec<String>);

/// Range of a number's setting: the least and the most that can work. Texts have none.
pub type Range = RangeInclusive<u64>;

/// Longest time that a setting may name: a year, in seconds.
const YEAR: u64 = 365 * 24 * 60 * 60;
/// Most of what is counted and kept for each: connections, places.
const MANY: u64 = 1_000_000;

macro_rules! range {
    () => {
        0..=u64::MAX
    };
    ($range:expr) => {
        $range
    };
}

macro_rules! serve_options {
    (values {$($(#[doc = $doc:literal])+ $name:ident: $of:ty, $value:literal $(, $range:expr)?;)+}
     switches {$($(#[doc = $switch_doc:literal])+ $switch:ident;)+}) => {
        /// Serve an OpenAI-compatible API and a page to watch answers being unmasked
        #[derive(Debug, Clone, Default, Args)]
        pub struct ServeArgs {
            $($(#[doc = $doc])+
            #[arg(long, value_name = $value, value_parser = <$of>::parser(range!($($range)?)))]
            pub $name: Option<$of>,)+
            $($(#[doc = $switch_doc])+ #[arg(long)] pub $switch: bool,)+
            /// Autoregressive model that decoder guided lets judge drafts; of several, requests choose one by its name
            #[arg(long = "guide", value_name = "[NAME=]MODEL")]
            pub guides: Vec<String>,
            /// TOML file with these flags and those of the model, named as here; flags and DEMASK_* variables override it
            #[arg(long, value_name = "FILE")]
            pub config: Option<PathBuf>,
            /// Print what flags, environment and file come to, and serve nothing
            #[arg(long)]
            pub print_config: bool,
        }

        impl ServeArgs {
            /// Names of what may stand in a file, but for those of the model.
            pub const NAMES: &'static [&'static str] = &["guide", $(stringify!($name),)+ $(stringify!($switch)),+];

            /// Sets what is not set yet; whether there is such a name.
            ///
            /// # Errors
            /// What was expected instead of the text.
            pub fn fill(&mut self, name: &str, text: &str) -> Result<bool, String> {
                if name == "guide" {
                    if self.guides.is_empty() {
                        self.guides = text.split(',').map(|guide| guide.trim().to_owned()).collect();
                    }
                    return Ok(true);
                }
                $(if name == stringify!($name) {
                    let value = <$of>::read(text, &range!($($range)?))?;
                    self.$name.get_or_insert(value);
                    return Ok(true);
                })+
                $(if name == stringify!($switch) {
                    self.$switch |= text.parse::<bool>().map_err(|_| "expected true or false".to_owned())?;
                    return Ok(true);
                })+
                Ok(false)
            }

            /// Returns what is set, as a file would say it.
            pub fn lines(&self) -> Vec<String> {
                let mut lines = Vec::new();
                if !self.guides.is_empty() {
                    lines.push(format!("guide = {}", quoted(&self.guides.join(","))));
                }
                $(if let Some(value) = &self.$name {
                    lines.push(format!("{} = {}", stringify!($name), value.written()));
                })+
                $(if self.$switch {
                    lines.push(format!("{} = true", stringify!($switch)));
                })+
                lines
            }
        }
    };
}

serve_options! {
    values {
        /// Address to listen on [default: 127.0.0.1]
        host: String, "ADDRESS";
        /// Port to listen on; 0: any that is free [default: 8080]
        port: u16, "PORT";
        /// Names that requests may call the model by, separated by commas [default: the model's own]
        served_model_name: List, "NAMES";
        /// Tokens that an answer may have at most [default: 4096]
        max_gen_length: usize, "N", 1..=1 << 24;
        /// Answers that are made or wait at the same time; beyond that requests are refused with 503 [default: 256]
        max_queue: usize, "N", 1..=MANY;
        /// MiB of K/V of earlier prompts that are kept for requests that begin with the same tokens; 0: none. Only models
        /// with causal or block-causal attention have any [default: a quarter of the free memory]
        prefix_cache: u64, "MIB", 0..=1 << 24;
        /// Bytes of a request's body [default: 2097152]
        max_body_bytes: usize, "N", 1..=1 << 30;
        /// MiB of all requests' bodies together that are not yet read as JSON; beyond that requests are refused with 503 [default: 64]
        max_body_memory: usize, "MIB", 1..=1 << 20;
        /// Answers to a prompt (n) [default: 16]
        max_choices: usize, "N", 1..=4096;
        /// Prompts of a request [default: 64]
        max_prompts: usize, "N", 1..=4096;
        /// Connections at the same time [default: 4096]
        max_connections: usize, "N", 1..=MANY;
        /// Connections of one address at the same time [default: 4096]
        max_connections_per_address: usize, "N", 1..=MANY;
        /// Seconds in which a request's head must have come [default: 15]
        head_timeout: u64, "SECONDS", 1..=YEAR;
        /// Seconds in which a request's body must have come [default: 30]
        body_timeout: u64, "SECONDS", 1..=YEAR;
        /// Seconds for which a reader may take nothing of its answer [default: 60]
        write_timeout: u64, "SECONDS", 1..=YEAR;
        /// Milliseconds between two chunks of a stream, of N streams N/8 times as many if that is more: text that comes sooner
        /// goes with the next one, and the end waits for nothing; 0: a chunk for each forward [default: 10]
        stream_interval: u64, "MS", 0..=60_000;
        /// Seconds of silence after which a stream gets a heartbeat [default: 15]
        heartbeat: u64, "SECONDS", 1..=YEAR;
        /// Seconds that requests get to end after SIGTERM [default: 30]
        drain_timeout: u64, "SECONDS", 0..=YEAR;
        /// Seconds after SIGTERM in which requests are refused and connections still taken [default: 0]
        drain_notice: u64, "SECONDS", 0..=YEAR;
        /// File with keys, one a line: NAME KEY [weight=NUMBER] [rate=REQUESTS_PER_MINUTE] [default: no key is needed]
        api_key_file: PathBuf, "FILE";
        /// Origins whose pages may ask, separated by commas [default: none]
        cors_origin: List, "ORIGINS";
        /// Names of this machine that requests may be sent to, separated by commas [default: on loopback localhost, 127.0.0.1, [::1] and the address itself, else all]
        allowed_host: List, "HOSTS";
    }
    switches {
        /// Let a request in once there is memory for its whole length, so that none is ever preempted
        no_preemption;
        /// Serve no page
        no_ui;
        /// Write no line for each request
        no_log;
    }
}

/// Ask a server how it is
#[derive(Debug, Clone, Args)]
pub struct HealthArgs {
    /// Server, and the path if it is not /health [default: http://127.0.0.1 with DEMASK_PORT, or port 8080]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Seconds that the answer may take [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: Option<u64>,
}

/// A type of settings: how its values are read and written, wherever they stand.
pub trait Setting: Clone + Send + Sync + Sized + 'static {
    /// Reads a value.
    ///
    /// # Errors
    /// What was expected instead of the text.
    fn read(text: &str, range: &Range) -> Result<Self, String>;

    /// Returns a value as a file has it.
    fn written(&self) -> String;

    /// Reads a value behind a flag.
    fn parser(range: Range) -> ValueParser {
        ValueParser::from(move |text: &str| Self::read(text, &range))
    }
}

macro_rules! numbers {
    ($($of:ty),+) => {$(impl Setting for $of {
        fn read(text: &str, range: &Range) -> Result<Self, String> {
            number(text, range, <$of>::MAX as u64).map(|number| number as $of)
        }

        fn written(&self) -> String {
            self.to_string()
        }
    })+};
}

numbers!(u16, usize, u64);

/// Reads a number of a range, at most the largest of its type.
fn number(text: &str, range: &Range, largest: u64) -> Result<u64, String> {
    let range = *range.start()..=largest.min(*range.end());
    let expected = || match range.end() {
        &u64::MAX => format!("expected a whole number from {} on", range.start()),
        end => format!("expected a whole number from {} to {end}", range.start()),
    };
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(expected)
}

impl Setting for String {
    fn read(text: &str, _: &Range) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn written(&self) -> String {
        quoted(self)
    }
}

impl Setting for PathBuf {
    fn read(text: &str, _: &Range) -> Result<Self, String> {
        Ok(Self::from(text))
    }

    fn written(&self) -> String {
        quoted(&self.to_string_lossy())
    }

    fn parser(_: Range) -> ValueParser {
        // Not every path is text.
        ValueParser::path_buf()
    }
}

impl Setting for List {
    fn read(text: &str, _: &Range) -> Result<Self, String> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Ok(Self(words.map(str::to_owned).collect()))
    }

    fn written(&self) -> String {
        quoted(&self.0.join(","))
    }
}

/// A text as TOML has it: JSON's escapes are a part of its own.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Names of the model's flags that may stand in a file.
pub const MODEL_NAMES: [&str; 9] =
    ["model", "family", "adapter", "adapter_use", "device", "dtype", "quantize", "activations", "threads"];

/// Sets a flag of the model that is not set yet; whether there is such a name.
///
/// # Errors
/// What was expected instead of the text.
pub fn fill_shared(shared: &mut SharedArgs, name: &str, text: &str) -> Result<bool, String> {
    let place = match name {
        "model" => &mut shared.model,
        "family" => &mut shared.family,
        "adapter" => &mut shared.adapter,
        "adapter_use" => &mut shared.adapter_use,
        "device" => &mut shared.device,
        "dtype" => &mut shared.dtype,
        "quantize" => &mut shared.quantize,
        "activations" => &mut shared.activations,
        "threads" => {
            shared.threads.get_or_insert(usize::read(text, &range!())?);
            return Ok(true);
        }
        _ => return Ok(false),
    };
    place.get_or_insert_with(|| text.to_owned());
    Ok(true)
}

/// Returns the model's flags that are set, as a file would say them.
pub fn shared_lines(shared: &SharedArgs) -> Vec<String> {
    let texts = [
        ("model", &shared.model),
        ("family", &shared.family),
        ("adapter", &shared.adapter),
        ("adapter_use", &shared.adapter_use),
        ("device", &shared.device),
        ("dtype", &shared.dtype),
        ("quantize", &shared.quantize),
        ("activations", &shared.activations),
    ];
    let texts = texts.iter().filter_map(|(name, value)| Some(format!("{name} = {}", quoted(value.as_deref()?))));
    texts.chain(shared.threads.map(|threads| format!("threads = {threads}"))).collect()
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write, fs, path::Path};

    use super::*;

    const BEGIN: &str = "<!-- flags -->\n";
    const END: &str = "<!-- end of flags -->";

    /// The flags of `serve` as a table: what the help says, with the default in a column of its own.
    fn table() -> String {
        let command = ServeArgs::augment_args(clap::Command::new("serve"));
        let mut table = String::from("\n| flag | default | meaning |\n|---|---|---|\n");
        for flag in command.get_arguments() {
            let name = flag.get_long().unwrap();
            let help = flag.get_help().unwrap().to_string();
            let value = flag.get_value_names().filter(|_| flag.get_action().takes_values());
            let value = value.map(|names| format!(" {}", names[0])).unwrap_or_default();
            let (help, default) = match help.split_once(" [default: ") {
                Some((help, default)) => (help.to_owned(), default.strip_suffix(']').unwrap().to_owned()),
                None => (help, String::new()),
            };
            writeln!(table, "| `--{name}{value}` | {default} | {help} |").unwrap();
        }
        table + "\n"
    }

    #[test]
    fn the_page_has_each_flag() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/serving.md");
        let page = fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (found, after) = rest.split_once(END).unwrap();
        if std::env::var_os("DEMASK_BLESS").is_some() {
            fs::write(&path, [before, BEGIN, &table(), END, after].concat()).unwrap();
            return;
        }
        assert_eq!(found, table(), "docs/serving.md differs: run again with DEMASK_BLESS=1");
    }
}
