//! The flags of `serve`, each of which may also stand in the environment or in a file.

use std::{path::PathBuf, str::FromStr};

use clap::Args;

use super::SharedArgs;

/// Texts behind one flag, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List(pub Vec<String>);

impl FromStr for List {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Ok(Self(words.map(str::to_owned).collect()))
    }
}

macro_rules! serve_options {
    (values {$($(#[doc = $doc:literal])+ $name:ident: $of:ty, $value:literal;)+}
     switches {$($(#[doc = $switch_doc:literal])+ $switch:ident;)+}) => {
        /// Serve an OpenAI-compatible API and a page to watch answers being unmasked
        #[derive(Debug, Clone, Default, Args)]
        pub struct ServeArgs {
            $($(#[doc = $doc])+ #[arg(long, value_name = $value)] pub $name: Option<$of>,)+
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
                    let value = text.parse::<$of>().map_err(|_| format!("expected {}", <$of>::EXPECTED))?;
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
        max_gen_length: usize, "N";
        /// Answers that are made or wait at the same time; beyond that requests are refused with 503 [default: 256]
        max_queue: usize, "N";
        /// MiB of K/V of earlier prompts that are kept for requests that begin with the same tokens; 0: none. Only models
        /// with causal or block-causal attention have any [default: 256]
        prefix_cache: u64, "MIB";
        /// Bytes of a request's body [default: 2097152]
        max_body_bytes: usize, "N";
        /// Answers to a prompt (n) [default: 16]
        max_choices: usize, "N";
        /// Prompts of a request [default: 64]
        max_prompts: usize, "N";
        /// Connections at the same time [default: 4096]
        max_connections: usize, "N";
        /// Connections of one address at the same time [default: 4096]
        max_connections_per_address: usize, "N";
        /// Seconds in which a request's head must have come [default: 15]
        head_timeout: u64, "SECONDS";
        /// Seconds in which a request's body must have come [default: 30]
        body_timeout: u64, "SECONDS";
        /// Seconds for which a reader may take nothing of its answer [default: 60]
        write_timeout: u64, "SECONDS";
        /// Milliseconds between two chunks of a stream, of N streams N/8 times as many if that is more: text that comes sooner
        /// goes with the next one, and the end waits for nothing; 0: a chunk for each forward [default: 10]
        stream_interval: u64, "MS";
        /// Seconds of silence after which a stream gets a heartbeat [default: 15]
        heartbeat: u64, "SECONDS";
        /// Seconds that requests get to end after SIGTERM [default: 30]
        drain_timeout: u64, "SECONDS";
        /// Seconds after SIGTERM in which requests are refused and connections still taken [default: 0]
        drain_notice: u64, "SECONDS";
        /// File with keys, one a line: NAME KEY [weight=NUMBER] [rate=REQUESTS_PER_MINUTE] [default: no key is needed]
        api_key_file: PathBuf, "FILE";
        /// Origins whose pages may ask, separated by commas [default: none]
        cors_origin: List, "ORIGINS";
        /// Names of this machine that requests may be sent to, separated by commas [default: on loopback localhost, 127.0.0.1 and [::1], else all]
        allowed_host: List, "HOSTS";
    }
    switches {
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

/// Description of a type's values, for the message that refuses a text.
pub trait Expected {
    const EXPECTED: &'static str;
}

macro_rules! expected {
    ($($of:ty, $expected:literal);+) => {$(impl Expected for $of {
        const EXPECTED: &'static str = $expected;
    })+};
}

expected!(
    u16, "a whole number from 0 to 65535";
    usize, "a whole number from 0 on";
    u64, "a whole number from 0 on";
    String, "a text";
    PathBuf, "a path";
    List, "texts separated by commas"
);

/// Written form of a value in a file.
trait Written {
    fn written(&self) -> String;
}

macro_rules! written {
    ($($of:ty),+) => {$(impl Written for $of {
        fn written(&self) -> String {
            self.to_string()
        }
    })+};
}

written!(u16, usize, u64);

impl Written for String {
    fn written(&self) -> String {
        quoted(self)
    }
}

impl Written for PathBuf {
    fn written(&self) -> String {
        quoted(&self.to_string_lossy())
    }
}

impl Written for List {
    fn written(&self) -> String {
        quoted(&self.0.join(","))
    }
}

/// A text as TOML has it: JSON's escapes are a part of its own.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Names of the model's flags that may stand in a file.
pub const MODEL_NAMES: [&str; 7] = ["model", "family", "device", "dtype", "quantize", "activations", "threads"];

/// Sets a flag of the model that is not set yet; whether there is such a name.
///
/// # Errors
/// What was expected instead of the text.
pub fn fill_shared(shared: &mut SharedArgs, name: &str, text: &str) -> Result<bool, String> {
    let place = match name {
        "model" => &mut shared.model,
        "family" => &mut shared.family,
        "device" => &mut shared.device,
        "dtype" => &mut shared.dtype,
        "quantize" => &mut shared.quantize,
        "activations" => &mut shared.activations,
        "threads" => {
            let threads = text.parse().map_err(|_| format!("expected {}", usize::EXPECTED))?;
            shared.threads.get_or_insert(threads);
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
