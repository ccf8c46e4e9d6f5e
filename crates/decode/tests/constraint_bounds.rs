//! Constraints that are made to take memory or time: each is refused in one line, or has an automaton, and what is
//! allocated meanwhile stays below a budget, which an allocator counts.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        LazyLock, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use demask_decode::constraint::{Constraint, Language};

/// Most bytes that making an automaton, or refusing to, may hold.
const BUDGET: usize = 64 << 20;
/// Longest time of either on a processor. A neighbour may slow the core down meanwhile, so each case has some tries.
const LONGEST: Duration = Duration::from_secs(1);

/// Counts what is held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counters touch no memory of theirs.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One case at a time, or one would be counted for another.
static ALONE: Mutex<()> = Mutex::new(());

/// Makes an automaton within the bounds; returns the refusal if there is one.
fn bounded(name: &str, language: Language) -> Option<String> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let constraint = Constraint::new(language);
    let mut took = Duration::MAX;
    let mut refused = None;
    for _ in 0..8 {
        let before = HELD.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let start = thread_time();
        let made = constraint.compile();
        took = took.min(thread_time().saturating_sub(start));
        let peak = PEAK.load(Ordering::Relaxed) - before;
        assert!(peak <= BUDGET, "{name} holds {} MiB", peak >> 20);
        refused = made.err().map(|error| error.to_string());
        if took <= LONGEST {
            break;
        }
    }
    assert!(took <= LONGEST, "{name} takes {took:?}");
    let refused = refused?;
    assert!(!refused.contains('\n') && refused.len() < 1000, "{name}: {refused}");
    Some(refused)
}

/// Time that this thread had a processor for: while others have it, nothing is made. The clock's where the system does
/// not say.
fn thread_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let known = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = known.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

fn nested(open: &str, inside: &str, close: &str, times: usize) -> String {
    format!("{}{inside}{}", open.repeat(times), close.repeat(times))
}

#[test]
fn structure_s17_hostile_patterns_are_bounded() {
    let long = |text: &str| text.repeat((64 << 10) / text.len());
    let cases = [
        ("exponential", "(?:a|b)*a(?:a|b){18}".to_owned()),
        ("exponential over classes", r"(?:\w|\d)*\d(?:\w|\d){30}".to_owned()),
        ("counts of counts", "(?:(?:(?:a{100}){100}){100}){100}".to_owned()),
        ("a long count", "a{100000}".to_owned()),
        ("optional counts", "(?:a?){5000}b".to_owned()),
        ("nothing, often", "(?:(?:(?:){1000}){1000}){1000}".to_owned()),
        ("classes of Unicode", r"\w".repeat(30_000)),
        ("some classes of Unicode", r"\w".repeat(2_000)),
        ("counted classes", r"(?:\w\W){500}".to_owned()),
        ("alternatives", long("a|b|")),
        ("a long text", long("x")),
        ("letters of both cases", format!("(?i){}", long("k"))),
        ("groups", nested("(", "a", ")", 30_000)),
        ("groups within the bound", nested("(?:", "a", ")*", 60)),
        ("classes in classes", nested("[", "a", "]", 30_000)),
        ("stars", format!("{}b", "a*".repeat(3_000))),
        ("overlapping ends", format!("(?:{})*", (1..400).map(|n| format!("a{{{n}}}")).collect::<Vec<_>>().join("|"))),
        ("beyond the bound", "x".repeat(300 << 10)),
    ];
    let refused = cases.map(|(name, pattern)| (name, bounded(name, Language::Regex(pattern))));

    let count = refused.iter().filter(|case| case.1.is_some()).count();
    assert!((10..18).contains(&count), "{count} refused");
}

#[test]
fn structure_s17_hostile_choices_are_bounded() {
    let many = (0..4_096).map(|n| format!("choice {n} {}", "x".repeat(n % 40))).collect();
    assert_eq!(bounded("many choices", Language::Choice(many)), None);
    let long = (0..4_000).map(|n| format!("{n:04}{}", "abcdefgh".repeat(7))).collect();
    bounded("long choices", Language::Choice(long));
    let ends = (0..256).map(|n| "x".repeat(800 + n)).collect();
    assert_eq!(bounded("prefixes", Language::Choice(ends)), None);
}

