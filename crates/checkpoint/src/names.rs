//! What each family calls the tensor of a role.

use demask_model::{Family, LayerRole, Role};

/// Name of a role's tensor in checkpoints as released.
pub(crate) fn tensor_name(family: Family, role: Role) -> String {
    match family {
        Family::Llada => llada(role),
        _ => hugging_face(role),
    }
}

/// LLaDA's names. The head and the down projection share their last part: only the whole name tells them apart.
fn llada(role: Role) -> String {
    let (layer, role) = match role {
        Role::Embedding => return "model.transformer.wte.weight".to_owned(),
        Role::FinalNorm => return "model.transformer.ln_f.weight".to_owned(),
        Role::Head => return "model.transformer.ff_out.weight".to_owned(),
        Role::Layer(layer, role) => (layer, role),
    };
    let part = match role {
        LayerRole::AttentionNorm => "attn_norm.weight",
        LayerRole::Query => "q_proj.weight",
        LayerRole::Key => "k_proj.weight",
        LayerRole::Value => "v_proj.weight",
        LayerRole::QueryBias => "q_proj.bias",
        LayerRole::KeyBias => "k_proj.bias",
        LayerRole::ValueBias => "v_proj.bias",
        LayerRole::QueryNorm => "q_norm.weight",
        LayerRole::KeyNorm => "k_norm.weight",
        LayerRole::Output => "attn_out.weight",
        LayerRole::MlpNorm => "ff_norm.weight",
        LayerRole::Gate => "ff_proj.weight",
        LayerRole::Up => "up_proj.weight",
        LayerRole::Down => "ff_out.weight",
    };
    format!("model.transformer.blocks.{layer}.{part}")
}

fn hugging_face(role: Role) -> String {
    let (layer, role) = match role {
        Role::Embedding => return "model.embed_tokens.weight".to_owned(),
        Role::FinalNorm => return "model.norm.weight".to_owned(),
        Role::Head => return "lm_head.weight".to_owned(),
        Role::Layer(layer, role) => (layer, role),
    };
    let part = match role {
        LayerRole::AttentionNorm => "input_layernorm.weight",
        LayerRole::Query => "self_attn.q_proj.weight",
        LayerRole::Key => "self_attn.k_proj.weight",
        LayerRole::Value => "self_attn.v_proj.weight",
        LayerRole::QueryBias => "self_attn.q_proj.bias",
        LayerRole::KeyBias => "self_attn.k_proj.bias",
        LayerRole::ValueBias => "self_attn.v_proj.bias",
        LayerRole::QueryNorm => "self_attn.q_norm.weight",
        LayerRole::KeyNorm => "self_attn.k_norm.weight",
        LayerRole::Output => "self_attn.o_proj.weight",
        LayerRole::MlpNorm => "post_attention_layernorm.weight",
        LayerRole::Gate => "mlp.gate_proj.weight",
        LayerRole::Up => "mlp.up_proj.weight",
        LayerRole::Down => "mlp.down_proj.weight",
    };
    format!("model.layers.{layer}.{part}")
}

/// The same name in checkpoints that were saved from the inner model, without its prefix.
pub(crate) fn without_prefix(name: &str) -> &str {
    name.strip_prefix("model.").unwrap_or(name)
}

/// Buffers that older tools saved although they are computed: nothing to say about them.
pub(crate) fn is_known_buffer(name: &str) -> bool {
    name.ends_with("rotary_emb.inv_freq")
        || name.ends_with("rotary_emb.cos_cached")
        || name.ends_with("rotary_emb.sin_cached")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_down_projection_of_llada_have_different_names() {
        assert_eq!(tensor_name(Family::Llada, Role::Head), "model.transformer.ff_out.weight");
        let down = tensor_name(Family::Llada, Role::Layer(3, LayerRole::Down));
        assert_eq!(down, "model.transformer.blocks.3.ff_out.weight");
        assert_eq!(without_prefix(&down), "transformer.blocks.3.ff_out.weight");
    }
}
