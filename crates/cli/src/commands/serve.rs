//! `demask serve`: what flags, environment and file come to, a model, and the server around it.

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow};
use demask::{Model, internals::decode::names::nearest, plain};
use demask_serve::{
    Keys, Limits, Service, ServiceConfig,
    http::{HttpConfig, Server, Stop, host, origin},
};

use crate::{
    args::{
        SharedArgs,
        serve::{List, MODEL_NAMES, ServeArgs, fill_shared, shared_lines},
    },
    env,
    exit::usage,
    interrupt,
    load::{Source, load},
    notify::Manager,
    output::{self, Screen},
    serve_file,
    settings::Settings,
};

/// Serves until it is asked to stop.
pub fn run(mut shared: SharedArgs, args: ServeArgs) -> anyhow::Result<()> {
    let mut args = args;
    from_environment(&mut shared, &mut args)?;
    if let Some(path) = args.config.clone() {
        from_file(&path, &mut shared, &mut args)?;
    }
    if args.print_config {
        let lines = [shared_lines(&shared), args.lines()].concat();
        return Ok(output::text(&(lines.join("\n") + "\n"))?);
    }
    let settings = Settings::resolve(&shared)?;
    let address = address(&args)?;
    let (limits, http, keys) = (limits(&args)?, http(&args, address.ip())?, keys(&args)?);
    serve(&settings, &args, address, limits, http, keys)
}

