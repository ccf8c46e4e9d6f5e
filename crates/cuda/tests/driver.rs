//! The driver's side of the backend on a driver that pretends: what is asked of it, in which order, and what becomes of
//! every refusal.

mod fake_driver;

use std::{
    ffi::{CStr, c_char, c_int},
    fs,
    path::PathBuf,
    sync::Mutex,
};

use demask_cuda::{
    Cuda, Driver, NoGpu, Places,
    arguments::EmbedArgs,
    gpu::{Address, Geometry, Gpu, GpuError},
    nvrtc::Source,
};
use demask_step::OutOfMemory;
use fake_driver::Fake;

const GEOMETRY: Geometry = Geometry { grid: [3, 2, 1], threads: 32, shared: 0 };
const THREADS: u64 = 3 * 2 * 32;

/// Sources that the fakes accept as kernels.
fn kernels() -> Vec<Source> {
    vec![source("one", "void count(Args a) {}"), source("two", "void other(Args a) {} void last(Args a) {}")]
}

fn source(name: &str, text: &str) -> Source {
    Source { name: name.into(), text: text.into(), options: vec!["--std=c++17".into()] }
}

fn places(fake: &Fake) -> Places {
    Places {
        driver: Some(fake.driver()),
        nvrtc: Some(fake.compiler()),
        kernels: Some(fake.kernels()),
        ..Places::default()
    }
}

fn opened(fake: &Fake) -> Driver {
    open(&places(fake)).0.unwrap()
}

/// Opens the first card; and what was remarked.
fn open(places: &Places) -> (Result<Driver, NoGpu>, Vec<String>) {
    let mut remarks = Vec::new();
    let cuda = Cuda::probe(places).unwrap();
    let driver = cuda.open(0, &kernels(), &mut |remark| remarks.push(remark.to_owned()));
    (driver, remarks)
}

/// A number that a library of a fake keeps, which stays loaded once it is.
fn kept(library: PathBuf, name: &str) -> c_int {
    // SAFETY: it does nothing when it is loaded.
    let library = unsafe { libloading::Library::new(library) }.unwrap();
    // SAFETY: a number of this type, which no other thread changes by now.
    unsafe { **library.get::<*const c_int>(name.as_bytes()).unwrap() }
}

/// Names of the kernels that were launched.
fn launched(fake: &Fake) -> String {
    // SAFETY: as above.
    let library = unsafe { libloading::Library::new(fake.driver()) }.unwrap();
    // SAFETY: a text that ends with a zero, which no other thread changes by now.
    let text = unsafe { CStr::from_ptr(*library.get::<*const c_char>(b"fake_launched").unwrap()) };
    text.to_str().unwrap().to_owned()
}

/// The argument of a kernel that counts its threads at an address.
fn counter(at: Address) -> EmbedArgs {
    let none = Address::NULL;
    EmbedArgs { table: at, ids: none, count: none, stream: none, hidden: 0, unused: 0 }
}

fn count(driver: &Driver, kernel: &'static str, at: Address) -> Result<(), GpuError> {
    // SAFETY: the address has room for the number that is counted there.
    unsafe { driver.launch(kernel, GEOMETRY, &counter(at)) }
}

fn number(driver: &Driver, at: Address) -> Result<u64, GpuError> {
    let mut bytes = [0; 8];
    // SAFETY: the address has eight bytes.
    unsafe { driver.download(at, &mut bytes) }?;
    Ok(u64::from_le_bytes(bytes))
}

fn zeroed(driver: &Driver, bytes: usize) -> Address {
    let at = driver.allocate(bytes).unwrap();
    // SAFETY: just allocated.
    unsafe { driver.zero(at, bytes) }.unwrap();
    at
}

fn free(driver: &Driver, at: Address) {
    // SAFETY: allocated by the caller, who uses it no more.
    unsafe { driver.free(at) }
}

