//! Names that the format gives to the tensor of a role, the same for all families.

use demask_model::{LayerRole, Role};

/// Name of a role's tensor.
pub(super) fn tensor_name(role: Role) -> String {
    let (layer, role) = match role {
        Role::Embedding => return "token_embd.weight".to_owned(),
        Role::FinalNorm => return "output_norm.weight".to_owned(),
        Role::Head => return "output.weight".to_owned(),
        Role::Layer(layer, role) => (layer, role),
    };
    let part = match role {
        LayerRole::AttentionNorm => "attn_norm.weight",
        LayerRole::Query => "attn_q.weight",
        LayerRole::Key => "attn_k.weight",
        LayerRole::Value => "attn_v.weight",
        LayerRole::QueryBias => "attn_q.bias",
        LayerRole::KeyBias => "attn_k.bias",
        LayerRole::ValueBias => "attn_v.bias",
        LayerRole::QueryNorm => "attn_q_norm.weight",
        LayerRole::KeyNorm => "attn_k_norm.weight",
        LayerRole::Output => "attn_output.weight",
        LayerRole::MlpNorm => "ffn_norm.weight",
        LayerRole::Gate => "ffn_gate.weight",
        LayerRole::Up => "ffn_up.weight",
        LayerRole::Down => "ffn_down.weight",
        LayerRole::Router => "ffn_gate_inp.weight",
        LayerRole::RouterBias => "exp_probs_b.bias",
        LayerRole::ExpertGate(_) => "ffn_gate_exps.weight",
        LayerRole::ExpertUp(_) => "ffn_up_exps.weight",
        LayerRole::ExpertDown(_) => "ffn_down_exps.weight",
        LayerRole::SharedGate => "ffn_gate_shexp.weight",
        LayerRole::SharedUp => "ffn_up_shexp.weight",
        LayerRole::SharedDown => "ffn_down_shexp.weight",
    };
    format!("blk.{layer}.{part}")
}

/// Factors on the frequencies of Llama 3, as a tensor.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";
