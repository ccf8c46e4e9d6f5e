//! Names that other programs have for settings and commands, and what to type here: people try the name that they know first,
//! and the nearest of our own by its letters is seldom what they mean.

use std::fmt;

use crate::names::same;

/// A name of other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// Ways to type it: with underscores, or as a flag of letters after one hyphen.
    pub names: &'static [&'static str],
    /// Programs that have it.
    pub of: &'static str,
    /// What to do here; names of settings stand in backticks.
    pub here: &'static str,
}

/// The text after the name that was found: `, a name of ollama: use ...`.
impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a name of {}: {}", self.of, self.here)
    }
}

const fn foreign(names: &'static [&'static str], of: &'static str, here: &'static str) -> Foreign {
    Foreign { names, of, here }
}

/// Names of settings.
pub const SETTINGS: &[Foreign] = &[
    // Lengths.
    foreign(&["n_predict", "predict"], "llama.cpp", "use `max_tokens`"),
    foreign(&["num_predict"], "ollama", "use `max_tokens`"),
    foreign(&["max_new_tokens"], "transformers", "use `max_tokens`"),
    foreign(&["max_completion_tokens", "max_output_tokens"], "OpenAI", "use `max_tokens`"),
    foreign(&["gen_len", "answer_length"], "research code", "use `gen_length`"),
    foreign(
        &["ctx_size", "-c", "n_ctx", "num_ctx", "max_model_len", "max_seq_len", "context_length"],
        "llama.cpp, ollama and vLLM",
        "omit it, the context is the model's own; `max_tokens` bounds an answer",
    ),
    foreign(
        &["keep", "context_shift", "no_context_shift"],
        "llama.cpp",
        "omit it, what exceeds the context is refused",
    ),
    // The model.
    foreign(
        &["hf_repo", "-hf", "-hfr", "hf_file", "-hff", "model_url", "-mu"],
        "llama.cpp",
        "use `model` ORG/NAME, ORG/NAME:Q4_K_M or ORG/NAME/FILE.gguf",
    ),
    foreign(&["hf_token", "-hft"], "llama.cpp and vLLM", "set the variable HF_TOKEN"),
    foreign(&["revision"], "vLLM", "use `model` ORG/NAME@REVISION"),
    foreign(&["download_dir"], "vLLM", "set the variable HF_HUB_CACHE"),
    foreign(&["lora", "lora_scaled", "lora_modules", "enable_lora", "adapters"], "llama.cpp and vLLM", "use `adapter`"),
    foreign(
        &["model_draft", "-md", "draft", "draft_max", "speculative_model", "speculative_config"],
        "llama.cpp and vLLM",
        "use `decoder` guided with `guide`, or `decoder` freedave, which drafts without a second model",
    ),
    foreign(&["trust_remote_code"], "vLLM and transformers", "omit it, no code of a model's folder is ever run"),
    foreign(
        &["chat_template", "chat_template_file", "jinja", "no_jinja"],
        "llama.cpp and vLLM",
        "omit it, the model's own template is used",
    ),
    foreign(&["tokenizer", "tokenizer_mode"], "vLLM", "omit it, the model's own tokenizer is used"),
    // Device and memory.
    foreign(
        &["n_gpu_layers", "gpu_layers", "-ngl", "num_gpu", "main_gpu", "-mg", "-dev"],
        "llama.cpp and ollama",
        "use `device`: all layers are on one",
    ),
    foreign(
        &["tensor_parallel_size", "-tp", "pipeline_parallel_size", "-pp", "tensor_split", "-ts", "split_mode", "-sm"],
        "vLLM and llama.cpp",
        "omit it, a model is on one device",
    ),
    foreign(&["quantization", "load_in_8bit", "load_in_4bit"], "vLLM and transformers", "use `quantize` q8 or q4"),
    foreign(
        &["cache_type_k", "-ctk", "cache_type_v", "-ctv", "kv_cache_dtype"],
        "llama.cpp and vLLM",
        "omit it, the K/V has the numbers that the model computes with",
    ),
    foreign(&["num_thread", "threads_batch", "-tb", "n_threads"], "ollama and llama.cpp", "use `threads`"),
    foreign(
        &["flash_attn", "-fa", "batch_size", "-b", "ubatch_size", "-ub", "cont_batching", "-cb", "numa"],
        "llama.cpp",
        "omit it, the engine chooses",
    ),
    foreign(
        &["mlock", "no_mmap", "mmap", "use_mmap"],
        "llama.cpp and ollama",
        "omit it, weights are packed into memory at load",
    ),
    foreign(&["gpu_memory_utilization"], "vLLM", "omit it, memory is taken as answers need it"),
    foreign(
        &["enable_prefix_caching", "no_enable_prefix_caching", "cache_prompt", "cache_reuse"],
        "vLLM and llama.cpp",
        "use `prefix_cache`, which is on by default",
    ),
    foreign(
        &["parallel", "-np", "num_parallel", "max_num_seqs", "max_num_batched_tokens"],
        "llama.cpp, ollama and vLLM",
        "omit it, as many answers are made at a time as memory holds; `max_queue` bounds them",
    ),
    foreign(&["keep_alive"], "ollama", "omit it, a server keeps its model"),
    // Prompts.
    foreign(&["system_prompt", "-sys", "system_message"], "llama.cpp", "use `system`"),
    foreign(&["file", "-f"], "llama.cpp", "use `prompt_file`"),
    foreign(&["conversation", "-cnv", "interactive", "-i", "interactive_first"], "llama.cpp", "use the command chat"),
    foreign(&["single_turn", "-st", "no_conversation", "-no-cnv"], "llama.cpp", "use the command generate"),
    foreign(&["stream", "no_stream"], "OpenAI and ollama", "omit it, text is shown as it settles"),
    foreign(&["reverse_prompt", "-r", "stop_sequences", "stop_strings"], "llama.cpp and transformers", "use `stop`"),
    // Sampling.
    foreign(&["temp"], "llama.cpp", "use `temperature`"),
    foreign(&["do_sample"], "transformers", "use `temperature`: 0 takes the most probable tokens"),
    foreign(&["-s", "rng_seed", "sampling_seed"], "llama.cpp", "use `seed`"),
    foreign(
        &["repeat_penalty", "repeat_last_n", "dry_multiplier", "no_repeat_ngram_size"],
        "llama.cpp and ollama",
        "use `repetition_penalty`, `frequency_penalty` or `presence_penalty`",
    ),
    foreign(
        &["typical", "typical_p", "mirostat", "xtc_probability", "top_n_sigma", "samplers", "dynatemp_range"],
        "llama.cpp",
        "omit it, `temperature`, `top_p`, `top_k` and `min_p` are what there is",
    ),
    foreign(
        &["num_beams", "use_beam_search", "best_of"],
        "transformers and vLLM",
        "omit it, beams are not implemented",
    ),
    foreign(
        &["json_schema_file", "response_format", "guided_json", "format", "structured_outputs"],
        "llama.cpp, ollama and OpenAI",
        "use `json_schema`",
    ),
    foreign(&["guided_regex"], "vLLM", "use `regex`"),
    foreign(&["guided_choice"], "vLLM", "use `choice`"),
    foreign(&["grammar", "grammar_file"], "llama.cpp", "use `json_schema` or `regex`, grammars are not implemented"),
    foreign(&["logprobs", "n_probs"], "OpenAI and llama.cpp", "use `top_logprobs`"),
    // Diffusion.
    foreign(
        &["threshold", "confidence_threshold"],
        "Fast-dLLM and dInfer",
        "use `decoder` threshold:tau=0.9 with the confidence that you want",
    ),
    foreign(&["diffusion_steps", "num_steps", "denoising_steps"], "research code", "use `steps`"),
    foreign(&["block_size", "bd_size", "small_block_size"], "Fast-dLLM", "use `block_length`"),
    foreign(&["alg", "diffusion_algorithm"], "Dream and llama.cpp", "use `remasking`"),
    foreign(&["cfg", "guidance_scale"], "LLaDA", "use `cfg_scale`"),
    foreign(&["use_cache", "dual_cache"], "Fast-dLLM", "use `cache`: prefix, dual or none"),
    foreign(&["diffusion_visual"], "llama.cpp", "use `watch`"),
    // A server.
    foreign(&["alias", "-a"], "llama.cpp", "use `served_model_name`"),
    foreign(&["api_key"], "llama.cpp and vLLM", "use `api_key_file`, or set the variable DEMASK_API_KEY"),
    foreign(
        &["ssl_key_file", "ssl_cert_file", "ssl_keyfile", "ssl_certfile"],
        "llama.cpp and vLLM",
        "omit it, encryption belongs to a proxy",
    ),
    foreign(&["no_webui"], "llama.cpp", "use `no_ui`"),
    foreign(&["allowed_origins", "allow_origins"], "vLLM", "use `cors_origin`"),
    foreign(&["metrics", "slots", "props", "endpoint_metrics"], "llama.cpp", "omit it, /metrics is always there"),
];

