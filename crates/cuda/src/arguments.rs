//! Arguments of kernels: one structure each, the twin of the one of the same name in `kernels/arguments.cuh`.
//!
//! Counts that differ from step to step are read by the kernels from the device's copy of the launch, so that a recorded
//! graph serves every launch of its bucket: a grid is as large as the bucket, and blocks beyond the count leave at once.
//! "T" is the element type of products: f32 or bf16.

use demask_step::{ConfidenceOf, FilterOrder, HeadRequest, Sampling};

use crate::gpu::Address;

/// A structure that a kernel takes by value.
///
/// # Safety
/// The type is `repr(C)`, without padding, and has a twin in `kernels/arguments.cuh`.
pub unsafe trait Argument {
    /// The name of the twin.
    fn name(&self) -> &'static str;
    /// The structure's bytes.
    fn bytes(&self) -> &[u8];
}

/// Makes structures known as arguments.
macro_rules! arguments {
    ($($name:ident),* $(,)?) => {
        $(
            // SAFETY: `repr(C)`, and the twin is tested to lie in memory the same way.
            unsafe impl Argument for $name {
                fn name(&self) -> &'static str {
                    stringify!($name)
                }

                fn bytes(&self) -> &[u8] {
                    // SAFETY: the structure's own bytes; it is plain numbers.
                    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
                }
            }
        )*

        /// Names of all structures that kernels take.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

arguments!(
    EmbedArgs,
    NormaliseArgs,
    GemmArgs,
    HeadsArgs,
    AttendArgs,
    MarkArgs,
    IncrementArgs,
    RollArgs,
    CompareArgs,
    ChooseArgs,
    KeepArgs,
    CopyArgs,
    HeadInputArgs,
    HeadAnswerArgs,
    CeilingArgs,
);

/// Rows of the launch, on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct List {
    /// `u32[count]`: rows, ascending.
    pub rows: Address,
    /// `u32`: how many.
    pub count: Address,
}

/// Addresses of K, V and increments of slots. A slot is page times [`PAGE`](demask_tensor::PAGE) plus offset. In a
/// page's K/V memory a layer has K then V, each `T[kv_heads, PAGE, head_dim]`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Store {
    /// `u64[pages]`: address of each page's K/V.
    pub pages: Address,
    /// `u64[pages]`: address of each page's increments `f32[layers, PAGE, hidden]`, or 0.
    pub increments: Address,
    /// `u64[pages]`: address of each page's differences `f32[PAGE, hidden]`, or 0.
    pub residuals: Address,
    /// Number of layers.
    pub layers: u32,
    /// K/V heads.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Width of the residual stream.
    pub hidden: u32,
}

/// `embed_{f32,bf16,f16}` (type of the table): `stream[row] = table[ids[row]]` for all rows.
/// Grid: rows of the bucket. Threads: 256.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct EmbedArgs {
    /// `[vocabulary, hidden]`.
    pub table: Address,
    /// `u32[rows]`.
    pub ids: Address,
    /// `u32`: live rows.
    pub count: Address,
    /// `f32[rows, hidden]`.
    pub stream: Address,
    /// Width.
    pub hidden: u32,
    /// 0.
    pub unused: u32,
}

/// `normalise_{f32,bf16}`: `out[index] = T(rms_norm(stream[list[index]]) * weight)`, zeros from `hidden` to `stride`.
/// Grid: bucket of the list. Threads: 256.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct NormaliseArgs {
    /// Rows.
    pub list: List,
    /// `f32[rows, hidden]`.
    pub stream: Address,
    /// `f32[hidden]`.
    pub weight: Address,
    /// `T[bucket, stride]`.
    pub out: Address,
    /// Width.
    pub hidden: u32,
    /// Distance of rows in `out`, in elements: a multiple of 64.
    pub stride: u32,
    /// Added to the mean square.
    pub epsilon: f32,
    /// 0.
    pub unused: u32,
}

/// One weight matrix of a product.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct GemmPart {
    /// `[columns, depth]` in the type of the kernel: `f32`, `bf16`; for q8 `i8`, for q4 two numbers a byte: element
    /// `2 * i` in the low and `2 * i + 1` in the high nibble of byte `i`, both minus 8.
    pub weight: Address,
    /// q8 and q4: `f32[columns, depth / 32]`.
    pub scales: Address,
    /// `f32[columns]`, or null.
    pub bias: Address,
    /// See the kernel's end.
    pub out: Address,
    /// Outputs.
    pub columns: u32,
    /// Distance of rows of `out`, in elements.
    pub stride: u32,
}

