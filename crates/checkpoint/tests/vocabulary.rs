//! The real vocabulary of the Qwen family, which Dream and SDAR share. It is too large to be part of the project:
//! `DEMASK_TOKENIZERS` names a directory with `vocab.json`, `merges.txt`, `tokenizer_config.json` and
//! `chat_template.jinja` of SDAR (or a directory with that one in `sdar`).

#![expect(clippy::print_stderr, reason = "a skipped test says so")]

use std::{env, fs, path::PathBuf};

use demask_checkpoint::{ChatTemplate, Family, Message, ModelFiles, RenderOptions, Tokenizer};

fn family(name: &str) -> &'static Family {
    Family::named(name).unwrap()
}

fn directory() -> Option<PathBuf> {
    let Some(path) = env::var_os("DEMASK_TOKENIZERS").map(PathBuf::from) else {
        eprintln!("skipped: DEMASK_TOKENIZERS is not set");
        return None;
    };
    let inner = path.join("sdar");
    Some(if inner.is_dir() { inner } else { path })
}

fn sdar() -> Option<(ModelFiles, Tokenizer)> {
    let files = ModelFiles::directory(directory()?).unwrap();
    let tokenizer = Tokenizer::open(&files, family("SDAR")).unwrap().unwrap();
    Some((files, tokenizer))
}

/// Dream's directory as far as the tokenizer goes: the bare vocabulary.
fn dream() -> Option<Tokenizer> {
    let source = directory()?;
    let path = env::temp_dir().join(format!("demask-dream-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    for file in ["vocab.json", "merges.txt"] {
        fs::copy(source.join(file), path.join(file)).unwrap();
    }
    let tokenizer = Tokenizer::open(&ModelFiles::directory(&path).unwrap(), family("Dream")).unwrap().unwrap();
    fs::remove_dir_all(path).unwrap();
    Some(tokenizer)
}

#[test]
fn dream_chat_gives_the_golden_ids() {
    let Some(tokenizer) = dream() else { return };
    let template = ChatTemplate::of_family(family("Dream"));
    let prompt = template.render(&[Message::new("user", "Hi")], &RenderOptions::default()).unwrap();
    let expected = [
        151_644, 8948, 198, 2610, 525, 264, 10950, 17847, 13, 151_645, 198, 151_644, 872, 198, 13048, 151_645, 198,
        151_644, 77091, 198,
    ];
    assert_eq!(tokenizer.encode(&prompt, false).unwrap(), expected);
    assert_eq!(tokenizer.decode(&expected, false), prompt);
    assert_eq!(tokenizer.id("<|mask|>"), Some(151_666));
    assert_eq!(tokenizer.id("<|beginoftext|>"), Some(151_665));
    assert_eq!(tokenizer.largest_id(), 151_666);
}

#[test]
fn text_is_composed_before_it_is_cut() {
    let Some((_, tokenizer)) = sdar() else { return };
    assert_eq!(tokenizer.encode("e\u{301}", false).unwrap(), [963]);
    assert_eq!(tokenizer.encode(" e\u{301}", false).unwrap(), [3958]);
}

#[test]
fn specials_keep_the_ids_of_the_decoder_table() {
    let Some((_, tokenizer)) = sdar() else { return };
    for (token, id) in
        [("<|endoftext|>", 151_643), ("<|im_end|>", 151_645), ("<think>", 151_667), ("<|MASK|>", 151_669)]
    {
        assert_eq!(tokenizer.id(token), Some(id));
        assert_eq!(tokenizer.token_bytes(id), Some(token.as_bytes().to_vec()));
    }
    assert_eq!(tokenizer.named("mask_token"), Some(151_669));
    assert!(tokenizer.is_special(151_645) && !tokenizer.is_special(151_667));
    assert_eq!(tokenizer.encode("a<think>b", false).unwrap()[1], 151_667);
}

#[test]
fn any_text_comes_back() {
    let Some((_, tokenizer)) = sdar() else { return };
    for text in [
        "Hello  world\n\n\n 12345's",
        "naïve 好的，谢谢 🙂👩‍👩‍👧",
        "\t\r\n x\u{a0}y",
        "<|im_start|>user",
        "fn main() { }\n",
    ] {
        let ids = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(&ids, false), text);
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap()).collect();
        assert_eq!(bytes, text.as_bytes());
        let mut stream = tokenizer.stream(false);
        let streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
        assert_eq!(streamed + &stream.finish(), text);
    }
}

#[test]
fn the_released_template_and_its_stand_in_agree() {
    let Some((files, tokenizer)) = sdar() else { return };
    let own = ChatTemplate::open(&files, family("SDAR"), Some(&tokenizer)).unwrap();
    assert!(!own.is_fallback() && own.probe().unwrap().is_none());
    let family = ChatTemplate::of_family(family("SDAR"));
    let system = Message::new("system", "Be brief.");
    let user = |text: &str| Message::new("user", text);
    let assistant = Message::new("assistant", "<think>\nhm\n</think>\n\nFour.");
    let conversations =
        [vec![user("Hi")], vec![system.clone(), user("Hi")], vec![system, user("2+2?"), assistant, user("Sure?")]];
    for messages in conversations {
        for enable_thinking in [None, Some(true), Some(false)] {
            let options = RenderOptions { enable_thinking, ..RenderOptions::default() };
            assert_eq!(own.render(&messages, &options).unwrap(), family.render(&messages, &options).unwrap());
        }
    }
    let golden = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    let options = RenderOptions { enable_thinking: Some(false), ..RenderOptions::default() };
    assert_eq!(own.render(&[user("Hi")], &options).unwrap(), golden);
}
