//! `docs/methods.md`: which methods there are, which pairs decode which family, and what a result may claim. Every cell
//! is the answer of a session that was really made.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use crate::common::{MASK_ID, facts, options};
use demask_decode::{
    CacheSpec, DecoderSpec, Exactness, GuideOptions, OptionsError, Session,
    caches::CACHES,
    methods::DECODERS,
    recommended,
    spec::{About, Method, Value},
};
use demask_step::Mask;

/// Written by hand: what the words mean, and what checks them.
const INTRODUCTION: &str = "\
# Decoding methods

Written from the registries of `crates/decode` and from sessions made of every pair;
`DEMASK_BLESS=1 cargo test -p demask-decode --test all methods` writes it anew.

A decoder (`--decoder`) chooses which predictions are committed. A cache (`--cache`) chooses which rows are computed again.
Parameters follow a colon: `--decoder threshold:tau=0.8,strict`. A number in front, without a name, is the first parameter: `threshold:0.8,strict`. The receipt says what is promised of the tokens:

* **reference**: static or autoregressive decoding, or a family's own sampler that changes what it has written (`edit`, `p2`),
  with cache `none` or an exact one (`block`, `causal`), as the family's official code does it.
* **lossless**: provably the tokens of another run, which the receipt names.
* **approximate**: everything else. The method decodes as published or as released, and may write other tokens than the
  reference.
* **refused**: the pair cannot decode this model; one line says why and what can.

## What checks them

Traces under `golden/decode` are decoded on the checkpoints that they were made with, and every commit is compared
(`crates/demask/tests/golden`). Official traces come from the released programs. Independent ones come from a second
program, written from the published description (`golden/README.md`).

* `slowfast` has no trace. It is compared with steps worked out by hand (`crates/decode/tests/slowfast.rs`).
* `freedave` is compared with static decoding: on networks, in bits (`crates/demask/tests/lossless.rs`), and on random
  scripts, over thresholds too (`crates/decode/tests/freedave_random.rs`). Over a cache whose slots depend on earlier steps
  (`dkv`, `dllm`, `freecache:freeze=reference`) it is approximate, and one draft is static decoding forward by forward.
* `guided:target=guide` is compared with the guide's own text (`crates/demask/tests/golden`).
* `isd` and `selfspec` are compared with `ar` at several temperatures: on random scripts (`crates/decode/tests/isd.rs`,
  `selfspec.rs`), and the answers of `isd:rule=pq` with the distribution of `ar` (`isd_draws.rs`). At temperature 0 the tokens of
  `isd:rule=pq` and `isd:rule=released` are those of `ar` too, which no table here shows.

What each specification demands, and the tests that hold it: [invariants](invariants.md).

| traces | origin | decoders | caches |
|---|---|---|---|
| `llada_generate.json`, `dream_generate.json` | official | `static` | `none` |
| `sdar_generate.json` | official | `static`, `threshold` | `block` |
| `sdar_entropy_bounded.json` | independent | `entropy_bounded` | `block` |
| `ar_greedy.json` | official | `ar` | `causal` |
| `fastdllm_llada.json`, `fastdllm_dream.json` | official | `static`, `threshold` | `none`, `prefix`, `dual` |
| `fastdllm_factor.json` | independent | `factor` | `none`, `prefix`, `dual` |
| `freecache_llada.json`, `freecache_dream.json` | official | `static` | `freecache` (`freeze=reference`) |
| `freecache_exact.json` | independent | `static` | `freecache` (`freeze=exact` and `prompt`) |
| `dense_a2d_mdlm.json` | official | `static` | `none` |
| `dense_a2d_bd3lm.json` | official | `static` | `block` |
| `dense_fastdllm2_batch.json`, `dense_fastdllm2_generate.json` | official | `threshold` | `block` |
| `dense_nemotron_ar.json` | official | `ar` | `causal` |
| `dense_nemotron_diffusion.json` | official | `static`, `threshold` | `block` |
| `dense_nemotron_linear_spec.json` | official | `selfspec` | `causal` |
| `dense_opendcoder.json` | official | `static` | `none` |
| `dense_opendcoder_p2.json` | official | `p2` | `none` |
| `dense_stablediffcoder.json` | official | `static`, `threshold` | `block` |
| `idlm_isd.json`, `idlm_isd_coupled.json`, `idlm_isd_pq.json`, `idlm_isd_released.json` | independent | `isd`, `ar` | `causal` |
| `moe_llada_generate.json` | official | `static` | `none` |
| `moe_llada2_generate.json` | official | `threshold` | `none` |
| `moe_llada21_generate.json`, `moe_joint_threshold.json` | official | `edit` | `none` |
| `moe_rnd1_generate.json` | independent | `static`, `entropy_bounded` (`rule=rnd1`) | `none` |
| `moe_sdar_generate.json` | official | `static`, `threshold` | `block` |
| `dkv_llada.json`, `dkv_dream.json` | official | `static` | `dkv` |
| `dllmcache_llada.json`, `dllmcache_dream.json` | official | `static` | `dllm` |
| `freedave_block.json` | official | `static`, `threshold`, `freedave` | `block` |
| `freedave_full.json` | official | `static`, `threshold`, `freedave` | `prefix`, `dual` |
| `guided_dream.json` | official | `guided` | `none`, `prefix` |
| `guided_llada.json` | independent | `guided` | `none`, `prefix` |
";

