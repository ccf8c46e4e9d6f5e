//! Ways to cut a text into pieces before tokens are made of them: `tokenizer.ggml.pre` names one, and the expressions are
//! those of the tokenizers that have the name.

use crate::{CheckpointError, error::quoted, families::qwen2, fields::Fields};

/// A way to cut texts.
pub(super) struct Pieces {
    names: &'static [&'static str],
    /// Expressions: each cuts the rest of those before it, and each match is a piece.
    pub patterns: &'static [&'static str],
    /// Records whether Hugging Face's tokenizer normalises to NFC first.
    pub nfc: bool,
    /// Records whether a piece that is a token is taken as it is.
    pub ignore_merges: bool,
    /// Records whether a raw text starts with the first token where the file does not say.
    pub begins: bool,
}

const KEY: &str = "tokenizer.ggml.pre";

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A word's capitals, then its small letters, alone or with an English ending.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";

const SEED: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";

const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Qwen2's without English endings.
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const MINICPM5: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

/// Letters of the scripts that have capitals. Those that are written as escapes have a twin that looks the same.
const DEEPSEEK_WORDS: &str = "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1f7d}ᾀ-ᾴᾶ-ᾼ\u{1fbe}ῂ-ῄῆ-ῌῐ-\u{1fd3}ῖ-\u{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";

const HAN_AND_HANGUL: &str = "[一-龥ࠀ-一가-퟿]+";
const HAN_AND_KANA: &str = "[一-龥぀-ゟ゠-ヿ]+";

const DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = "[0-9][0-9][0-9]";

/// Words of languages that part them with spaces.
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