/// Names of commands.
pub const COMMANDS: &[Foreign] = &[
    foreign(
        &["run"],
        "ollama",
        "use demask chat --model MODEL to talk, demask generate --model MODEL \"PROMPT\" for one answer",
    ),
    foreign(
        &["complete", "completion", "ask", "prompt", "predict"],
        "other programs",
        "use demask generate \"PROMPT\"",
    ),
    foreign(&["server", "start", "up"], "other programs", "use demask serve --model MODEL"),
    foreign(&["ls", "models"], "other programs", "use demask list"),
    foreign(&["ps"], "ollama", "a server says which model it has: GET /v1/models"),
    foreign(&["show", "info"], "ollama", "use demask inspect MODEL"),
    foreign(
        &["rm", "remove", "delete"],
        "ollama",
        "delete the model's folder in the cache, which demask pull and list name",
    ),
    foreign(&["stop"], "ollama", "end demask serve with Ctrl-C or SIGTERM"),
    foreign(&["create", "cp", "push"], "ollama", "--model takes a folder or a GGUF file as it is"),
    foreign(&["download", "get", "fetch", "install"], "other programs", "use demask pull ORG/NAME"),
    foreign(&["quantize", "convert"], "llama.cpp", "--quantize q8 or q4 does it when a model is loaded"),
    foreign(&["perplexity"], "llama.cpp", "use demask-lab eval"),
    foreign(&["version"], "other programs", "use --version"),
];

