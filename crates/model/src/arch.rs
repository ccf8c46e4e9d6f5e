//! Differences between model families, as data.

use demask_step::{BlockRules, Mask};
use demask_tensor::{ExpertShape, RouterRule};

/// Description of an architecture: everything that the forward pass needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ArchSpec {
    /// Name of the family, for messages.
    pub family: &'static str,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// K/V heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even. `heads * head_dim` need not be `hidden`.
    pub head_dim: usize,
    /// Width of the MLP of layers without experts.
    pub ffn: usize,
    /// Experts of the other layers; none: no layer has any.
    pub experts: Option<Experts>,
    /// Rows of the embedding and of the head.
    pub vocabulary: usize,
    /// Longest canvas the model knows.
    pub context: usize,
    /// Rotation of q and k.
    pub rope: Rope,
    /// Epsilon of all norms.
    pub norm_epsilon: f32,
    /// Sets whether q, k and v have biases.
    pub qkv_bias: bool,
    /// Sets whether each head of q and k is normed before the rotation.
    pub head_norms: bool,
    /// Sets whether the head is the embedding table.
    pub tied: bool,
    /// Attention mask of the training.
    pub attention: Mask,
    /// Row `p - shift` predicts position `p` (row 0 predicts position 0): 1 for Dream and for causal models, else 0.
    pub shift: usize,
    /// Rules for its blocks, if it decodes block by block.
    pub blocks: BlockRules,
    /// Factor of queries after the rotation, by their position.
    pub query_scale: Option<QueryScale>,
}

/// Layers of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct Experts {
    /// Shape of each layer that has them.
    pub shape: ExpertShape,
    /// Rule by which a row chooses.
    pub rule: RouterRule,
    /// Sets whether a bias is added to scores for the choice.
    pub biased: bool,
    /// Layers that have one MLP of [`ArchSpec::ffn`] for all rows instead, ascending.
    pub dense: Vec<usize>,
}

/// Part of a layer after attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mlp<'a> {
    /// One MLP for all rows.
    Dense {
        /// Width of the layer.
        ffn: usize,
    },
    /// A router and its experts.
    Experts(&'a Experts),
}

impl Mlp<'_> {
    /// Returns the operations that a row costs, a multiplication and an addition counted as two.
    pub(crate) fn operations(self, hidden: usize) -> f64 {
        let hidden = hidden as f64;
        match self {
            Self::Dense { ffn } => 6.0 * hidden * ffn as f64,
            Self::Experts(Experts { shape, .. }) => {
                let width = shape.per_row * shape.ffn + shape.shared_ffn;
                6.0 * hidden * width as f64 + 2.0 * hidden * shape.count as f64
            }
        }
    }
}

/// A factor of rotated queries that grows with the position: `1 + beta * ln(1 + floor(position / original_context))`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueryScale {
    /// Rate of growth.
    pub beta: f64,
    /// Positions before which it is 1.
    pub original_context: f64,
}

impl QueryScale {
    /// Returns the factor at a position.
    pub fn at(&self, position: usize) -> f32 {
        let step = (position as f64 / self.original_context).floor();
        (1.0 + self.beta * step.ln_1p()) as f32
    }
}

/// Rotary position embedding, half rotation (pairs `i` and `i + rotated / 2`).
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Leading dimensions of each head that are rotated.
    pub rotated: usize,
    /// Records whether cos and sin stay in f32 when the model runs in bf16 (LLaDA); the others round them to bf16, as
    /// their official code does.
    pub full_precision: bool,
    /// Frequency scaling.
    pub scaling: RopeScaling,
}

/// Scaling of frequencies for longer contexts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// Llama 3's: low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low` are divided.
        low: f64,
        /// Wavelengths below `original_context / high` are kept.
        high: f64,
        /// Context length before scaling.
        original_context: f64,
    },
    /// All positions divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// YaRN: of slow dimensions the frequency divided by `factor`, of fast ones kept, a ramp between.
    Yarn {
        /// Divisor of slow frequencies.
        factor: f64,
        /// Context length before scaling.
        original_context: f64,
        /// Turns within the original context from which on a dimension is fast.
        fast: f64,
        /// Turns below which it is slow.
        slow: f64,
        /// Records whether the ends of the ramp are whole dimensions.
        whole: bool,
        /// Factor of cosines and sines.
        amplitude: f64,
    },
}

impl Rope {
    /// Inverse frequencies, `[rotated / 2]`, computed as the official code does: in f32.
    pub fn inverse_frequencies(&self) -> Vec<f32> {
        let half = self.rotated / 2;
        let plain = |i| 1.0 / (self.theta as f32).powf(2.0 * i as f32 / self.rotated as f32);
        (0..half).map(|i| self.scale(i, plain(i))).collect()
    }

    /// Factor of cosines and sines.
    pub fn amplitude(&self) -> f32 {
        if let RopeScaling::Yarn { amplitude, .. } = self.scaling { amplitude as f32 } else { 1.0 }
    }

    /// The dimension, as a real number, that turns so often within a context.
    fn dimension(&self, turns: f64, context: f64) -> f64 {
        self.rotated as f64 * (context / (turns * std::f64::consts::TAU)).ln() / (2.0 * self.theta.ln())
    }

