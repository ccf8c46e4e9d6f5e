//! Layers of experts as data: their shape, and the rule by which a row chooses among them.

/// Shape of a layer of experts, the same in each such layer of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertShape {
    /// Experts of a layer.
    pub count: usize,
    /// Experts that a row takes, at least 1 and at most `count`.
    pub per_row: usize,
    /// Width of an expert's MLP.
    pub ffn: usize,
    /// Width of the MLP that every row takes beside them; 0: there is none.
    pub shared_ffn: usize,
}

/// How a row chooses its experts, and what they weigh (specs/families.md#6).
///
/// Scores are f32, and so is everything after them. Of experts with the same score the one with the lower number is
/// chosen; so is the lower one of two groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouterRule {
    /// Function of a score.
    pub score: Score,
    /// Groups of experts of which only some are looked at; none: all experts are.
    pub groups: Option<ExpertGroups>,
    /// Use of the chosen experts' scores.
    pub share: Share,
    /// What weights are multiplied with in the end.
    pub scale: f32,
}

/// Rule of a router from logits to weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Score {
    /// Softmax over all experts.
    Softmax,
    /// `1 / (1 + exp(-logit))` of each expert.
    Sigmoid,
}

/// Neighbouring experts in groups of the same size: a group is worth the sum of its two best scores, biases included, and
/// no expert outside of the best groups is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Groups; divides the number of experts, two of which are in each group at least.
    pub count: usize,
    /// Groups that are kept.
    pub selected: usize,
}

/// Use of the scores of a row's experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Share {
    /// Weights as they are.
    Whole,
    /// Each divided by their sum and this epsilon, which may be 0.
    OfChosen(f32),
}
