//! Forms of the prompts that released models write, for checkpoints that came without their template.

use crate::{Message, RenderOptions, Rendered};

/// Form of LLaDA and Llama 3: a header before each turn, its end after it.
pub(super) fn headers(start: &str, messages: &[Message], options: &RenderOptions) -> Rendered {
    let mut prompt = Rendered::default();
    prompt.write(start);
    for Message { role, content, .. } in messages {
        prompt.write("<|start_header_id|>");
        prompt.quote(role);
        prompt.write("<|end_header_id|>\n\n");
        prompt.quote(content.trim());
        prompt.write("<|eot_id|>");
    }
    if options.add_generation_prompt {
        prompt.write("<|start_header_id|>assistant<|end_header_id|>\n\n");
    }
    prompt
}

/// ChatML, with a system message of its own where the conversation has none.
pub(super) fn chat_ml(system: Option<&str>, messages: &[Message], options: &RenderOptions) -> Rendered {
    turns(system, messages, options, |prompt, _, message| prompt.quote(&message.content))
}

/// ChatML whose turns are written by `say`, from a message and its index.
fn turns(
    system: Option<&str>,
    messages: &[Message],
    options: &RenderOptions,
    say: impl Fn(&mut Rendered, usize, &Message),
) -> Rendered {
    let mut prompt = Rendered::default();
    let has_system = messages.first().is_some_and(|message| message.role == "system");
    if let (Some(system), false) = (system, has_system) {
        prompt.write(&format!("<|im_start|>system\n{system}<|im_end|>\n"));
    }
    for (index, message) in messages.iter().enumerate() {
        prompt.write("<|im_start|>");
        prompt.quote(&message.role);
        prompt.write("\n");
        say(&mut prompt, index, message);
        prompt.write("<|im_end|>\n");
    }
    if options.add_generation_prompt {
        prompt.write("<|im_start|>assistant\n");
    }
    prompt
}

/// ChatML of Qwen3 and SDAR: thoughts before the last question are forgotten, and a model that shall not
/// think gets an empty thought.
pub(super) fn thinking_chat_ml(messages: &[Message], options: &RenderOptions) -> Rendered {
    let last_question = messages.iter().rposition(|message| message.role == "user");
    let say = |prompt: &mut Rendered, index: usize, message: &Message| {
        let is_answer = message.role == "assistant";
        // Thoughts beside the answer, where the model put them in front of it.
        let thought = message.fields.get("reasoning_content").and_then(serde_json::Value::as_str);
        match thought.filter(|_| is_answer) {
            _ if is_answer && last_question.is_some_and(|last| index < last) => {
                let answer = message.content.rsplit("</think>").next().unwrap_or_default();
                prompt.quote(answer.trim_start_matches('\n'));
            }
            Some(thought) => {
                prompt.write("<think>\n");
                prompt.quote(thought.trim_matches('\n'));
                prompt.write("\n</think>\n\n");
                prompt.quote(message.content.trim_start_matches('\n'));
            }
            None => prompt.quote(&message.content),
        }
    };
    let mut prompt = turns(None, messages, options, say);
    if options.add_generation_prompt && options.enable_thinking == Some(false) {
        prompt.write("<think>\n\n</think>\n\n");
    }
    prompt
}

/// Form of LLaDA-MoE and LLaDA2: roles in marks of their own, and a system turn that ends on whether to think.
pub(super) fn roles(messages: &[Message], options: &RenderOptions) -> Rendered {
    let thinks = if options.enable_thinking == Some(true) { "on" } else { "off" };
    let mut prompt = Rendered::default();
    prompt.write("<role>SYSTEM</role>");
    let rest = match messages.split_first() {
        Some((first, rest)) if first.role == "system" => {
            prompt.quote(&first.content);
            prompt.write("\n");
            rest
        }
        _ => messages,
    };
    prompt.write(&format!("detailed thinking {thinks}<|role_end|>"));
    for Message { role, content, .. } in rest {
        let role = match role.as_str() {
            "user" => "HUMAN",
            "assistant" => "ASSISTANT",
            "tool" => "OBSERVATION",
            _ => "SYSTEM",
        };
        prompt.write(&format!("<role>{role}</role>"));
        prompt.quote(content);
        prompt.write("<|role_end|>");
    }
    if options.add_generation_prompt {
        prompt.write("<role>ASSISTANT</role>");
    }
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;

    #[test]
    fn each_family_writes_its_own_form() {
        let messages = [Message::new("user", " Hi ")];
        let options = RenderOptions::default();
        let cases = [
            (
                "LLaDA",
                "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            ),
            (
                "Llama",
                "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            ),
            (
                "Dream",
                "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n",
            ),
            (
                "Qwen2",
                "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n",
            ),
            ("Qwen3", "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"),
            ("SDAR", "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"),
            ("SDAR-MoE", "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"),
            (
                "LLaDA-MoE",
                "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role> Hi <|role_end|><role>ASSISTANT</role>",
            ),
        ];
        for (family, expected) in cases {
            let family = Family::named(family).unwrap();
            assert_eq!((family.prompt)(&messages, &options).text, expected, "{family}");
        }
    }

    #[test]
    fn roles_have_a_system_turn_that_says_whether_to_think() {
        let messages =
            [Message::new("system", "Be brief."), Message::new("user", "Hi"), Message::new("assistant", "Ho")];
        let options = RenderOptions { enable_thinking: Some(true), add_generation_prompt: false, ..Default::default() };
        let expected = "<role>SYSTEM</role>Be brief.\ndetailed thinking on<|role_end|><role>HUMAN</role>Hi<|role_end|>\
                        <role>ASSISTANT</role>Ho<|role_end|>";
        assert_eq!(roles(&messages, &options).text, expected);
    }

    #[test]
    fn thoughts_before_the_last_question_are_forgotten() {
        let messages = [
            Message::new("user", "1"),
            Message::new("assistant", "<think>\nhm\n</think>\n\none"),
            Message::new("user", "2"),
        ];
        let options = RenderOptions { enable_thinking: Some(false), ..RenderOptions::default() };
        let expected = "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n<|im_start|>user\n2<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
        assert_eq!(thinking_chat_ml(&messages, &options).text, expected);
    }
}