    fn scale(&self, index: usize, frequency: f32) -> f32 {
        match self.scaling {
            RopeScaling::Yarn { factor, original_context, fast, slow, whole, .. } => {
                let ends = [self.dimension(fast, original_context), self.dimension(slow, original_context)];
                let [low, high] = if whole { [ends[0].floor(), ends[1].ceil()] } else { ends };
                let (low, high) = (low.max(0.0), high.min(self.rotated as f64 - 1.0));
                let high = if low == high { high + 0.001 } else { high };
                let ramp = ((index as f64 - low) / (high - low)).clamp(0.0, 1.0) as f32;
                frequency * (1.0 - ramp) + frequency / factor as f32 * ramp
            }
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor as f32,
            RopeScaling::Llama3 { factor, low, high, original_context } => {
                let wavelength = 2.0 * std::f64::consts::PI / f64::from(frequency);
                if wavelength < original_context / high {
                    return frequency;
                }
                if wavelength > original_context / low {
                    return frequency / factor as f32;
                }
                let smooth = (original_context / wavelength - low) / (high - low);
                let frequency = f64::from(frequency);
                ((1.0 - smooth) * frequency / factor + smooth * frequency) as f32
            }
        }
    }
}

impl ArchSpec {
    /// Width of all query heads.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all K (or V) heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Part of a layer after attention.
    pub fn mlp(&self, layer: usize) -> Mlp<'_> {
        match &self.experts {
            Some(experts) if experts.dense.binary_search(&layer).is_err() => Mlp::Experts(experts),
            _ => Mlp::Dense { ffn: self.ffn },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LLaDA-8B as released.
    fn llada_8b() -> ArchSpec {
        ArchSpec {
            family: "LLaDA",
            hidden: 4096,
            layers: 32,
            heads: 32,
            kv_heads: 32,
            head_dim: 128,
            ffn: 12288,
            experts: None,
            vocabulary: 126_464,
            context: 4096,
            rope: Rope { theta: 5e5, rotated: 128, full_precision: true, scaling: RopeScaling::None },
            norm_epsilon: 1e-5,
            qkv_bias: false,
            head_norms: false,
            tied: false,
            attention: Mask::Full,
            shift: 0,
            blocks: BlockRules::default(),
            query_scale: None,
        }
    }

    #[test]
    fn parameter_counts_are_those_of_the_released_models() {
        let llada = llada_8b();
        assert_eq!(llada.parameters(), 8_015_581_184);
        assert_eq!(crate::expected_tensors(&llada).len(), 291);
        let dream = ArchSpec {
            family: "Dream",
            hidden: 3584,
            layers: 28,
            heads: 28,
            kv_heads: 4,
            ffn: 18944,
            vocabulary: 152_064,
            qkv_bias: true,
            shift: 1,
            ..llada.clone()
        };
        assert_eq!(dream.parameters(), 7_615_616_512);
        let sdar = ArchSpec {
            family: "SDAR",
            hidden: 2560,
            layers: 36,
            kv_heads: 8,
            ffn: 9728,
            vocabulary: 151_936,
            head_norms: true,
            attention: Mask::blocks(4),
            ..llada.clone()
        };
        assert_eq!(sdar.parameters(), 4_411_424_256);
        assert_eq!(crate::expected_tensors(&sdar).len(), 399);
        let qwen = ArchSpec {
            family: "Qwen2",
            hidden: 1536,
            layers: 28,
            heads: 12,
            kv_heads: 2,
            ffn: 8960,
            vocabulary: 151_936,
            qkv_bias: true,
            tied: true,
            attention: Mask::Causal,
            ..llada
        };
        assert_eq!(qwen.parameters(), 1_543_714_304);
        assert_eq!(crate::expected_tensors(&qwen).len(), 338);
    }

    #[test]
    fn llama3_scaling_keeps_high_and_divides_low_frequencies() {
        let scaling = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original_context: 8192.0 };
        let plain = Rope { theta: 5e5, rotated: 128, full_precision: false, scaling: RopeScaling::None };
        let scaled = Rope { scaling, ..plain.clone() };
        let (plain, scaled) = (plain.inverse_frequencies(), scaled.inverse_frequencies());
        assert_eq!(plain[0], scaled[0]);
        assert!((plain[63] / scaled[63] - 8.0).abs() < 1e-5);
        assert!(scaled.windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn yarn_keeps_fast_and_divides_slow_dimensions() {
        let scaling = RopeScaling::Yarn {
            factor: 16.0,
            original_context: 16384.0,
            fast: 32.0,
            slow: 1.0,
            whole: true,
            amplitude: 1.0,
        };
        let plain = Rope { theta: 1e6, rotated: 128, full_precision: false, scaling: RopeScaling::None };
        let scaled = Rope { scaling, ..plain.clone() };
        let (plain, scaled) = (plain.inverse_frequencies(), scaled.inverse_frequencies());
        // dim(32) = 20.4 and dim(1) = 36.4: the ramp lies between 20 and 37.
        assert_eq!(plain[..21], scaled[..21]);
        assert!(plain[21] > scaled[21]);
        assert!((plain[37] / scaled[37] - 16.0).abs() < 1e-3 && (plain[36] / scaled[36] - 16.0).abs() > 0.1);
    }

    #[test]
    fn queries_grow_behind_the_original_context() {
        let scale = QueryScale { beta: 0.1, original_context: 16384.0 };
        assert_eq!([0, 16383].map(|position| scale.at(position)), [1.0; 2]);
        assert!((f64::from(scale.at(16384)) - (1.0 + 0.1 * 2f64.ln())).abs() < 1e-7);
    }
}