#[test]
fn bytes_go_there_and_back_through_both_halves() {
    let fake = Fake::new(&[], &[]);
    let driver = opened(&fake);
    let bytes: Vec<u8> = (0..40_000_003u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let at = driver.allocate(bytes.len()).unwrap();
    let mut back = vec![0; bytes.len()];
    // SAFETY: as many bytes as were allocated.
    unsafe {
        driver.upload(at, &bytes).unwrap();
        driver.download(at, &mut back).unwrap();
    }
    assert!(bytes == back);
    // SAFETY: within what was allocated.
    unsafe {
        driver.zero(at.offset(5), 7).unwrap();
        driver.upload(at.offset(1), &[9]).unwrap();
        driver.upload(at, &[]).unwrap();
        driver.download(at, &mut back[..16]).unwrap();
    }
    assert_eq!(back[..16], [&bytes[..1], &[9], &bytes[2..5], &[0; 7], &bytes[12..16]].concat());
    free(&driver, at);
}

#[test]
fn kernels_run_by_name_from_whichever_module_has_them() {
    let fake = Fake::new(&[], &[]);
    let driver = opened(&fake);
    let at = zeroed(&driver, 8);
    for kernel in ["count", "last", "other", "count"] {
        count(&driver, kernel, at).unwrap();
    }
    driver.wait().unwrap();
    assert_eq!(number(&driver, at), Ok(4 * THREADS));
    assert_eq!(launched(&fake), "count\nlast\nother\ncount\n");
    assert_eq!(count(&driver, "lost", at), Err(GpuError::Kernel("lost".into())));
    assert_eq!(count(&driver, "oun", at), Err(GpuError::Kernel("oun".into())));
    free(&driver, at);
}

#[test]
fn a_recorded_sequence_runs_when_it_is_replayed() {
    let fake = Fake::new(&[], &[]);
    let driver = opened(&fake);
    let at = zeroed(&driver, 8);
    count(&driver, "count", at).unwrap();
    let graph = driver.record(&mut || {
        count(&driver, "count", at)?;
        count(&driver, "other", at)
    });
    let graph = graph.unwrap().unwrap();
    assert_eq!(number(&driver, at), Ok(THREADS), "recording runs nothing");
    for turn in 1..=3 {
        // SAFETY: the memory is still there.
        unsafe { driver.replay(&graph) }.unwrap();
        assert_eq!(number(&driver, at), Ok(THREADS * (1 + 2 * turn)));
    }
    drop(graph);
    free(&driver, at);
}

#[test]
fn what_cannot_be_recorded_is_refused_and_ends_the_recording() {
    let fake = Fake::new(&[], &[]);
    let driver = opened(&fake);
    let at = zeroed(&driver, 8);
    // SAFETY: the address has room for a byte.
    let upload = driver.record(&mut || unsafe { driver.upload(at, &[1]) });
    assert_eq!(upload.err().unwrap().to_string(), "upload: this cannot be a part of a recorded graph");
    // SAFETY: as above.
    let zero = driver.record(&mut || unsafe { driver.zero(at, 1) });
    assert_eq!(zero.err().unwrap().to_string(), "zero: this cannot be a part of a recorded graph");
    assert!(driver.record(&mut || driver.wait()).is_err());
    assert!(driver.record(&mut || driver.seconds().map(|_| ())).is_err());
    assert!(driver.record(&mut || driver.record(&mut || Ok(())).map(|_| ())).is_err());
    assert!(driver.record(&mut || count(&driver, "lost", at)).is_err());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| driver.record(&mut || panic!("of ours"))));
    assert!(panicked.is_err());
    count(&driver, "count", at).unwrap();
    assert_eq!(number(&driver, at), Ok(THREADS));
    free(&driver, at);
}

#[test]
fn time_adds_up() {
    let fake = Fake::new(&[], &[]);
    let driver = opened(&fake);
    assert_eq!([driver.seconds(), driver.seconds(), driver.seconds()], [Ok(0.25), Ok(0.5), Ok(0.75)]);
}

#[test]
fn a_device_is_described() {
    let fake = Fake::new(&["DEVICES=2"], &[]);
    let cuda = Cuda::probe(&places(&fake)).unwrap();
    assert_eq!((cuda.cards().len(), cuda.version().to_string().as_str()), (2, "12.4"));
    let driver = cuda.open(1, &kernels(), &mut |_| ()).unwrap();
    assert_eq!(driver.describe(), "cuda:1 NVIDIA Pretence");
    let limits = driver.limits();
    assert_eq!((limits.capability, limits.processors, limits.shared, limits.memory), (90, 4, 100 << 10, 1 << 30));
    let at = driver.allocate(1000).unwrap();
    assert_eq!(driver.available(), (1 << 30) - 1000);
    free(&driver, at);
    assert_eq!(driver.available(), 1 << 30);
}

