//! `demask serve`: what flags, environment and file come to, a model, and the server around it.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context, anyhow};
use demask::{LoadOptions, Model, Settings as _, layers::engine::EngineCounters, plain};
use demask_serve::{
    Keys, Limits, ServeOptions, Service, ServiceConfig,
    http::{HttpConfig, Server, Stop},
};
use demask_settings::{Guide, layers::Layered, toml::Reader};

use crate::{
    args::{SharedArgs, serve::ServeArgs},
    env,
    exit::usage,
    interrupt,
    load::{Source, load},
    notify::Manager,
    output::{self, Screen},
    settings::Settings,
};

/// Serves until it is asked to stop.
pub fn run(shared: &SharedArgs, args: &ServeArgs) -> anyhow::Result<()> {
    let mut flags = shared.model.settings()?;
    flags.fill(args.model.settings()?);
    let (mut model, mut server) = (Layered::new(flags), Layered::new(args.serve.settings()?));
    model.add_environment(|_| true, |name| std::env::var_os(name))?;
    server.add_environment(|_| true, |name| std::env::var_os(name))?;
    if let Some(path) = &args.config {
        add_file(path, &mut model, &mut server)?;
    }
    if args.print_config {
        let lines = [model.lines(), server.lines()].concat();
        return Ok(output::text(&(lines.join("\n") + "\n"))?);
    }
    let settings = Settings::of(shared, &model)?;
    let options = server.settings();
    let address = options.address()?;
    let (limits, http, keys) = (options.limits()?, options.http(address.ip())?, keys(options)?);
    serve(&settings, options, address, limits, http, keys)
}

fn serve(
    settings: &Settings,
    options: &ServeOptions,
    address: SocketAddr,
    limits: Limits,
    http: HttpConfig,
    keys: Keys,
) -> anyhow::Result<()> {
    let screen = settings.screen;
    let device = settings.device()?;
    let load_options = &settings.source.0;
    let mut opened = settings.source.open(screen)?;
    let weights = opened.fingerprint();
    for Guide { name, model } in load_options.guide.iter().flat_map(|guides| &guides.0) {
        let guide = Source::from(model.clone()).open(screen)?;
        opened = match name {
            Some(name) => opened.guided_by_named(name, guide)?,
            None => opened.guided_by(guide)?,
        };
    }
    let model = load(opened, &device, &[], screen)?;
    keep_prefixes(&model, load_options.prefix_cache, screen)?;
    model.set_preemption(options.no_preemption != Some(true))?;
    let open = keys.is_empty();
    let page = options.no_ui != Some(true);
    let config = ServiceConfig {
        names: options.served_model_name.clone().unwrap_or_default().0,
        limits,
        keys: Arc::new(keys),
        page,
        weights,
        log: if options.no_log == Some(true) || screen.quiet {
            Arc::new(|_| {})
        } else {
            Arc::new(|line| output::note(&line.to_string()))
        },
    };
    output::note_aside()?;
    let service = Service::new(&model, config);
    let server = Server::bind(address, service, http)
        .with_context(|| format!("cannot listen on {address}: choose another --host or --port"))?;
    let bound = server.address()?;
    if open && !bound.ip().is_loopback() {
        screen.remark("warning: everybody who reaches this address may ask: give keys with --api-key-file");
    }
    // Told whatever else is quiet: with port 0 nobody else knows where it is.
    output::note(&format!("demask serves {} on http://{bound}", settings.source.name().unwrap_or("the demo")));
    let name =
        options.served_model_name.as_ref().and_then(|names| names.0.first()).map_or(model.name(), String::as_str);
    let place = if page { format!("page http://{bound}/, ") } else { String::new() };
    screen.remark(&format!("{place}base URL of clients http://{bound}/v1, model {name}"));
    interrupt::take_over();
    let mut manager = Manager::find(screen);
    manager.ready(&format!("http://{bound}"));
    until_stopped(server, model, &mut manager, interrupt::count)
}

/// Bounds the K/V of earlier prompts, and says how much is kept of them.
fn keep_prefixes(model: &Model, asked: Option<u64>, screen: Screen) -> anyhow::Result<()> {
    if let Some(mebibytes) = asked {
        let (bytes, free) = (mebibytes << 20, model.info().free_memory());
        if bytes > free {
            let free = free >> 20;
            screen.remark(&format!(
                "warning: --prefix-cache {mebibytes} is more than the {free} MiB that are free: {free} are kept"
            ));
        }
        model.set_prefix_cache(bytes.min(free))?;
    }
    match (model.prefix_cache() >> 20, model.info().why_no_prefixes()) {
        (0, Some(why)) if asked.is_some_and(|mebibytes| mebibytes > 0) => {
            screen.remark(&format!("warning: --prefix-cache keeps nothing: {why}"));
        }
        (0, _) => {}
        (kept, _) => screen.remark(&format!("keeps up to {kept} MiB of K/V of earlier prompts")),
    }
    Ok(())
}