/// Written by hand: which of two readings runs where a paper and a program differ, or a paper and itself.
const READINGS: &str = "
## Where the texts differ

* `guided`, appendix C.4 of FlashDLM: the text compares the diffusion model's own largest value with a share of the guide's
  and asks for no agreement (`match=confidence`); the released program asks the guide for a share of its best probability
  on the draft (`match=topk_relative`).
* `guided`, algorithm 1 of the submitted version: it counts all drafts that match, the text beside it the longest run of
  them from the first mask on. The run is what decodes.
* `guided`, no draft stands: section 3.2.2 takes the guide's token in one paragraph (`fallback=ar`) and the diffusion
  model's in another and in algorithm 1 (`fallback=dlm`).
* `guided`, appendix C.1: there is no block length. Under full attention every mask is drafted whatever `--block-length`
  says; it only says when a cache computes everything anew.
* `freedave`, lemma 1: a number of drafts as large as the longest step does not give the fewest forwards, because the
  longest jump may land where the next ones are short. Never more forwards than static decoding is what holds.
* `dllm`: the paper counts steps down to their end (`phase=down`) and treats layer 0 as the others (`first_layer=same`),
  the program counts up and computes layer 0 whole.
* `freecache`: the paper freezes a block once it is complete (`freeze=exact`), the program with the forward that completes
  it (`freeze=reference`).
";

/// Written by hand: what decodes if nobody says how, and why.
const DEFAULTS: &str = "
## Defaults

Without `--decoder` and `--cache`, a model is decoded by the fastest pair that is lossless or whose loss on the demo's tasks
is within noise. Of a pair that is named in part, the other part is:

* beside a decoder: the first of `dual`, `prefix` and `none` under full attention, of `block` and `none` in blocks, that it can run
  over. `freedave:eager`, for example, runs over `none` alone, and `selfspec` has the cache of causal passes, `causal`;
* beside a cache: `threshold:tau=0.9`, or the reference where that cannot run over it;
* beside a reference: its exact cache. References are `static` and `ar`, and the samplers `edit` and `p2` of their families;
* beside `--steps`, `--schedule`, `--remasking`, `--eps` or `--alg-temp`, which belong to static decoding: the reference's, also if
  neither is named.