#[test]
fn any_thread_may_call() {
    let fake = Fake::new(&[], &[]);
    let driver = opened(&fake);
    let at = zeroed(&driver, 8);
    let one_by_one = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _turn = one_by_one.lock().unwrap();
                count(&driver, "count", at).unwrap();
            });
        }
    });
    assert_eq!(number(&driver, at), Ok(4 * THREADS));
    free(&driver, at);
}

#[test]
fn everything_is_given_back_in_order() {
    let fake = Fake::new(&[], &[]);
    let driver = opened(&fake);
    let at = zeroed(&driver, 8);
    let graph = driver.record(&mut || count(&driver, "count", at)).unwrap();
    free(&driver, at);
    assert!(kept(fake.driver(), "fake_objects") > 5);
    drop(driver);
    assert!(kept(fake.driver(), "fake_objects") > 0, "a graph holds its context");
    drop(graph);
    assert_eq!((kept(fake.driver(), "fake_objects"), kept(fake.driver(), "fake_violations")), (0, 0));
}

#[test]
fn memory_that_is_not_there_is_told_with_numbers() {
    let fake = Fake::new(&["MEMORY=(100ul<<20)", "FAIL_ALLOCATION=3"], &[]);
    let driver = opened(&fake);
    let error = driver.allocate(200 << 20).unwrap_err();
    assert_eq!(error, GpuError::Memory(OutOfMemory { needed: 200 << 20, available: 100 << 20 }));
    assert!(error.to_string().starts_with("the GPU has 100 MiB free, 200 MiB are needed: try "), "{error}");
    let at = driver.allocate(60 << 20).unwrap();
    assert_eq!(
        driver.allocate(1 << 20),
        Err(GpuError::Memory(OutOfMemory { needed: 1 << 20, available: 40 << 20 })),
        "the third"
    );
    let other = driver.allocate(1 << 20).unwrap();
    for at in [at, other] {
        free(&driver, at);
    }
}

#[test]
fn a_launch_that_breaks_the_device_is_what_every_later_call_tells() {
    let fake = Fake::new(&["FAIL_LAUNCH=2"], &[]);
    let driver = opened(&fake);
    let at = zeroed(&driver, 8);
    assert_eq!(count(&driver, "count", at), Ok(()));
    let failure = GpuError::Call {
        call: "cuLaunchKernel",
        message: "CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure".into(),
    };
    assert_eq!(count(&driver, "count", at), Err(failure.clone()));
    assert_eq!(driver.wait(), Err(failure.clone()));
    assert_eq!(driver.allocate(1), Err(failure.clone()));
    assert_eq!(number(&driver, at), Err(failure.clone()));
    assert_eq!(driver.record(&mut || Ok(())).err(), Some(failure));
    assert_eq!(driver.available(), 0);
}

