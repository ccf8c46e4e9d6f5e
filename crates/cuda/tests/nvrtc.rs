//! All kernels through NVIDIA's own compiler, for every kind of card: what it refuses, and what it spills to memory.
//!
//! `DEMASK_NVRTC=libnvrtc.so.12 cargo test --release -p demask-cuda --test nvrtc -- --ignored` needs the compiler, and
//! neither a driver nor a GPU. It comes with a toolkit, and as a package of Python's (`nvidia-cuda-nvrtc-cu12`).

use std::{collections::BTreeMap, env, ffi::OsString, thread};

use demask_cuda::{
    Version,
    arguments::NAMES,
    kernels::MODULES,
    layouts::LAYOUTS,
    nvrtc::{Nvrtc, NvrtcError, Source, Target},
    sources,
};

/// Ampere's server and desktop cards, Ada, Hopper, Blackwell's server and desktop cards.
const CARDS: [u32; 6] = [80, 86, 89, 90, 100, 120];

fn nvrtc() -> Nvrtc {
    let file: OsString = env::var_os("DEMASK_NVRTC").expect("DEMASK_NVRTC names the compiler: libnvrtc.so.12 or .13");
    Nvrtc::load(&file).unwrap_or_else(|error| panic!("{error}"))
}

fn small(text: &str) -> Source {
    Source { name: "small".into(), text: text.into(), options: vec!["--std=c++17".into()] }
}

/// Spills of each kernel, from the assembler's report on registers.
fn spills(log: &str) -> BTreeMap<String, String> {
    let mut kernel = String::new();
    let mut spills = BTreeMap::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            rest.split('\'').next().unwrap_or_default().clone_into(&mut kernel);
        }
        if line.contains("bytes spill") && !line.contains(" 0 bytes spill stores, 0 bytes spill loads") {
            spills.insert(kernel.clone(), line.trim().to_owned());
        }
    }
    spills
}