/// Serves until it is asked to stop, or the engine has failed: what failed once is not mended by going on, and who started
/// the server can start it again.
fn until_stopped(server: Server, model: Model, manager: &mut Manager, asked: impl Fn() -> usize) -> anyhow::Result<()> {
    let handle = model.handle();
    let mut told = false;
    let served = server.run(|| {
        let (asked, heartbeat) = (asked(), handle.heartbeat());
        // A forward that takes longer than the manager waits is one that will never end.
        let is_well = |limit| heartbeat.alive && !heartbeat.failed && (!heartbeat.busy || heartbeat.since < limit);
        manager.look(asked > 0 || heartbeat.failed, is_well);
        if asked == 1 && heartbeat.busy && !std::mem::replace(&mut told, true) {
            output::note(&waiting(&handle.counters()));
        }
        match asked {
            0 if !heartbeat.failed => Stop::No,
            0 | 1 => Stop::Drain,
            _ => Stop::Now,
        }
    });
    model.shut_down();
    served?;
    match handle.failure() {
        Some(why) => Err(anyhow!("the engine has failed ({why}): start the server again")),
        None => Ok(()),
    }
}

/// Returns a message with the number of answers that a stopping server waits for.
fn waiting(counters: &EngineCounters) -> String {
    // The counts are those after the last forward, before which a request may not have been there.
    match (counters.totals.running + counters.totals.waiting).max(1) {
        1 => "waiting for 1 answer; Ctrl-C again ends it".to_owned(),
        answers => format!("waiting for {answers} answers; Ctrl-C again ends them"),
    }
}

/// Reads a file's settings of the model and of the server.
fn add_file(path: &Path, model: &mut Layered<LoadOptions>, server: &mut Layered<ServeOptions>) -> anyhow::Result<()> {
    let text = plain::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    for entry in (Reader { path, text: &text }).parse()?.entries() {
        if !model.add_entry(entry)? && !server.add_entry(entry)? {
            let fields = LoadOptions::FIELDS.iter().chain(ServeOptions::FIELDS);
            return Err(entry.unknown("a server", &fields.map(|field| field.name).collect::<Vec<_>>()).into());
        }
    }
    Ok(())
}

/// Returns the keys of the file, and the one of the environment. A file or variable without a key is refused: it would
/// open the server to everybody.
fn keys(options: &ServeOptions) -> anyhow::Result<Keys> {
    let mut keys = match &options.api_key_file {
        Some(path) => {
            let cannot = || format!("cannot read the keys {}", path.display());
            Keys::parse(&plain::read(path).with_context(cannot)?).with_context(cannot)?
        }
        None => Keys::default(),
    };
    if let Some(key) = env::api_key()? {
        keys.add("environment", &key).map_err(|wrong| usage(format!("{}: {wrong}", env::api_key_name())))?;
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
        thread,
    };

    use demask::{
        Model,
        layers::{engine::Faults, step::DeviceError},
    };

    use super::*;
    use crate::output::Screen;

    /// Serves a model with these faults until it ends by itself, and asks once. Returns the client's response, and the
    /// server's result.
    fn served(faults: Faults) -> (String, anyhow::Result<()>) {
        let model = Model::demo().unwrap().with_faults(faults);
        let service = Service::new(&model, ServiceConfig::default());
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), service, HttpConfig::default()).unwrap();
        let address = server.address().unwrap();
        let client = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let body = r#"{"messages": [{"role": "user", "content": "Ada has 3 pears."}], "stream": true}"#;
            let length = body.len();
            write!(stream, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let mut manager = Manager::find(Screen { json: false, quiet: true });
        let ended = until_stopped(server, model, &mut manager, || 0);
        (client.join().unwrap(), ended)
    }

    #[test]
    fn a_server_whose_engine_has_failed_ends_with_one_line() {
        let burns = |at| if at == 1 { Err(DeviceError("it is on fire".to_owned())) } else { Ok(()) };
        let panics = |at| {
            assert!(at < 1, "for a test");
            Ok(())
        };
        for (faults, why) in [
            (Faults::before_step(burns), "the device failed: it is on fire"),
            (Faults::before_step(panics), "its thread panicked (a bug, please report it): for a test"),
        ] {
            let (answer, ended) = served(faults);
            assert!(answer.contains(r#""type":"server_error""#) && answer.contains("data: [DONE]"), "{answer}");
            let error = ended.unwrap_err();
            assert_eq!(error.to_string(), format!("the engine has failed ({why}): start the server again"));
        }
    }
}
