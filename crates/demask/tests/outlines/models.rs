//! `docs/models.md`: every family and every released shape, with what it needs in memory; `DEMASK_BLESS=1` writes it anew.

use std::{fmt::Write, fs, path::Path};

use demask::costs::{model_shape::ModelShape, shapes::Like};
use demask::{ActivationChoice, DeviceChoice, DtypeChoice, WeightChoice};
use demask::{DeviceOptions, Footprint};
use demask_checkpoint::{FAMILIES, Family, Holes};
use demask_cpu::isa::Tier;
use demask_cuda::CudaOptions;
use demask_decode::Others;
use demask_model::{ArchSpec, Mlp};
use demask_step::{Mask, Origin, SequenceLimits};
use demask_tensor::{BlockFormat, Dtype};

const INTRODUCTION: &str = "# Models

Written from the program's own tables. A family is found by `architectures` in `config.json`, and by `model_type` only where
that is absent: Stable-DiffCoder's files say `llama` there. Two families share the configuration of another one. Open-dCoder is
told from Qwen2.5 by the mask token `<M>` that its tokenizer names, A2D's block models from the others by `bd3lm` in the model's
name. I-DLM bears SDAR's class name: `use_regular_causal` in its file, `i-dlm` or `idlm` in its name, or a `block_size` that is no multiple of 4 tells it.
A warning says which was taken, and `--family NAME` takes another one. `--family NAME:shift=0|1,block=N|none,mask=ID` also says
what the weights were trained for where no file does, of a GGUF file that says `llama`, for example:

    demask generate --model FILE.gguf --family stable-diffcoder:block=4 --decoder threshold \"...\"

