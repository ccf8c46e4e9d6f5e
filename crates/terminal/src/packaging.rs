//! `completions` and `man`: files that a package installs with a program, made from its own parser.

use std::{
    io::{self, Write},
    path::Path,
};

use clap::Command;
use clap_complete::Shell;

use crate::{
    args::{CompletionsArgs, ManArgs},
    exit::usage,
    files::OutFile,
};

/// Writes a shell's completions of a program to standard output.
pub fn completions(mut program: Command, args: &CompletionsArgs) -> anyhow::Result<()> {
    let name = program.get_name().to_owned();
    let shell: Shell = args.shell.parse().map_err(|_| {
        usage(format!("the shell is {:?}, expected one of bash, elvish, fish, powershell, zsh", args.shell))
    })?;
    // In memory first: the generator panics where its writer fails.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program, name, &mut text);
    Ok(io::stdout().lock().write_all(&text)?)
}

/// Writes a page for the program, which ends with the variables of its environment, and one for each command to a directory.
pub fn man(program: Command, environment: String, args: &ManArgs) -> anyhow::Result<()> {
    let mut program = program.after_long_help(environment);
    let name = program.get_name().to_owned();
    // Global flags reach the pages of commands.
    program.build();
    page(&program, &name, &args.out)
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
