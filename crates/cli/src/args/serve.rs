//! The flags of `serve`, each of which may also be in the environment or in a file.

use std::path::PathBuf;

use clap::Args;
use demask::LoadOptions;
use demask_serve::ServeOptions;

use demask_terminal::args::flags::{All, Flags, OfServedModel};

/// Serve an OpenAI-compatible API and a page to watch answers being unmasked
#[derive(Debug, Clone, Default, Args)]
pub struct ServeArgs {
    /// Model, as --model takes it
    #[arg(value_name = "MODEL")]
    pub location: Option<String>,
    /// Settings of the server.
    #[command(flatten)]
    pub serve: Flags<ServeOptions, All>,
    /// Settings of its model that other commands lack.
    #[command(flatten)]
    pub model: Flags<LoadOptions, OfServedModel>,
    /// TOML file with these flags and those of the model, named as here; flags and DEMASK_* variables override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print all settings and where each comes from, and serve nothing
    #[arg(long)]
    pub print_config: bool,
}

/// Ask a server how it is
#[derive(Debug, Clone, Args)]
pub struct HealthArgs {
    /// Server, and the path if it is not /health [default: http://127.0.0.1 with DEMASK_PORT, or serve's own port]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Seconds that the answer may take [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: Option<u64>,
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write, fs, path::Path};

    use demask::Settings;
    use demask_settings::Field;

    use super::*;
    use demask_terminal::args::flags::Group;

    const BEGIN: &str = "<!-- flags -->\n";
    const END: &str = "<!-- end of flags -->";

    /// The flags of `serve` as a table.
    fn table() -> String {
        let mut table = String::from("\n| flag | default | meaning |\n|---|---|---|\n");
        let model = LoadOptions::FIELDS.iter().filter(|field| OfServedModel::has(field.name));
        for field in ServeOptions::FIELDS.iter().chain(model) {
            let place = if field.place.is_empty() { String::new() } else { format!(" {}", field.place) };
            let about = field.about.strip_suffix('.').unwrap_or(field.about);
            writeln!(table, "| `{}{place}` | {} | {about} |", Field::flag(field), field.usual()).unwrap();
        }
        let command = ServeArgs::augment_args(clap::Command::new("serve"));
        for (name, place) in [("config", " FILE"), ("print_config", "")] {
            let flag = command.get_arguments().find(|flag| flag.get_id() == name).unwrap();
            writeln!(table, "| `--{}{place}` |  | {} |", flag.get_long().unwrap(), flag.get_help().unwrap()).unwrap();
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