#[test]
fn structure_s17_hostile_schemas_are_bounded() {
    let tree = |width: usize| {
        let of = (0..width).map(|n| format!(r##""p{n}":{{"$ref":"#"}}"##)).collect::<Vec<_>>().join(",");
        format!(r#"{{"type":"object","properties":{{{of}}}}}"#)
    };
    let chain = |end: &str| {
        let of =
            (0..4_000).map(|n| format!(r##""d{n}":{{"$ref":"#/$defs/d{}"}}"##, n + 1)).collect::<Vec<_>>().join(",");
        format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{of},"d4000":{end}}}}}"##)
    };
    let doubled = (0..40).map(|n| {
        format!(r##""d{n}":{{"type":"array","prefixItems":[{{"$ref":"#/$defs/d{m}"}},{{"$ref":"#/$defs/d{m}"}}],"minItems":2,"items":false}}"##, m = n + 1)
    });
    let doubled = doubled.collect::<Vec<_>>().join(",");
    let product = |keyword: &str| {
        let two = format!(r#"{{"{keyword}":[{{"required":["a"]}},{{"required":["b"]}},{{"required":["c"]}}]}}"#);
        format!(r#"{{"type":"object","allOf":[{}]}}"#, vec![two; 60].join(","))
    };
    let members =
        (0..4_000).map(|n| format!(r#""property number {n}":{{"type":"string"}}"#)).collect::<Vec<_>>().join(",");
    let nested_one =
        (0..12).fold(r#"{"const":1}"#.to_owned(), |inner, n| format!(r#"{{"oneOf":[{inner},{{"const":"{n}"}}]}}"#));
    let branches = (0..800).map(|n| format!(r#"{{"properties":{{"kind":{{"const":{n}}}}},"required":["kind"]}}"#));
    let branches = branches.collect::<Vec<_>>().join(",");
    let patterns =
        |count: usize| (0..count).map(|n| format!(r#""^a{{{n},}}b":{{"type":"null"}}"#)).collect::<Vec<_>>().join(",");
    let cases = [
        ("nesting of arrays", nested("[", "", "]", 100_000)),
        ("nesting of schemas", nested(r#"{"items":"#, "{}", "}", 20_000)),
        ("nesting within the bound", nested(r#"{"type":"array","items":"#, "{}", "}", 60)),
        ("a tree of references", tree(6)),
        ("a wide tree of references", tree(3_000)),
        ("a chain of references", chain(r#"{"type":"null"}"#)),
        ("a circle of references", chain(r##"{"$ref":"#/$defs/d0"}"##)),
        ("doubled references", format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{doubled},"d40":{{"type":"null"}}}}}}"##)),
        ("products of anyOf", product("anyOf")),
        ("products of oneOf", product("oneOf")),
        ("nested oneOf", nested_one),
        ("many properties", format!(r#"{{"type":"object","properties":{{{members}}}}}"#)),
        ("many counted properties", format!(r#"{{"type":"object","minProperties":500,"properties":{{{members}}}}}"#)),
        ("many branches", format!(r#"{{"type":"object","oneOf":[{branches}]}}"#)),
        ("patterns of keys", format!(r#"{{"type":"object","patternProperties":{{{}}}}}"#, patterns(5))),
        ("more patterns of keys", format!(r#"{{"type":"object","patternProperties":{{{}}}}}"#, patterns(500))),
        ("a long string", r#"{"type":"string","minLength":4000000000}"#.to_owned()),
        ("a string of many lengths", r#"{"type":"string","maxLength":4000000000}"#.to_owned()),
        ("many items", r#"{"type":"array","items":{"type":"string"},"minItems":4000000000}"#.to_owned()),
        ("large bounds", r#"{"type":"number","minimum":-1e308,"exclusiveMaximum":1e308}"#.to_owned()),
        ("small bounds", r#"{"type":"number","exclusiveMinimum":1e-320,"maximum":1.7976931348623157e-300}"#.to_owned()),
        ("a hostile pattern", r#"{"type":"string","pattern":"(a|b)*a(a|b){18}"}"#.to_owned()),
        (
            "two patterns",
            r#"{"type":"string","allOf":[{"pattern":"^(ab{1,90}){1,40}$"},{"pattern":"(b{3}a){9}|c{500}"}]}"#
                .to_owned(),
        ),
        ("pattern and length", r#"{"type":"string","pattern":"a.{12}b","maxLength":3000}"#.to_owned()),
        (
            "many values",
            format!(r#"{{"enum":[{}]}}"#, (0..30_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",")),
        ),
        ("many values twice", {
            let values = (0..15_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
            format!(r#"{{"allOf":[{{"enum":[{values}]}},{{"enum":[{values}]}}]}}"#)
        }),
        ("keys that are there twice", r#"{"type":"string","type":"null"}"#.to_owned()),
        ("beyond the bound", format!(r#"{{"description":"{}"}}"#, "x".repeat(300 << 10))),
    ];
    let refused = cases.map(|(name, schema)| (name, bounded(name, Language::JsonSchema(schema))));

    let count = refused.iter().filter(|case| case.1.is_some()).count();
    assert!((10..28).contains(&count), "{count} refused");
}