Holes are filled by the reference, over `dual` in the families in which that was measured
([models.md](models.md#holes)). Causal models decode by their reference, those whose masks were trained (I-DLM) by `isd`. RND1 is
decoded by its own sampler, which `--decoder static` is with schedule `rnd1` and remasking `entropy`; other options change
it one by one, and another decoder takes its place.

| family | decoder | cache |
|---|---|---|
FAMILIES
The figures behind that: 500 test problems of each demo model, blocks of 16 under full attention, an Intel Xeon without AMX,
2 threads, bf16. Seconds are means of the first 30 problems, one answer at a time. The whole record, nine decoders over
every cache, is `bench/record/intel-emerald-rapids-no-amx-2core/2026-11-22-demo-decoders.json`.

| model | decoder | cache | right | NFE | tokens by NFE | seconds | claim |
|---|---|---|---|---|---|---|---|
| demo-llada | `static` | `dual` | 94.2 % | 37.7 | 0.80 | 0.043 | approximate |
| demo-llada | `threshold:tau=0.9` | `dual` | 94.0 % | 4.1 | 7.27 | 0.012 | approximate |
| demo-llada | `freedave:d=4` | `dual` | 94.2 % | 16.8 | 1.79 | 0.043 | lossless against `static, cache dual` |
| demo-llada | `guided` by demo-qwen | `dual` | 97.4 % | 2.4 | 12.38 | – | approximate |
| demo-dream | `static` | `dual` | 95.2 % | 36.3 | 0.83 | 0.035 | approximate |
| demo-dream | `threshold:tau=0.9` | `dual` | 94.0 % | 6.7 | 4.49 | 0.015 | approximate |
| demo-dream | `freedave:d=4` | `dual` | 95.2 % | 16.6 | 1.81 | 0.038 | lossless against `static, cache dual` |
| demo-dream | `guided` by demo-qwen | `dual` | 97.6 % | 2.8 | 10.94 | – | approximate |
| demo-sdar | `static` | `block` | 98.6 % | 39.7 | 0.76 | 0.013 | reference |
| demo-sdar | `threshold:tau=0.9` | `block` | 97.6 % | 17.1 | 1.76 | 0.007 | approximate |
| demo-sdar | `freedave:d=4,eager` | `block` | 98.6 % | 11.8 | 2.56 | 0.016 | lossless against `static, cache block` |
| demo-sdar | `guided` by demo-qwen | `block` | 99.0 % | 16.7 | 1.81 | 0.008 | approximate |

* Static decoding with cache `none`, the reference of full attention, has 94.8 % on demo-llada in 0.143 s and 94.0 % on
  demo-dream in 0.141 s.
* All 45 lossless runs of the record gave the answers of static decoding and never needed more forwards.
* `freedave` over `none` writes the same 500 answers in 22.0, 15.4, 13.5 and 13.3 forwards each (d = 2, 4, 8, 16), instead
  of 37.7, on demo-llada; on demo-dream in 22.4, 16.1, 14.4 and 14.3.
* On demo-sdar, `freedave` needs 9624 forwards for all 500 answers with d = 8; 5902 with drafts that span blocks (`eager`)
  and d = 4, 5319 with d = 8; 13,748 counted as published (`mode=reference`). Static decoding needs 19,863.
* The standard error of 94 % of 500 is 1.1 points. `threshold` and `static` over the same cache differ in 15, 12 and 5
  verdicts, of which `threshold` loses 8, 9 and 5 (two-sided sign tests: p = 1, 0.15 and 0.06).
* The record is of released stores and starts. With today's defaults demo-dream takes 4.6 NFE under `threshold` and 34.0 under
  `static` over `dual` for 94.0 and 95.2 %; demo-sdar runs 8.9 and 31.5 forwards over `block`, with the same answers.
* A guide has to be named, so none is a default. The guided rows under full attention are of a later run on a busy machine,
  which counts forwards and takes no seconds. Its drafts reach over the whole response; those of the record ended with a
  block of 16 and took 3.2 and 3.5 NFE for 97.0 and 97.8 %.

FreeDave needs the fewest forwards of what is lossless. On a processor drafts cost what they compute: many pay where a
forward of few rows costs as much as reading the weights, which these small models do not show. Without a number it drafts
as many lanes as have nearly free rows together on the device ([ablations](ablations.md) has its seconds); the receipt has the
number, and with 1 it is static decoding.
";

/// Pairs under full attention whose parameters change the answer.
const VARIANTS: &[(&str, &str)] = &[
    ("freedave:tau=0.9", "none"),
    ("freedave:tau=0.9,rule=subset", "none"),
    ("freedave:eager", "none"),
    ("freedave:eager", "dual"),
    ("freedave", "freecache:freeze=prompt"),
    ("freedave", "freecache:freeze=reference"),
    ("freedave", "freecache:lookahead=64"),
    ("guided:target=guide", "none"),
    ("guided:target=guide,match=topk", "none"),
    ("threshold", "dkv:variant=greedy"),
];

/// Tokens of the prompt and of the response that every pair is asked to decode: longer than what any cache keeps
/// together, so that no claim holds only because nothing was kept yet.
const PROMPT: usize = 16;
const RESPONSE: usize = 1024;

/// Headings, who sees whom, and the shift.
const FAMILIES: &[(&str, Mask, u32)] = &[
    ("Full attention (LLaDA, A2D mdlm)", Mask::Full, 0),
    ("Full attention, shifted (Dream, DiffuCoder, Open-dCoder)", Mask::Full, 1),
    ("Block-causal attention (SDAR, TraDo, Stable-DiffCoder, A2D bd3lm, Fast-dLLM v2)", Mask::blocks(4), 0),
    ("Causal attention (Qwen2, Qwen3, Llama 3, I-DLM), with a mask token", Mask::Causal, 1),
    ("Attention by pass (Nemotron-Labs-Diffusion)", Mask::Context { context: 0, block: 4 }, 0),
];

/// Claim of a session with the defaults of both methods, or the reason why there is none.
fn claim(mask: Mask, shift: u32, decoder: DecoderSpec, cache: CacheSpec) -> Result<Exactness, OptionsError> {
    let mut options = options(mask, shift, PROMPT, RESPONSE);
    options.facts.mask_id = Some(MASK_ID);
    options.guide = decoder.traits().guide.map(|_| GuideOptions {
        facts: facts(Mask::Causal, 1),
        end_ids: Vec::new(),
        shared_vocabulary: true,
        text: None,
    });
    (options.decoder, options.cache) = (decoder, cache);
    Session::new(options).map(|session| session.exactness())
}

/// A claim as it stands in a cell.
fn words(claim: &Exactness) -> String {
    match claim.against() {
        Some(against) => format!("{} against `{against}`", claim.name()),
        None => claim.name().to_owned(),
    }
}

/// A table of every pair, and the reasons of refusals below it: one for all the methods that it is true of.
fn matrix(mask: Mask, shift: u32) -> String {
    let mut notes: Vec<String> = Vec::new();
    let mut text = String::from("| |");
    for cache in CACHES {
        write!(text, " `{}` |", cache.about().name).unwrap();
    }
    writeln!(text, "\n|---|{}", "---|".repeat(CACHES.len())).unwrap();
    for decoder in DECODERS {
        write!(text, "| `{}` |", decoder.about().name).unwrap();
        for cache in CACHES {
            let (decoder, cache) = (DecoderSpec::of(decoder), CacheSpec::of(cache));
            let names = [format!("cache {cache}"), format!("cache {}", cache.name())];
            match claim(mask, shift, decoder.clone(), cache) {
                Ok(claim) => write!(text, " {} |", words(&claim)).unwrap(),
                Err(reason) => {
                    let reason = reason.to_string().replacen(&format!("decoder {}", decoder.name()), "this decoder", 1);
                    let reason = names.iter().fold(reason, |reason, name| reason.replacen(name, "this cache", 1));
                    let known = notes.iter().position(|note| *note == reason);
                    let index = known.unwrap_or_else(|| {
                        notes.push(reason);
                        notes.len() - 1
                    });
                    write!(text, " refused: {} |", index + 1).unwrap();
                }
            }
        }
        text.push('\n');
    }
    text.push('\n');
    for (index, note) in notes.iter().enumerate() {
        writeln!(text, "{}. {note}", index + 1).unwrap();
    }
    text
}

/// A table of the pairs whose parameters change the answer.
fn variants() -> String {
    let mut text = String::from("| decoder | cache | claim |\n|---|---|---|\n");
    for (decoder, cache) in VARIANTS {
        let answer = match claim(Mask::Full, 0, decoder.parse().unwrap(), cache.parse().unwrap()) {
            Ok(claim) => words(&claim),
            Err(reason) => format!("refused: {reason}"),
        };
        writeln!(text, "| `{decoder}` | `{cache}` | {answer} |").unwrap();
    }
    text
}

/// Turns references to specifications into links.
fn linked(source: &str) -> String {
    let link = |word: &str| {
        let target = word.trim_end_matches([',', ';']);
        if target.starts_with("specs/") {
            format!("[{target}]({target}){}", &word[target.len()..])
        } else {
            word.to_owned()
        }
    };
    source.split(' ').map(link).collect::<Vec<_>>().join(" ")
}

/// A row for each method, and one for each of its parameters.
fn methods<'a>(text: &mut String, what: &str, all: impl Iterator<Item = &'a About>) {
    writeln!(text, "| {what} | values | default | what it does | source |\n|---|---|---|---|---|").unwrap();
    for About { name, summary, source, parameters, .. } in all {
        writeln!(text, "| **`{name}`** | | | {summary} | {} |", linked(source)).unwrap();
        for parameter in *parameters {
            let default = match parameter.default() {
                Value::Fit => "not given".to_owned(),
                value => format!("`{value}`"),
            };
            let (key, kind, doc) = (parameter.name, parameter.kind, parameter.doc);
            writeln!(text, "| `{name}:{key}` | {kind} | {default} | {doc} | |").unwrap();
        }
    }
}

/// A table of what decodes if nobody says how.
fn recommendations() -> String {
    let mut text = String::new();
    for &(heading, mask, _) in FAMILIES {
        let (decoder, cache) = recommended(mask);
        writeln!(text, "| {heading} | `{decoder}` | `{cache}` |").unwrap();
    }
    text + "\n"
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str(READINGS);
    page.push_str(&DEFAULTS.replace("FAMILIES\n", &recommendations()));
    page.push_str("\n## Decoders\n\nThe first is the reference, but for causal models, whose reference is `ar`.\n\n");
    methods(&mut page, "decoder", DECODERS.iter().map(Method::about));
    page.push_str("\n## Caches\n\nThe reference is the exact cache of the family: `none`, `block` or `causal`.\n\n");
    methods(&mut page, "cache", CACHES.iter().map(Method::about));
    write!(
        page,
        "\n## Which pairs decode what\n\n\
         Both methods with their defaults, on a response of {RESPONSE} tokens. The number of a refusal is that of its \
         reason below the\ntable.\n"
    )
    .unwrap();
    let mut tables: Vec<(&str, String)> = Vec::new();
    for &(heading, mask, shift) in FAMILIES {
        let table = matrix(mask, shift);
        match tables.iter().find(|(_, known)| *known == table) {
            Some((same, _)) => writeln!(page, "\n### {heading}\n\nThe same as: {same}.").unwrap(),
            None => write!(page, "\n### {heading}\n\n{table}").unwrap(),
        }
        tables.push((heading, table));
    }
    write!(page, "\n## Where parameters change the answer\n\nFull attention.\n\n{}", variants()).unwrap();
    page
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
#[cfg_attr(miri, ignore = "takes hours: every pair of methods is resolved for a table")]
fn the_page_is_up_to_date() {
    let path = root().join("docs/methods.md");
    if std::env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, page()).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, page(), "docs/methods.md differs: run again with DEMASK_BLESS=1");
}

/// The page says of every file of traces what it checks, and names no file that does not exist.
#[test]
fn the_introduction_names_all_traces() {
    let files = fs::read_dir(root().join("golden/decode")).unwrap();
    let name = |file: fs::DirEntry| file.file_name().to_string_lossy().strip_suffix(".json").map(str::to_owned);
    let mut files: Vec<String> = files.filter_map(|file| name(file.unwrap())).collect();
    files.sort_unstable();
    let mut named: Vec<&str> = INTRODUCTION.split('`').filter_map(|word| word.strip_suffix(".json")).collect();
    named.sort_unstable();
    assert_eq!(named, files);
}

/// What the page says of defaults.
#[test]
fn defaults_are_as_the_page_says() {
    for (mask, decoder, cache) in
        [(Mask::Full, "static", "none"), (Mask::blocks(4), "static", "block"), (Mask::Causal, "ar", "causal")]
    {
        let options = options(mask, 0, 8, 64);
        assert_eq!((options.decoder.name(), options.cache.name()), (decoder, cache));
    }
}