fn serve(
    settings: &Settings,
    args: &ServeArgs,
    address: SocketAddr,
    limits: Limits,
    http: HttpConfig,
    keys: Keys,
) -> anyhow::Result<()> {
    let screen = settings.screen;
    let device = settings.device()?;
    let mut opened = settings.source.open(screen)?;
    let weights = opened.fingerprint();
    for guide in &args.guides {
        opened = match guide.split_once('=') {
            Some((name, model)) => opened.guided_by_named(name, Source::from(model.to_owned()).open(screen)?)?,
            None => opened.guided_by(Source::from(guide.clone()).open(screen)?)?,
        };
    }
    let model = load(opened, &device, &[], screen)?;
    keep_prefixes(&model, args.prefix_cache, screen)?;
    model.set_preemption(!args.no_preemption)?;
    let open = keys.is_empty();
    let config = ServiceConfig {
        names: args.served_model_name.clone().unwrap_or_default().0,
        limits,
        keys: Arc::new(keys),
        page: !args.no_ui,
        weights,
        log: if args.no_log || screen.quiet {
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
    let served = server.run(|| {
        let (asked, pulse) = (asked(), handle.pulse());
        // A forward that takes longer than the manager waits is one that will never end.
        let is_well = |limit| pulse.alive && !pulse.failed && (!pulse.busy || pulse.since < limit);
        manager.look(asked > 0 || pulse.failed, is_well);
        match asked {
            0 if !pulse.failed => Stop::No,
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

/// Reads what the environment says of flags that are not set.
fn from_environment(shared: &mut SharedArgs, args: &mut ServeArgs) -> anyhow::Result<()> {
    for name in MODEL_NAMES.iter().chain(ServeArgs::NAMES) {
        if let Some((variable, text)) = env::of_flag(name)? {
            set(shared, args, name, &text).map_err(|expected| usage(format!("{variable} is {text:?}, {expected}")))?;
        }
    }
    Ok(())
}

/// Reads what a file says of flags that are not set.
fn from_file(path: &Path, shared: &mut SharedArgs, args: &mut ServeArgs) -> anyhow::Result<()> {
    let shown = path.display();
    let text = plain::read(path).with_context(|| format!("cannot read {shown}"))?;
    for (name, text) in &serve_file::entries(&text).map_err(|wrong| usage(format!("{shown}, {wrong}")))? {
        match set(shared, args, name, text) {
            Ok(true) => {}
            Ok(false) => return Err(unknown(path, name)),
            Err(expected) => return Err(usage(format!("{shown}: {name} is {text:?}, {expected}"))),
        }
    }
    Ok(())
}

fn set(shared: &mut SharedArgs, args: &mut ServeArgs, name: &str, text: &str) -> Result<bool, String> {
    Ok(fill_shared(shared, name, text)? || args.fill(name, text)?)
}

fn unknown(path: &Path, name: &str) -> anyhow::Error {
    let known: Vec<&str> = MODEL_NAMES.iter().chain(ServeArgs::NAMES).copied().collect();
    let near = nearest(name, &known).map(|near| format!(", did you mean {near}?")).unwrap_or_default();
    usage(format!("{}: unknown key {name:?}{near} (known: {})", path.display(), known.join(", ")))
}

fn address(args: &ServeArgs) -> anyhow::Result<SocketAddr> {
    let (host, port) = (args.host.as_deref().unwrap_or("127.0.0.1"), args.port.unwrap_or(8080));
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| {
        usage(format!("--host is {host:?}, expected an address of this machine, such as 127.0.0.1 or 0.0.0.0"))
    })
}

fn limits(args: &ServeArgs) -> anyhow::Result<Limits> {
    let defaults = Limits::default();
    let body_bytes = args.max_body_bytes.unwrap_or(defaults.body_bytes);
    // One key of several has half of it at least.
    let least = 2 * body_bytes;
    let all_bodies = args.max_body_memory.map_or(defaults.all_bodies.max(least), |memory| memory << 20);
    if all_bodies < least {
        let memory = all_bodies >> 20;
        return Err(usage(format!(
            "a body may have {body_bytes} bytes and all together {memory} MiB, expected room for two: raise \
             --max-body-memory, or lower --max-body-bytes"
        )));
    }
    Ok(Limits {
        body_bytes,
        all_bodies,
        gen_length: args.max_gen_length.unwrap_or(defaults.gen_length),
        choices: args.max_choices.unwrap_or(defaults.choices),
        prompts: args.max_prompts.unwrap_or(defaults.prompts),
        places: args.max_queue.unwrap_or(defaults.places),
        ..defaults
    })
}

fn http(args: &ServeArgs, address: IpAddr) -> anyhow::Result<HttpConfig> {
    let defaults = HttpConfig::at(address);
    let seconds = |given: Option<u64>, default: Duration| given.map_or(default, Duration::from_secs);
    let hosts = listed("--allowed-host", args.allowed_host.as_ref(), host)?;
    let origins = listed("--cors-origin", args.cors_origin.as_ref(), origin)?;
    Ok(HttpConfig {
        connections: args.max_connections.unwrap_or(defaults.connections),
        per_address: args.max_connections_per_address.unwrap_or(defaults.per_address),
        head_time: seconds(args.head_timeout, defaults.head_time),
        body_time: seconds(args.body_timeout, defaults.body_time),
        write_time: seconds(args.write_timeout, defaults.write_time),
        stream_interval: args.stream_interval.map_or(defaults.stream_interval, Duration::from_millis),
        heartbeat: seconds(args.heartbeat, defaults.heartbeat),
        drain_time: seconds(args.drain_timeout, defaults.drain_time),
        drain_notice: seconds(args.drain_notice, defaults.drain_notice),
        hosts: hosts.unwrap_or(defaults.hosts),
        origins: origins.unwrap_or_default(),
    })
}

/// The names of a setting, each as requests have it: one that never takes effect is refused before anything is served.
fn listed(
    flag: &str,
    list: Option<&List>,
    read: fn(&str) -> Result<&str, String>,
) -> anyhow::Result<Option<Vec<String>>> {
    let Some(List(names)) = list else { return Ok(None) };
    if names.is_empty() {
        return Err(usage(format!("{flag} names nothing: name one, or omit it")));
    }
    let name = |name: &String| read(name).map(str::to_owned).map_err(|why| usage(format!("{flag}: {why}")));
    names.iter().map(name).collect::<anyhow::Result<_>>().map(Some)
}

/// The keys of the file, and the one of the environment. What was to hold keys and holds none is refused: it would open the
/// server to everybody.
fn keys(args: &ServeArgs) -> anyhow::Result<Keys> {
    let mut keys = match &args.api_key_file {
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
        internals::{engine::Faults, step::DeviceError},
    };

    use super::*;
    use crate::output::Screen;

    /// Serves a model with these faults until it ends by itself, and asks once; what the client got, and how it ended.
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