/// `gemm_{f32,bf16,q8,q4}_{store,add,silu}_{columns}x{rows}`: products of compact inputs `T[rows, depth]`, which are the
/// list's from index `first` on, with up to three matrices. Inputs are bf16 for q8 and q4 (`gemm_{q8,q4}f_...`: f32 inputs,
/// products in f32). What an output is does not depend on the tile of columns and rows: one chain of sums over the depth,
/// ascending. `index` counts from the first input:
///
/// - `store`: `out f32[index, column] = sum + bias`.
/// - `add`: `out f32[rows[first + index], column] += sum + bias`: the residual stream.
/// - `silu`: matrix rows `2 * i` and `2 * i + 1` are gate and up: `out T[index, i] = T(silu(gate) * up)`; zeros from
///   `columns / 2` to `stride`, which is a multiple of 64.
///
/// Kernel and geometry: [`kernels::gemm::choose`](crate::kernels::gemm::choose).
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct GemmArgs {
    /// `T[bucket, depth]`.
    pub input: Address,
    /// `rows` is used by `add` alone; `count` bounds the rows.
    pub list: List,
    /// The matrices; those from `parts` on are not looked at.
    pub part: [GemmPart; 3],
    /// Number of matrices.
    pub parts: u32,
    /// Inputs, padded with zeros to a multiple of 64, in weights and input alike.
    pub depth: u32,
    /// First row of the list that `input` begins with.
    pub first: u32,
    /// Most rows of this launch, from `first` on.
    pub rows: u32,
}

/// Destinations of [`HeadsArgs`].
pub mod heads {
    /// `f32`, back to where it was read.
    pub const IN_PLACE: u32 = 0;
    /// `T[row, heads * head_dim]`: queries.
    pub const QUERIES: u32 = 1;
    /// K of the rows' slots.
    pub const KEYS: u32 = 2;
    /// V of the rows' slots.
    pub const VALUES: u32 = 3;
}

/// `heads_{f32,bf16}`: finishes projected heads: norm over each head (if there is one), rotation (if `half` is not 0),
/// rounding, and writes them where `target` says.
/// Grid: bucket of the list. Threads: 128.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct HeadsArgs {
    /// Rows.
    pub list: List,
    /// `f32[bucket, heads * head_dim]`, by index.
    pub projected: Address,
    /// `f32[head_dim]`, or null.
    pub norm: Address,
    /// `f32[positions, half]`.
    pub cos: Address,
    /// `f32[positions, half]`.
    pub sin: Address,
    /// `u32[rows]`.
    pub positions: Address,
    /// `u32[rows]`.
    pub slots: Address,
    /// `T[rows, heads * head_dim]`: queries.
    pub out: Address,
    /// K/V.
    pub store: Store,
    /// Heads.
    pub heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Half of how many numbers of a head are rotated: number `i` with number `i + half`. 0: none.
    pub half: u32,
    /// Epsilon of the norm.
    pub epsilon: f32,
    /// Layer, for K and V.
    pub layer: u32,
    /// One of [`heads`].
    pub target: u32,
}

/// A run of rows with one page table, on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct SegmentRows {
    /// First row.
    pub first: u32,
    /// Row after the last.
    pub end: u32,
    /// First entry of the page table in the launch's tables.
    pub table: u32,
    /// Entries.
    pub entries: u32,
}

/// `attend_f32_{narrow,wide}`, `attend_bf16_{narrow,wide}_{width}` (of the head, or less) and `attend_merge_{f32,bf16}`:
/// online softmax over pages in ascending order, in spans of [`SPAN`] positions from position 0 on that are put together in
/// ascending order. `narrow` writes the spans' parts to `partial` for the merge, `wide` puts them together itself, with the
/// same bits.
///
/// Kernels and geometry: [`kernels::attention::choose`](crate::kernels::attention::choose).
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct AttendArgs {
    /// Rows that have queries.
    pub list: List,
    /// `u32[rows]`: segment of each row.
    pub segment_of: Address,
    /// `SegmentRows[segments]`.
    pub segments: Address,
    /// `u32[...]`: page tables.
    pub tables: Address,
    /// `u32[rows]`: keys that each row sees.
    pub limits: Address,
    /// `T[rows, heads * head_dim]`.
    pub queries: Address,
    /// `T[bucket, stride]`, by index: attention's output, zeros from `heads * head_dim` on.
    pub out: Address,
    /// `f32[bucket, heads, spans, head_dim + 2]`: weighted sum, then its sum of weights, then the largest score.
    pub partial: Address,
    /// K/V.
    pub store: Store,
    /// Query heads.
    pub heads: u32,
    /// Layer.
    pub layer: u32,
    /// Distance of rows of `out`, in elements: a multiple of 64.
    pub stride: u32,
    /// Spans of the bucket: of its most keys.
    pub spans: u32,
    /// Factor of the scores: 1 / sqrt(head_dim).
    pub scale: f32,
    /// 0.
    pub unused: u32,
}