/// Returns the setting of other programs that a flag or a key names; flags of letters after one hyphen with that hyphen.
pub fn setting(name: &str) -> Option<Foreign> {
    find(SETTINGS, name.strip_prefix("--").unwrap_or(name))
}

/// Returns the command of other programs that is meant.
pub fn command(name: &str) -> Option<Foreign> {
    find(COMMANDS, name)
}

fn find(table: &[Foreign], name: &str) -> Option<Foreign> {
    // Letters behind one hyphen are written in one way.
    let is_it = |other: &&str| if other.starts_with('-') { *other == name } else { same(other, name) };
    table.iter().find(|foreign| foreign.names.iter().any(is_it)).copied()
}

/// Returns the first flag of several letters after one hyphen among arguments, such as `-ngl`: read letter by letter it would be
/// other flags.
pub fn flag_of_letters<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Option<(&'a str, Foreign)> {
    let flags = arguments.into_iter().take_while(|argument| *argument != "--");
    let several = |argument: &&str| argument.len() > 2 && argument.starts_with('-') && !argument.starts_with("--");
    flags.filter(several).find_map(|argument| Some((argument, find(SETTINGS, argument)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_there_once_and_each_advice_is_a_sentence_of_one_line() {
        for table in [SETTINGS, COMMANDS] {
            let mut names: Vec<_> = table.iter().flat_map(|foreign| foreign.names).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
            for foreign in table {
                let told = foreign.to_string();
                assert!(told.len() <= 160 && !told.contains('\n') && !told.ends_with('.'), "{told}");
                assert_eq!(foreign.here.matches('`').count() % 2, 0, "{told}");
            }
        }
    }

    #[test]
    fn names_are_found_as_they_are_typed() {
        let here = |name: &str| setting(name).map(|foreign| foreign.here);
        assert_eq!(here("--n-predict"), Some("use `max_tokens`"));
        assert_eq!(here("Max_New-Tokens"), Some("use `max_tokens`"));
        assert!(here("-c").is_some() && here("c").is_none() && here("-C").is_none());
        assert_eq!(command("run").map(|foreign| foreign.of), Some("ollama"));
        assert_eq!(here("temperature"), None);
    }

    #[test]
    fn letters_behind_one_hyphen_are_no_cluster_of_flags() {
        let found = |arguments: &[&'static str]| flag_of_letters(arguments.iter().copied()).map(|(flag, _)| flag);
        assert_eq!(found(&["chat", "-ngl", "99"]), Some("-ngl"));
        assert_eq!(found(&["chat", "-qv", "-c", "--ngl", "-5"]), None);
        assert_eq!(found(&["generate", "--", "-ngl"]), None);
    }
}