const TABLE: &[Pieces] = &[
    Pieces { nfc: true, ..cut(&["qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"], &[qwen2::PATTERN]) },
    cut(&["stablelm2", "hunyuan", "solar-open", "grok-2"], &[qwen2::PATTERN]),
    Pieces { nfc: true, ..cut(&["qwen35"], &[QWEN35]) },
    cut(&["ufakzeka"], &[UFAKZEKA]),
    // Files of dense LLaDA name the tokenizer of LLaDA-MoE, which is cut the same way.
    cut(&["llada-moe", "bailingmoe", "bailingmoe2"], &[BAILING]),
    Pieces {
        ignore_merges: true,
        begins: true,
        ..cut(
            &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
            &[LLAMA3],
        )
    },
    cut(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[LLAMA3]),
    Pieces { ignore_merges: true, ..cut(&["minicpm5"], &[r"\p{N}{1,3}", MINICPM5]) },
    cut(&["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"], &[DIGIT, GPT2]),
    Pieces { nfc: true, ..cut(&["command-r"], &[DIGIT, GPT2]) },
    cut(
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        &[GPT2],
    ),
    // Tokenizers of GPT-NeoX.
    Pieces { nfc: true, ..cut(&["mpt", "olmo", "modern-bert"], &[GPT2]) },
    cut(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, THREE_DIGITS]),
    cut(&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", THREE_DIGITS]),
    Pieces { ignore_merges: true, begins: true, ..cut(&["tekken"], &[TEKKEN]) },
    cut(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT4O]),
    cut(&["seed-coder"], &[SEED]),
    cut(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &[r"\p{N}{1,3}", HAN_AND_KANA, DEEPSEEK3]),
    cut(&["deepseek-coder"], &["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN_AND_HANGUL, DIGIT]),
    cut(
        &["deepseek-llm"],
        &["[\r\n]", DEEPSEEK_WORDS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", HAN_AND_HANGUL, r"\p{N}+"],
    ),
    cut(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    cut(&["viking"], &[BLOOM, DIGIT]),
];

/// A way without anything else.
const fn cut(names: &'static [&'static str], patterns: &'static [&'static str]) -> Pieces {
    Pieces { names, patterns, nfc: false, ignore_merges: false, begins: false }
}

/// Finds the way of a file.
pub(super) fn read(fields: &Fields<'_>) -> Result<&'static Pieces, CheckpointError> {
    let name = fields.optional_text(KEY)?;
    let name = name.ok_or_else(|| fields.missing(KEY, "the name of a way to cut text"))?;
    TABLE.iter().find(|pieces| pieces.names.contains(&name)).ok_or_else(|| {
        let what = format!("the way to cut text {} ({KEY:?})", quoted(name));
        fields.unsupported(what, "use the model's safetensors, whose tokenizer.json says it itself")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Map;

    use super::*;
    use crate::{
        Tokenizer,
        tokenizer::{Settings, byte_pairs},
    };

    /// A tokenizer of bytes alone, cut this way.
    fn bytes(pieces: &Pieces) -> Tokenizer {
        let characters = (0u8..=255).map(|byte| char::from(byte).to_string());
        let mut vocabulary: Map<String, serde_json::Value> = Map::new();
        // Only the printable ones are themselves; no test text has others.
        characters.zip(0u32..).for_each(|(text, id)| {
            vocabulary.insert(text, id.into());
        });
        vocabulary.insert("Ġ".to_owned(), 256.into());
        vocabulary.insert("Ċ".to_owned(), 257.into());
        for (id, two) in (258u32..).zip(["Ġa", "Ġ1", "'s", "a.", ".a", "ĠĠ", "aa", "11", ".."]) {
            vocabulary.insert(two.to_owned(), id.into());
        }
        let merges = ["Ġ a", "Ġ 1", "' s", "a .", ". a", "Ġ Ġ", "a a", "1 1", ". ."];
        let text = byte_pairs(pieces.patterns, vocabulary, &merges, [].iter()).to_string();
        Tokenizer::parse(text.as_bytes(), "pieces", Settings::default()).unwrap()
    }

    fn cuts(name: &str, text: &str) -> Vec<String> {
        let pieces = TABLE.iter().find(|pieces| pieces.names.contains(&name)).unwrap();
        let tokenizer = bytes(pieces);
        let ids = tokenizer.encode(text, true).unwrap();
        ids.into_iter().map(|id| tokenizer.token(id).unwrap().replace('Ġ', "_")).collect()
    }

    #[test]
    fn every_expression_can_be_used_and_every_name_is_there_once() {
        let mut names = BTreeSet::new();
        for pieces in TABLE {
            assert!(pieces.names.iter().all(|name| names.insert(name)), "{:?}", pieces.names);
            let tokenizer = bytes(pieces);
            for text in ["aa 11.. a's\n\n  1a", "", " ", "1111111", "a.a.a", "......\n", "   a   "] {
                let ids = tokenizer.encode(text, true).unwrap();
                assert_eq!(tokenizer.decode(&ids, false), text, "{:?}", pieces.names);
            }
        }
    }

    #[test]
    fn digits_and_marks_are_parted_as_each_way_says() {
        // Alone: no two digits are a token, and the space before them is one.
        assert_eq!(cuts("smollm", " 11 aa"), ["_", "1", "1", "_a", "a"]);
        assert_eq!(cuts("gpt-2", " 11 aa"), ["_1", "1", "_a", "a"]);
        assert_eq!(cuts("qwen2", " 11 aa"), ["_", "1", "1", "_a", "a"]);
        assert_eq!(cuts("deepseek-r1-qwen", " 11 aa"), cuts("qwen2", " 11 aa"));
        assert_eq!(cuts("llama-bpe", "1111 a"), ["11", "1", "1", "_a"]);
        assert_eq!(cuts("gpt-2", "1111 a"), ["11", "11", "_a"]);
        // A mark before letters belongs to them in Qwen2's way, not in GPT-2's.
        assert_eq!(cuts("qwen2", "a.a"), ["a", ".a"]);
        assert_eq!(cuts("gpt-2", "a.a"), ["a", ".", "a"]);
        assert_eq!(cuts("falcon", "aa..11"), ["aa", "..", "11"]);
        assert_eq!(cuts("default", "111 1"), ["11", "1", "_", "1"]);
        // Two spaces before a word: one of them is the word's.
        assert_eq!(cuts("smollm", "a  a"), ["a", "_", "_a"]);
        assert_eq!(cuts("deepseek-coder", "a  a11"), ["a", "_", "_a", "1", "1"]);
        assert_eq!(cuts("bloom", "aa 1"), ["aa", "_1"]);
        assert_eq!(cuts("viking", "aa 1"), ["aa", "_", "1"]);
    }
}