#[test]
fn what_went_wrong_on_the_device_is_told_by_the_call_that_waits() {
    let fake = Fake::new(&["FAIL_WAIT=1"], &[]);
    let driver = opened(&fake);
    let at = zeroed(&driver, 8);
    count(&driver, "count", at).unwrap();
    let told = driver.wait().unwrap_err().to_string();
    assert_eq!(told, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered");
    assert_eq!(count(&driver, "count", at).unwrap_err().to_string(), told);
}

#[test]
fn a_refusal_that_breaks_nothing_is_forgotten() {
    let fake = Fake::new(&[], &[]);
    let driver = opened(&fake);
    let at = zeroed(&driver, 8);
    let nothing = Geometry { grid: [1, 0, 1], ..GEOMETRY };
    // SAFETY: nothing is run.
    let refused = unsafe { driver.launch("count", nothing, &counter(at)) };
    assert_eq!(refused.unwrap_err().to_string(), "cuLaunchKernel: error 1");
    assert_eq!(count(&driver, "count", at), Ok(()));
    free(&driver, at);
}

fn probe(driver: &[&str]) -> (NoGpu, Fake) {
    let fake = Fake::new(driver, &[]);
    (Cuda::probe(&places(&fake)).err().unwrap(), fake)
}

#[test]
fn no_driver_is_one_sentence() {
    let error = Cuda::probe(&Places { driver: Some("/nowhere/libcuda.so.1".into()), ..Places::default() });
    let error = error.err().unwrap();
    let told = error.to_string();
    assert!(told.starts_with("there is no NVIDIA driver: /nowhere/libcuda.so.1: cannot open"), "{told}");
    assert!(!error.is_absence(), "a library that was named is not simply absent");
    let nobody = NoGpu::NoDriver { library: "libcuda.so.1".into(), reason: String::new() };
    assert!(nobody.is_absence());
}

#[test]
fn a_library_that_is_no_driver_is_told() {
    let fake = Fake::new(&[], &[]);
    let error = Cuda::probe(&Places { driver: Some(fake.compiler()), ..Places::default() }).err().unwrap();
    assert!(error.to_string().contains("is not NVIDIA's driver: it cannot tell its version (cuDriverGetVersion)"));
    let text = fake.driver().with_file_name("text.so");
    fs::write(&text, "no library").unwrap();
    let error = Cuda::probe(&Places { driver: Some(text), ..Places::default() }).err().unwrap();
    assert!(matches!(error, NoGpu::NoDriver { .. }) && !error.to_string().contains('\n'), "{error}");
}

#[test]
fn a_driver_of_the_past_is_told_with_both_versions() {
    // An old driver lacks functions too; its age is what the user can do something about.
    let (error, _fake) = probe(&["VERSION=11040", "cuGraphInstantiateWithFlags=left_out"]);
    assert!(error.to_string().starts_with("the NVIDIA driver is for CUDA 11.4, 11.8 or later is needed: update"));
    assert!(!error.is_absence());
}

#[test]
fn a_missing_function_is_named() {
    let (error, fake) = probe(&["cuGraphLaunch=left_out"]);
    let library = fake.driver().display().to_string();
    assert_eq!(
        error.to_string(),
        format!("the NVIDIA driver for CUDA 12.4 lacks cuGraphLaunch: update or reinstall it ({library})")
    );
}

#[test]
fn a_machine_without_a_device_is_told() {
    for pretence in ["INIT=100", "DEVICES=0"] {
        let (error, _fake) = probe(&[pretence]);
        assert!(error.to_string().starts_with("the NVIDIA driver (CUDA 12.4) finds no GPU: "), "{error}");
        assert!(error.is_absence());
    }
}

#[test]
fn a_driver_that_does_not_begin_is_told() {
    let (error, _fake) = probe(&["INIT=803"]);
    assert_eq!(
        error.to_string(),
        "the GPU cannot be used: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported display driver \
         / cuda driver combination"
    );
    assert!(!error.is_absence());
}

#[test]
fn cards_that_are_not_there_or_too_old_are_told() {
    let fake = Fake::new(&["DEVICES=2", "CAPABILITY=75"], &[]);
    let cuda = Cuda::probe(&places(&fake)).unwrap();
    let told = |number| cuda.card(number).err().unwrap().to_string();
    assert_eq!(told(2), "there is no GPU number 2, the NVIDIA driver finds 2, counted from 0");
    assert_eq!(told(1), "NVIDIA Pretence has compute capability 7.5, 8.0 or later is needed (Ampere)");
    assert!(cuda.open(0, &kernels(), &mut |_| ()).is_err());
}

#[test]
fn memory_that_runs_out_while_a_card_is_opened_is_told() {
    let fake = Fake::new(&["FAIL_HOST=2"], &[]);
    let error = open(&places(&fake)).0.err().unwrap().to_string();
    assert_eq!(error, "the GPU cannot be used: cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
    assert_eq!((kept(fake.driver(), "fake_objects"), kept(fake.driver(), "fake_violations")), (0, 0));
}

#[test]
fn kernels_are_compiled_once() {
    let fake = Fake::new(&[], &[]);
    let compiled = || kept(fake.compiler(), "fake_compiled");
    let (driver, remarks) = open(&places(&fake));
    assert!(driver.is_ok() && remarks.is_empty(), "{remarks:?}");
    assert_eq!(compiled(), 2);
    drop(open(&places(&fake)));
    assert_eq!((compiled(), kept(fake.compiler(), "fake_programs")), (2, 0));
    assert_eq!(fs::read_dir(fake.kernels()).unwrap().count(), 2);
}

#[test]
fn spoiled_kernels_are_made_anew_with_a_remark() {
    let fake = Fake::new(&[], &[]);
    drop(opened(&fake));
    for file in fs::read_dir(fake.kernels()).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    }
    let (driver, remarks) = open(&places(&fake));
    assert!(driver.is_ok());
    assert_eq!(remarks.len(), 2);
    assert!(remarks[0].ends_with("has another checksum than it tells: it is made anew"), "{}", remarks[0]);
    assert!(open(&places(&fake)).1.is_empty());
    // Without a compiler there is nothing to be done about it.
    for file in fs::read_dir(fake.kernels()).unwrap() {
        fs::write(file.unwrap().path(), "something else").unwrap();
    }
    let (driver, remarks) = open(&Places { nvrtc: Some("/nowhere/libnvrtc.so".into()), ..places(&fake) });
    assert!(matches!(driver, Err(NoGpu::NoCompiler { .. })));
    assert!(remarks[0].ends_with("holds no kernels: it is not used"), "{}", remarks[0]);
}

#[test]
fn a_folder_that_cannot_be_written_is_one_remark() {
    let fake = Fake::new(&[], &[]);
    let place = fake.driver().join("kernels");
    let (driver, remarks) = open(&Places { kernels: Some(place), ..places(&fake) });
    assert!(driver.is_ok());
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(remarks[0].contains("cannot be written (") && remarks[0].ends_with("compiled again the next time"));
}

#[test]
fn without_a_compiler_the_cache_serves_and_nothing_else_does() {
    let fake = Fake::new(&[], &[]);
    let without = Places { nvrtc: Some("/nowhere/libnvrtc.so.12".into()), ..places(&fake) };
    let told = open(&without).0.err().unwrap().to_string();
    assert!(
        told.starts_with(
            "the kernels are not compiled for NVIDIA Pretence yet, and there is no compiler for it: NVRTC cannot be loaded: \
             /nowhere/libnvrtc.so.12: cannot open"
        ),
        "{told}"
    );
    assert!(told.contains("pip install nvidia-cuda-nvrtc-cu12") && !told.contains('\n'), "{told}");
    drop(opened(&fake));
    assert!(open(&without).0.is_ok());
}

#[test]
fn compilers_that_do_not_serve_are_told() {
    let told = |compiler: &[&str], driver: &[&str]| {
        let fake = Fake::new(driver, compiler);
        let told = open(&places(&fake)).0.err().unwrap().to_string();
        told.replace(&fake.compiler().display().to_string(), "NAME")
    };
    let old = told(&["MAJOR=11", "MINOR=2"], &[]);
    assert!(old.contains("NAME is NVRTC 11.2, expected 11.8 or later"), "{old}");
    let new = told(&["MAJOR=13", "MINOR=0"], &[]);
    assert!(new.contains("NAME is NVRTC 13.0, and the driver is for CUDA 12.4: expected NVRTC 12 or earlier"), "{new}");
    let lacking = told(&["nvrtcGetCUBIN=left_out"], &[]);
    assert!(lacking.contains("NAME lacks nvrtcGetCUBIN: expected NVRTC 11.8 or later"), "{lacking}");
    let beyond = told(&["KNOWN=100,120"], &[]);
    assert_eq!(beyond, "the kernels cannot be compiled: NAME makes no code for cards of capability 9.0");
}

#[test]
fn a_card_that_the_compiler_does_not_know_gets_text() {
    let fake = Fake::new(&["CAPABILITY=100"], &[]);
    drop(opened(&fake));
    let names: Vec<_> =
        fs::read_dir(fake.kernels()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| name.ends_with("-compute_90-12.4.kernels")), "{names:?}");
}

#[test]
fn a_kernel_that_is_not_understood_is_one_line() {
    let fake = Fake::new(&[], &[]);
    let cuda = Cuda::probe(&places(&fake)).unwrap();
    let told = |text| cuda.open(0, &[source("bad", text)], &mut |_| ()).err().unwrap().to_string();
    assert_eq!(
        told("int a;\n#error not so\n"),
        "the kernels cannot be compiled: NVRTC 12.4 cannot compile bad for sm_90: a.cu(2): error: #error not so"
    );
    assert!(told("a\0b").ends_with("nvrtcCreateProgram: a kernel holds a zero"));
    assert!(!fake.kernels().exists(), "nothing is kept of what cannot be compiled");
}
