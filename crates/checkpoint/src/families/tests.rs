use std::collections::BTreeSet;

use demask_model::{LayerRole, Role, expected_tensors};
use demask_step::Mask;
use serde_json::{Value, json};

use super::*;
use crate::{
    CheckpointError, Message, ModelConfig, RenderOptions, Rendered, TokenIds, config, fields::Fields, special::Sources,
};

/// Family that is in no list: normed heads, full attention, names of its own for two tensors.
const TOY: Family = Family {
    name: "Toy",
    architecture: "ToyModel",
    model_type: "toy",
    tensor_name: |role| match role {
        Role::Embedding => "model.words.weight".to_owned(),
        Role::Layer(layer, LayerRole::Down) => format!("model.layers.{layer}.mlp.last.weight"),
        other => (transformers::CAUSAL.tensor_name)(other),
    },
    attention: Mask::Full,
    shift: 0,
    head_norms: true,
    vocabularies: &[Vocabulary { rows: 96, mask: Some(90), eos: 91, turn_end: 92, bos: 93 }],
    prompt: |messages, _| {
        let mut prompt = Rendered::default();
        for message in messages {
            prompt.quote(&message.content);
            prompt.write("|");
        }
        prompt
    },
    ..transformers::CAUSAL
};

fn toy_config() -> Value {
    json!({
        "architectures": ["ToyModel"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4,
    })
}

fn parse_text(config: &Value, families: &[&'static Family]) -> Result<ModelConfig, CheckpointError> {
    config::read(&Fields::parse(config.to_string().as_bytes(), "config.json")?, families, None, Evidence::default())
}

#[test]
fn a_family_is_no_more_than_its_constant() {
    let ModelConfig { family, spec, .. } = parse_text(&toy_config(), &[&TOY]).unwrap();
    assert_eq!((family, spec.family), (&TOY, "Toy"));
    assert_eq!((spec.attention, spec.shift, spec.head_norms, spec.qkv_bias), (Mask::Full, 0, true, false));
    let names: BTreeSet<_> = expected_tensors(&spec).iter().map(|tensor| (family.tensor_name)(tensor.role)).collect();
    assert_eq!(names.len(), expected_tensors(&spec).len());
    assert!(names.contains("model.words.weight") && names.contains("model.layers.1.mlp.last.weight"));
    let said = TokenIds::default();
    let sources =
        Sources { family, spec: &spec, config: &said, generation: &said, tokenizer: None, chosen: None, file: "" };
    let special = sources.resolve(&mut Vec::new()).unwrap();
    assert_eq!((special.mask, special.stop), (Some(90), vec![91, 92]));
    let prompt = (family.prompt)(&["Hi", "there"].map(|text| Message::new("user", text)), &RenderOptions::default());
    assert_eq!(prompt.text, "Hi|there|");
}

#[test]
fn a_family_that_is_not_in_the_list_is_refused_with_those_that_are() {
    let error = parse_text(&toy_config(), FAMILIES).unwrap_err().to_string();
    let known = "LLaDAModelLM, DreamModel, SDARForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, LlamaForCausalLM, \
                 StableDiffcoderForCausalLM, A2DQwen2LMHeadModel, A2DQwen3LMHeadModel, Fast_dLLM_QwenForCausalLM, \
                 NemotronLabsDiffusionModel, LLaDAMoEModelLM, SDARMoeForCausalLM, LLaDA2MoeModelLM, RND1LM";
    assert!(error.contains("\"ToyModel\"") && error.contains(known), "{error}");
}

#[test]
fn no_two_families_of_the_list_answer_to_one_name() {
    let names: [fn(&Family) -> &str; 4] = [
        |family| family.name,
        |family| family.architecture,
        |family| family.model_type,
        |family| family.gguf.architecture,
    ];
    for name in names {
        let named = || FAMILIES.iter().map(|family| name(family)).filter(|name| !name.is_empty());
        assert_eq!(named().collect::<BTreeSet<_>>().len(), named().count());
    }
    assert!(FAMILIES.iter().all(|family| Family::named(family.name) == Some(family)));
}