#[test]
#[ignore = "needs NVRTC, named by DEMASK_NVRTC"]
fn every_kernel_compiles_for_every_card_and_spills_nothing() {
    let nvrtc = nvrtc();
    let sources = sources();
    assert!(!sources.is_empty());
    let work: Vec<_> = CARDS.iter().flat_map(|&card| sources.iter().map(move |source| (card, source))).collect();
    let failures: Vec<String> = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let (nvrtc, work) = (&nvrtc, &work);
        let parts = (0..threads).map(|first| {
            scope.spawn(move || {
                work.iter().skip(first).step_by(threads).flat_map(|work| failures(nvrtc, work)).collect()
            })
        });
        let parts: Vec<_> = parts.collect();
        parts.into_iter().flat_map(|part| -> Vec<String> { part.join().unwrap() }).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Faults of a file on a card.
fn failures(nvrtc: &Nvrtc, &(card, source): &(u32, &Source)) -> Vec<String> {
    let target = nvrtc.target(card).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(target, Target::Cubin(card), "NVRTC {} knows this card", nvrtc.version());
    let mut told = source.clone();
    told.options.push("--ptxas-options=--verbose".into());
    match nvrtc.compile(&told, target) {
        Ok(compiled) => {
            assert!(compiled.image.starts_with(b"\x7fELF"), "a cubin is an ELF file");
            let spills = spills(&compiled.log).into_iter();
            spills.map(|(kernel, told)| format!("{kernel} on {target} spills: {told}")).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

/// Kernels of a text, with their bodies.
fn kernels(text: &str) -> Vec<(&str, &str)> {
    let entries = text.split(".entry ").skip(1);
    entries.map(|entry| entry.split_once('(').expect("a kernel has parameters")).collect()
}

/// Instructions that access memory without saying which: global, shared, a parameter.
fn generic_accesses(body: &str) -> Vec<&str> {
    let instructions = body.lines().map(str::trim).map(|line| match line.split_once(' ') {
        Some((condition, rest)) if condition.starts_with('@') => rest.trim(),
        _ => line,
    });
    let generic = |line: &&str| {
        let mut parts = line.split([' ', '\t']).next().unwrap_or_default().split('.');
        let access = parts.next().is_some_and(|name| ["ld", "st", "atom", "red"].contains(&name));
        access && !parts.any(|part| ["global", "shared", "param", "local", "const"].contains(&part))
    };
    instructions.filter(generic).collect()
}

#[test]
#[ignore = "needs NVRTC, named by DEMASK_NVRTC"]
fn kernels_take_one_structure_and_say_which_memory_they_access() {
    let nvrtc = nvrtc();
    let mut seen = 0;
    for source in sources() {
        let compiled = nvrtc.compile(&source, Target::Ptx(80)).unwrap();
        for (kernel, body) in kernels(std::str::from_utf8(&compiled.image).unwrap()) {
            let (parameters, body) = body.split_once(')').unwrap();
            // One parameter of bytes: `.param .align 8 .b8 embed_f32_param_0[40]`.
            let size = parameters.trim().strip_prefix(&format!(".param .align 8 .b8 {kernel}_param_0["));
            let size = size.and_then(|size| size.strip_suffix(']')?.parse().ok());
            let known = LAYOUTS.iter().any(|layout| NAMES.contains(&layout.name) && Some(layout.bytes) == size);
            assert!(known, "{kernel} takes {parameters}");
            // Copies do nothing but access memory. Elsewhere most accesses name it, and NVRTC 12.9 does not end where
            // the source names it for the others, too.
            if ["keep_", "copy_"].iter().any(|name| kernel.starts_with(name)) {
                assert_eq!(generic_accesses(body), [""; 0], "{kernel}");
            }
            seen += 1;
        }
    }
    assert_eq!(seen, MODULES.iter().copied().flatten().map(|module| module.kernels.len()).sum::<usize>());
}

#[test]
fn generic_accesses_are_found() {
    let body = "{\n\tld.param.u64 \t%rd1, [k];\n\t@%p1 ld.v4.u32 \t{%r1}, [%rd1];\n\tst.global.u32 \t[%rd1], %r1;\n\tatom.add.u32 %r1;\n\tldmatrix.sync x;\n";
    assert_eq!(generic_accesses(body), ["ld.v4.u32 \t{%r1}, [%rd1];", "atom.add.u32 %r1;"]);
}

#[test]
#[ignore = "needs NVRTC, named by DEMASK_NVRTC"]
fn mistakes_are_one_line() {
    let nvrtc = nvrtc();
    let target = nvrtc.target(80).unwrap();
    let told = |text: &str| nvrtc.compile(&small(text), target).unwrap_err().to_string();
    let mistake = told("extern \"C\" __global__ void k(int* p) { *p = nothing; *p = less; }\n");
    assert!(mistake.contains("cannot compile small for sm_80: small(1): error: identifier \"nothing\""), "{mistake}");
    assert!(mistake.ends_with("(the first of 2 errors)") && !mistake.contains('\n'), "{mistake}");
    let assembler = told("extern \"C\" __global__ void k() { asm volatile(\"no.such.instruction;\"); }\n");
    assert!(!assembler.contains('\n') && assembler.contains("sm_80"), "{assembler}");
}

#[test]
#[ignore = "needs NVRTC, named by DEMASK_NVRTC"]
fn cards_that_the_compiler_does_not_know_get_text() {
    let nvrtc = nvrtc();
    let target = nvrtc.target(990).unwrap();
    let Target::Ptx(_) = target else { panic!("{target}") };
    let compiled = nvrtc.compile(&small("extern \"C\" __global__ void k(int* p) { *p = 1; }"), target).unwrap();
    let text = std::str::from_utf8(&compiled.image).unwrap();
    assert!(text.ends_with('\0') && text.contains(".entry k("), "{text}");
    assert!(matches!(nvrtc.target(20), Err(NvrtcError::NoTarget { .. })));
}

#[test]
#[ignore = "needs NVRTC, named by DEMASK_NVRTC"]
fn a_driver_older_than_the_compiler_is_told() {
    let file = env::var_os("DEMASK_NVRTC").expect("DEMASK_NVRTC names the compiler");
    let own = nvrtc().version();
    let older = Version { major: own.major - 1, minor: 9 };
    assert!(Nvrtc::find(std::slice::from_ref(&file), own).is_ok());
    let refused = Nvrtc::find(&[file], older).err().unwrap();
    assert!(matches!(refused, NvrtcError::TooNew { .. }), "{refused}");
}