/// Positions of a span of attention.
pub const SPAN: usize = 256;

/// `mark`: `flags[row] = 1` for the list's rows, 0 for all others. One block. Threads: 1024.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct MarkArgs {
    /// Rows.
    pub list: List,
    /// `u32`: live rows.
    pub live: Address,
    /// `u32[rows]`.
    pub flags: Address,
}

/// `hold`: `increment = -x` for marked rows of the list (the held rows). `settle_held`: `increment += x` for them.
/// `settle_rest`, over the list of all rows: `x += increment` for rows that are not marked and have one.
/// Grid: bucket of the list. Threads: 256.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct IncrementArgs {
    /// Rows.
    pub list: List,
    /// `u32[rows]`.
    pub flags: Address,
    /// `u32[rows]`.
    pub slots: Address,
    /// `f32[rows, hidden]`.
    pub stream: Address,
    /// Increments.
    pub store: Store,
    /// Layer.
    pub layer: u32,
    /// 0.
    pub unused: u32,
}

/// One probe, on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Probe {
    /// Index of its first row among the probed rows.
    pub first: u32,
    /// Number of its rows.
    pub rows: u32,
    /// Number of its rows that are chosen.
    pub keep: u32,
    /// 1 for a random choice.
    pub random: u32,
    /// Key of the random choice.
    pub key: u64,
}

/// `roll`: scores of the rows of random probes. Grid: bucket of the probes. Threads: 256.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct RollArgs {
    /// `Probe[probes]`.
    pub probes: Address,
    /// `u32`: how many.
    pub count: Address,
    /// `u32[probed rows]`.
    pub probed: Address,
    /// `u32[rows]`.
    pub positions: Address,
    /// `f64[probed rows]`.
    pub scores: Address,
    /// Layer, which is mixed into the key.
    pub layer: u32,
    /// 0.
    pub unused: u32,
}

/// `compare_{f32,bf16}`: `scores[places[index]]` = cosine of `fresh[index]` with K or V of the row's slot.
/// Grid: bucket of the list. Threads: 128.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct CompareArgs {
    /// Rows that compare this tensor.
    pub list: List,
    /// `u32[count]`: their places among the probed rows.
    pub places: Address,
    /// `f32[bucket, kv_heads * head_dim]`.
    pub fresh: Address,
    /// `u32[rows]`.
    pub slots: Address,
    /// `f64[probed rows]`.
    pub scores: Address,
    /// K/V.
    pub store: Store,
    /// Layer.
    pub layer: u32,
    /// 0: K, 1: V.
    pub value: u32,
}

/// `choose`: the fixed rows and of each probe the `keep` rows of the lowest score, ties to the lowest row, all ascending,
/// become the computed rows. One block. Threads: 1024.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct ChooseArgs {
    /// Rows computed in any case.
    pub fixed: List,
    /// `Probe[probes]`.
    pub probes: Address,
    /// `u32`: how many.
    pub count: Address,
    /// `u32[probed rows]`.
    pub probed: Address,
    /// `f64[probed rows]`.
    pub scores: Address,
    /// `u32`: live rows.
    pub live: Address,
    /// `u32[rows]`: scratch.
    pub flags: Address,
    /// The result.
    pub computed: List,
}

/// `keep_slots`: copies K, V and (where both have them) increments of slots, all layers, and the differences: `copies` is
/// pairs `u32[count, 2]` of from and to, none of which is read and written. Grid: bucket of the copies, layers. Threads:
/// 128.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct KeepArgs {
    /// Pairs.
    pub copies: Address,
    /// `u32`: how many.
    pub count: Address,
    /// K/V and increments.
    pub store: Store,
    /// Bytes of an element of K and V.
    pub element: u32,
    /// 0.
    pub unused: u32,
}

/// `copy_pages`: the same of whole pages. Grid: bucket of the copies, layers. Threads: 256.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct CopyArgs {
    /// Pairs of pages.
    pub copies: Address,
    /// `u32`: how many.
    pub count: Address,
    /// K/V and increments.
    pub store: Store,
    /// Bytes of an element of K and V.
    pub element: u32,
    /// 0.
    pub unused: u32,
}

/// One row that the head reads, on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct HeadRowData {
    /// Row of the launch.
    pub row: u32,
    /// Index of its [`RequestData`].
    pub request: u32,
    /// Key of its noise.
    pub key: u64,
    /// Row that it is blended with, or `u32::MAX`: the stored difference.
    pub other: u32,
    /// Slot of the stored difference, or `u32::MAX`.
    pub slot: u32,
    /// Factor of the difference.
    pub scale: f32,
    /// Records whether it is blended at all.
    pub blended: u32,
    /// Index of its best tokens in the output.
    pub top: u32,
    /// Index of its judged tokens, in the list of tokens and in the output.
    pub judged: u32,
}

