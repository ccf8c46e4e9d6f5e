//! `demask completions` and `demask man`: what a package installs beside the program, made from its own parser.

use std::{
    io::{self, Write},
    path::Path,
};

use clap::Command;
use clap_complete::Shell;

use crate::{
    args::{CompletionsArgs, ManArgs, command},
    exit::usage,
    files::OutFile,
};

/// Writes a shell's completions to standard output.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let shell: Shell = args.shell.parse().map_err(|_| {
        usage(format!("the shell is {:?}, expected one of bash, elvish, fish, powershell, zsh", args.shell))
    })?;
    // In memory first: the generator panics where its writer fails.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "demask", &mut text);
    Ok(io::stdout().lock().write_all(&text)?)
}

/// Writes a page for the program and one for each command to a directory.
pub fn man(args: &ManArgs) -> anyhow::Result<()> {
    let mut whole = command();
    // Global flags reach the pages of commands.
    whole.build();
    page(&whole, "demask", &args.out)
}

fn page(command: &Command, name: &str, directory: &Path) -> anyhow::Result<()> {
    let titled = command.clone().name(name.to_owned()).display_name(name);
    let mut text = Vec::new();
    clap_mangen::Man::new(titled).source(concat!("demask ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    let mut file = OutFile::create(&directory.join(format!("{name}.1")))?;
    file.write_all(&text)?;
    file.finish()?;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set()) {
        page(below, &format!("{name}-{}", below.get_name()), directory)?;
    }
    Ok(())
}
