//! Any text as a chat template: a prompt or an error of one line, soon.
#![no_main]

use demask_checkpoint::{ChatTemplate, Family, Message, RenderOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    let family = Family::named("Qwen3").expect("the family is in the list");
    let template = ChatTemplate::from_source(source, "chat_template.jinja", family, &[("bos_token", "<s>")]);
    let messages = [Message::new("system", "Be brief."), Message::new("user", "Hi")];
    if let Err(error) = template.render(&messages, &RenderOptions::default()) {
        assert!(!error.to_string().contains('\n'));
    }
});