/// Request of a row: [`HeadRequest`] on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct RequestData {
    /// Index of its forbidden tokens in the list of tokens.
    pub forbid: u32,
    /// Number of its forbidden tokens.
    pub forbidden: u32,
    /// Index of its muted tokens in the list of tokens.
    pub mute: u32,
    /// Number of its muted tokens.
    pub muted: u32,
    /// See the request.
    pub temperature: f32,
    /// Filter: 0 for all.
    pub top_k: u32,
    /// Filter: 1 for all.
    pub top_p: f32,
    /// Filter: distance below the best logit; minus infinity for all.
    pub reach: f32,
    /// Records whether top-k comes first.
    pub top_k_first: u32,
    /// Speak of the tempered and filtered distribution.
    pub drawn: u32,
    /// Fill the margin.
    pub margin: u32,
    /// Fill the entropy.
    pub entropy: u32,
    /// Best tokens.
    pub top: u32,
    /// Judged tokens of a row.
    pub judge_width: u32,
    /// Tokens from here on are forbidden too.
    pub limit: u32,
}

impl RequestData {
    /// Converts a request whose lists begin at these indices.
    pub fn of(request: &HeadRequest, forbid: u32, mute: u32) -> Self {
        let Sampling { temperature, top_k, top_p, order, confidence, .. } = request.sampling;
        Self {
            forbid,
            forbidden: request.banned.len() as u32,
            mute,
            muted: request.zero_confidence.len() as u32,
            temperature,
            top_k,
            top_p,
            reach: request.sampling.reach(),
            top_k_first: u32::from(order == FilterOrder::TopKFirst),
            drawn: u32::from(confidence == ConfidenceOf::Drawn),
            margin: u32::from(request.margin),
            entropy: u32::from(request.entropy),
            top: request.top as u32,
            judge_width: request.score_width as u32,
            limit: request.limit.unwrap_or(u32::MAX),
        }
    }
}

/// `head_input_{f32,bf16}`: the final norm of the head rows, blended where asked, as `T[index, stride]`; see
/// [`BlendRows`](demask_tensor::BlendRows). Grid: rows. Threads: 256.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct HeadInputArgs {
    /// `HeadRowData[head rows]`.
    pub rows: Address,
    /// `u32`: how many in all.
    pub count: Address,
    /// `f32[rows, hidden]`.
    pub stream: Address,
    /// `f32[hidden]`.
    pub weight: Address,
    /// `T[most, stride]`.
    pub out: Address,
    /// Differences.
    pub store: Store,
    /// First head row.
    pub first: u32,
    /// Distance of rows of `out`.
    pub stride: u32,
    /// Epsilon of the norm.
    pub epsilon: f32,
    /// 0.
    pub unused: u32,
}

/// `head_answer`: computes the requested answers of rows from their logits, which it changes (forbidden and muted
/// tokens become minus infinity). Grid: rows. Threads: as [`head_answer`](crate::kernels::head::head_answer) says.
/// Scratch of a row: `[vocabulary]` pairs of 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct HeadAnswerArgs {
    /// `HeadRowData[head rows]`.
    pub rows: Address,
    /// `u32`: how many in all.
    pub count: Address,
    /// `RequestData[requests]`.
    pub requests: Address,
    /// `u32[...]`: forbidden, muted and judged tokens.
    pub lists: Address,
    /// `f32[most, vocabulary]`.
    pub logits: Address,
    /// `[most, vocabulary]` of 8 bytes.
    pub scratch: Address,
    /// `u32[head rows]`.
    pub tokens: Address,
    /// `f32[head rows]`.
    pub confidence: Address,
    /// `f32[head rows]`.
    pub margin: Address,
    /// `f32[head rows]`.
    pub entropy: Address,
    /// Pairs of `u32` and `f32`.
    pub top: Address,
    /// Triples of `u32`, `f32`, `f32`.
    pub judged: Address,
    /// First head row.
    pub first: u32,
    /// Logits of a row.
    pub vocabulary: u32,
}

/// `ceiling_read`: adds all words of the memory to `out u32`. `ceiling_{f32,bf16}`: `rounds` rounds of products on
/// registers; each thread writes its sums to `out f32[threads of the grid]`. Threads: up to 512.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct CeilingArgs {
    /// Memory that is read: 16 bytes times `quads`; for products in f32 the factor.
    pub memory: Address,
    /// Number of quads that are read.
    pub quads: u64,
    /// The result.
    pub out: Address,
    /// Number of multiplications.
    pub rounds: u32,
    /// 0.
    pub unused: u32,
}