`shift` is the distance from a row to the position that it predicts. *Seeded* blocks start with the token that the pass
predicts that stores what lies before them. Decoder and cache are those that decode if none is named; `docs/methods.md` has
the others. `selfspec` with cache `causal` writes the tokens of `ar` of the same weights (Nemotron-Labs-Diffusion), and so does
`isd` (I-DLM), which decodes where masks are trained to guess. `mask=ID` gives a causal model without a mask one, for `isd`: an id that no text has. No released file of I-DLM has been
loaded here: its signs follow from its authors' training files, and how many guesses come true is their figure.
The samplers of LLaDA2.1 and Open-dCoder that change what they have written are `edit` and `p2`: no file says that a LLaDA2 is 2.1.
RND1 is decoded as its authors do ([specs/families.md#6.7](specs/families.md#6.7)): schedule `rnd1`, remasking `entropy`, 256
positions of which the last is kept for an end, at most 256 steps, temperature 0.1.

| family | architecture | attention | shift | blocks | decoder | cache |
|---|---|---|---|---|---|---|
";

const HOLES: &str = "
## Holes

The holes of a text are filled by the reference, decoder `static` or the family's own sampler: `threshold` fills fewer of them as
they were. The cache is the recommended one where that was measured to fill as many, and none elsewhere. A decoder, a cache or a
setting of the reference that is named decides as [Decoding methods](methods.md#defaults) says.

The measurement: 200 solutions of word problems with their first line as the hole, 21 tokens, greedy. On demo-llada `static`
over `dual` fills 197 as they were, over `prefix` 197, over `none` 193; `threshold` 190 over `dual` and 189 over `none`. Rows computed are
640, 704 and 1,653 for `static`. On canvases of 440 positions they are 908 over `dual` and 7,961 over `none`, and a hole of 18 tokens takes 0.30
and 2.60 s on two busy cores of a Zen 5.

| family | cache | evidence |
|---|---|---|
";

const SHAPES: &str = "
## Sizes

Released shapes that `demask-lab synth --like NAME` makes with random weights and `demask-lab cost --like NAME` counts. `--model`
takes the hub's name of a checkpoint. Others of the same shape take as much memory. Bytes are
those that `demask inspect` reports for a processor: packed weights in bf16, or quantised at load (`--quantize q8`, `q4`), and
K/V of 1000 positions in bf16. The table of embeddings is not among them: its rows are read from the file. On disk a
checkpoint takes two bytes for each parameter. None of the released checkpoints of 2026's families was run here: their
shapes were, with random weights.

| shape | a checkpoint | family | parameters | bf16 | q8 | q4 | K/V of 1000 positions |
|---|---|---|---|---|---|---|---|
";

const EXPERTS: &str = "
## Experts

A row meets a part of the parameters; the others have to be there. *Read* is the share of all experts' bytes that a forward of
so many rows reads if rows choose as chance would; rows of one text choose fewer. Models with experts run on the processor;
a GPU refuses them.

| shape | experts | of a row | parameters of a row | experts in bf16 | read by 1 row | 4 rows | 32 rows |
|---|---|---|---|---|---|---|---|
";

const FILES: &str = "
## GGUF files

Types of matrices that are read, with the bits of a number in the file, and what it becomes in memory. Matrices stay in the blocks of
the file where a processor has kernels for them, or in others that have room for the same numbers to the bit. The rest is
widened to the type of the products, and rounded to `q8` where inputs are bytes (`--activations`). A line on standard error
names what takes more memory than in the file, and how much; `demask inspect` says it without loading. F32, F16 and BF16 are
read too. IQ1, IQ2 and IQ3 types, NVFP4 and the types that programs use on the way are refused by name: take the same model in
Q4_K_M or Q8_0.

| type | in the file | on a processor | beside inputs of bytes | on a GPU |
|---|---|---|---|---|
";

const FILES_BEHIND: &str = "
Texts are cut as `tokenizer.ggml.pre` says: by the ways of Qwen2, Llama 3, GPT-2, StarCoder and SmolLM, LLaDA-MoE, Mistral's
Tekken, GPT-4o, DeepSeek, Falcon, Bloom and others that llama.cpp names, under all of their names; another name is refused. Tokenizers
of the kind `llama` (SentencePiece) are not read.

An answer of a causal model ends with every token that llama.cpp ends with: those of the keys `eos`, `eot`, `eom`, `fim_pad`, `fim_rep`
and `fim_sep`, and control tokens whose text says it (`<|endoftext|>`, `<|im_end|>`, `<|eot_id|>`, `<end_of_turn>`, `</s>` and so on). A
token that is ordinary text to the file is no end, whatever its text. Models that fill masks end where their authors' programs
end: with the text's end and the turn's. `demask inspect` lists all ends, and what names each.
";

/// Bits of a number, with one digit where it needs one.
fn bits(bytes: u64, count: usize) -> String {
    let bits = format!("{:.2}", bytes as f64 * 8.0 / count as f64);
    bits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A line for a type of a GGUF file: where its numbers are, and how many bits they take.
fn file_type(format: BlockFormat) -> String {
    let (stored, rows, columns) = (Dtype::Block(format), 64, 1024);
    let in_file = bits((rows * stored.row_bytes(columns).unwrap()) as u64, rows * columns);
    let on_processor = [ActivationChoice::Plain, ActivationChoice::Int8].map(|activations| {
        let device = DeviceOptions {
            device: DeviceChoice::Cpu,
            dtype: DtypeChoice::Bf16,
            activations,
            tier: Some(Tier::Portable),
            ..DeviceOptions::default()
        };
        let options = device.backend_options(stored, Mask::Full).unwrap();
        let taken = bits(options.matrix_bytes(stored, rows, columns), rows * columns);
        format!("{}, {taken}", options.matrix_format([stored; 2]))
    });
    let gpu = CudaOptions { dtype: Dtype::Bf16, quantisation: None };
    // A GPU's scales are f32.
    let on_gpu = format!(
        "{}, {}",
        gpu.matrix_format([stored; 2]),
        bits(gpu.matrix_bytes(stored, rows, columns), rows * columns)
    );
    format!(
        "| {} | {in_file} | {} | {} | {on_gpu} |",
        format.to_string().to_uppercase(),
        on_processor[0],
        on_processor[1]
    )
}

/// A line for a shape with experts.
fn experts(spec: &ArchSpec, name: &str) -> Option<String> {
    let shape = spec.experts.as_ref()?.shape;
    let layers = (0..spec.layers).filter(|&layer| matches!(spec.mlp(layer), Mlp::Experts(_))).count();
    let one = 3 * shape.ffn * spec.hidden;
    let idle = layers * (shape.count - shape.per_row) * one;
    let active = (spec.parameters() - idle as u64) as f64 / 1e9;
    let all = gigabytes((2 * layers * shape.count * one) as u64);
    let left_out = 1.0 - shape.per_row as f64 / shape.count as f64;
    let read = [1, 4, 32].map(|rows| format!("{:.0} %", 100.0 * (1.0 - left_out.powi(rows))));
    let (count, taken) = (shape.count, shape.per_row);
    Some(format!("| `{name}` | {count} in {layers} layers | {taken} | {active:.2} B | {all} | {} |", read.join(" | ")))
}

fn blocks(family: &Family) -> String {
    let Some(length) = family.attention().block() else { return "–".to_owned() };
    let rules = family.blocks();
    let origin = match rules.origin {
        Origin::Start => "from position 0",
        Origin::Prompt => "behind the prompt",
    };
    let seeded = if rules.seeds { ", seeded" } else { "" };
    format!("{length} {origin}{seeded}")
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

/// Weights and K/V of a shape in a format.
fn needed(outline: &ModelShape, quantize: WeightChoice) -> Footprint {
    let device = DeviceOptions {
        device: DeviceChoice::Cpu,
        dtype: DtypeChoice::Bf16,
        quantize,
        tier: Some(Tier::Portable),
        ..DeviceOptions::default()
    };
    let options = device.backend_options(Dtype::Bf16, Mask::Full).unwrap();
    let canvas = SequenceLimits { positions: 1000, ..SequenceLimits::default() };
    Footprint::of(outline.info().spec(), (outline.stored(), None), &options, 1, &[canvas]).unwrap()
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for family in FAMILIES {
        let others = match family {
            family if family.decoding().sampler.is_some() => Others::Reference,
            family if family.trains_causal_masks() => Others::Guesses,
            _ => Others::Recommended,
        };
        let (decoder, cache) = others.methods(family.attention());
        let (name, kind) = (family.name(), family.attention().kind());
        let architecture = family.architecture().map_or("–".to_owned(), |name| format!("`{name}`"));
        let (shift, blocks) = (family.shift(), blocks(family));
        writeln!(page, "| {name} | {architecture} | {kind} | {shift} | {blocks} | `{decoder}` | `{cache}` |").unwrap();
    }
    page.push_str(HOLES);
    for family in FAMILIES.iter().filter(|family| family.attention() == Mask::Full) {
        let (cache, why) = match family.decoding().holes {
            Holes::AsWithoutCache(measured) => (Others::ReferenceOverCache.methods(Mask::Full).1.to_string(), measured),
            Holes::Unknown(why) => (Others::Reference.methods(Mask::Full).1.to_string(), why),
            _ => unreachable!("evidence or none"),
        };
        writeln!(page, "| {} | `{cache}` | {why} |", family.name()).unwrap();
    }
    page.push_str(SHAPES);
    for like in Like::all() {
        let outline = ModelShape::of_shape(like, None).unwrap();
        let plain = needed(&outline, WeightChoice::Plain);
        let [q8, q4] = [WeightChoice::Q8, WeightChoice::Q4].map(|choice| gigabytes(needed(&outline, choice).weights));
        let parameters = outline.info().spec().parameters() as f64 / 1e9;
        let (family, bf16) = (like.family().name(), gigabytes(plain.weights));
        let kv = plain.cache as f64 / 1e6;
        let hub = like.hub();
        writeln!(page, "| `{like}` | `{hub}` | {family} | {parameters:.2} B | {bf16} | {q8} | {q4} | {kv:.0} MB |")
            .unwrap();
    }
    page.push_str(EXPERTS);
    for like in Like::all() {
        let outline = ModelShape::of_shape(like, None).unwrap();
        page.extend(experts(outline.info().spec(), like.name()).map(|line| line + "\n"));
    }
    page.push_str(FILES);
    page.extend(BlockFormat::ALL.map(|format| file_type(format) + "\n"));
    page + FILES_BEHIND
}

#[test]
fn the_page_of_models_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    if std::env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, page()).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, page(), "docs/models.md differs: run again with DEMASK_BLESS=1");
}
