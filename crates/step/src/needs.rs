//! Needs of a sequence, and costs of its steps.

/// Upper bounds of a sequence's needs over all of its steps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SequenceLimits {
    /// Slots: the canvas length.
    pub positions: usize,
    /// Leading positions whose memory is taken when the sequence is opened; the rest is taken by
    /// [`grow`](crate::Network::grow), before a step that sees more. None: all of them.
    pub opens_with: Option<usize>,
    /// Live positions of one step times its lanes.
    pub rows: usize,
    /// Rows of all sequences that run in one forward with this one, itself included; less than `rows` counts as `rows`.
    pub group_rows: usize,
    /// Drafts of one step; 0 if only the canvas ever runs.
    pub drafts: usize,
    /// Distance between the first and the last live position of a step with drafts, plus 1.
    pub draft_span: usize,
    /// Rows of one step that the head computes, lanes included.
    pub predictions: usize,
    /// Records whether layers are ever computed partly: increments are stored for each position.
    pub increments: bool,
    /// Records whether [`BlendWith::Stored`](crate::BlendWith::Stored) is ever used.
    pub residual: bool,
    /// Largest [`HeadRequest::top`](crate::HeadRequest::top).
    pub top: usize,
    /// Largest [`HeadRequest::score_width`](crate::HeadRequest::score_width).
    pub score_width: usize,
    /// Records whether logits are ever asked for.
    pub logits: bool,
}

impl SequenceLimits {
    /// Returns the leading positions whose memory is taken when the sequence is opened.
    pub fn opening(&self) -> usize {
        self.opens_with.map_or(self.positions, |positions| positions.min(self.positions))
    }
}

/// Cost of a step, or of a sum of steps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Live rows, lanes included.
    pub rows: u64,
    /// Rows that ran attention and MLP, averaged over layers. Sums are rounded where they are shown, once.
    pub computed_rows: f64,
    /// Rows that the head answered.
    pub head_rows: u64,
    /// Floating point operations by formula, from the rows, keys and head rows really run.
    pub operations: Operations,
}

impl Cost {
    /// Returns all floating point operations.
    pub fn flops(&self) -> f64 {
        self.operations.total()
    }
}

/// Floating point operations of the matrix products and of attention (specs/caches.md#7), by module.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Operations {
    /// Products that make Q, K and V, those of compared rows included, and the product after attention.
    pub projections: f64,
    /// Scores of attention, and sums of values by them.
    pub attention: f64,
    /// Products of the MLPs.
    pub mlp: f64,
    /// Logits.
    pub head: f64,
}

impl Operations {
    /// Returns their sum.
    pub fn total(&self) -> f64 {
        self.projections + self.attention + self.mlp + self.head
    }
}

impl std::ops::AddAssign for Operations {
    fn add_assign(&mut self, other: Self) {
        self.projections += other.projections;
        self.attention += other.attention;
        self.mlp += other.mlp;
        self.head += other.head;
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.computed_rows += other.computed_rows;
        self.head_rows += other.head_rows;
        self.operations += other.operations;
    }
}
