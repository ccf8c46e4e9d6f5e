//! Models in GGUF files by the names of the files: parts that belong together, and the quantisation that a name says.

use crate::names::is_named_gguf;

/// Most files of a model, as of safetensors.
const MOST_PARTS: usize = 1 << 12;

/// Files beside models that are none: projectors of pictures, and what quantisation was steered by.
const NO_MODELS: [&str; 2] = ["mmproj", "imatrix"];

/// A model in one GGUF file, or in the parts of a split one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufModel {
    /// Names of the files that there are, in order.
    pub files: Vec<String>,
    /// First part that there is not.
    pub missing: Option<String>,
    /// Bytes of the files; none: the size of one is unknown.
    pub bytes: Option<u64>,
}

impl GgufModel {
    /// Returns the name of the first file.
    pub fn first(&self) -> &str {
        self.files.first().map_or("", String::as_str)
    }

    /// Returns the quantisation that the names say, `Q4_K_M` for example, as they write it.
    pub fn quantisation(&self) -> Option<&str> {
        let stem = stem(self.first());
        let at = stem.rfind(['-', '.', '/']).map_or(0, |at| at + 1);
        // `UD-Q4_K_XL` is another file than `Q4_K_XL`.
        let before = stem[..at].strip_suffix("UD-").map_or(at, str::len);
        Some(&stem[before..]).filter(|_| is_quantisation(&stem[at..]))
    }

    /// Reports whether the names say this quantisation, in any case.
    pub(crate) fn is_of(&self, wanted: &str) -> bool {
        let ends = |text: &str| {
            let start = text.len().checked_sub(wanted.len()).filter(|&start| text.is_char_boundary(start));
            let start = start.filter(|&start| text[start..].eq_ignore_ascii_case(wanted));
            start.is_some_and(|start| start == 0 || text[..start].ends_with(['-', '.', '_', '/']))
        };
        let stem = stem(self.first());
        let own = wanted.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("UD-"));
        let plain = if own { &wanted[3..] } else { wanted };
        is_quantisation(plain) && (ends(stem) || stem.rsplit_once('/').is_some_and(|(folder, _)| ends(folder)))
    }
}

/// Reports whether a text is the name of a quantisation.
fn is_quantisation(text: &str) -> bool {
    const KINDS: [&str; 8] = ["q", "iq", "tq", "mxfp", "nvfp", "bf", "fp", "f"];
    let digit = text.find(|letter: char| letter.is_ascii_digit()).unwrap_or(0);
    KINDS.iter().any(|kind| text[..digit].eq_ignore_ascii_case(kind))
}

/// A name without its end and the number of its part.
fn stem(name: &str) -> &str {
    let stem = name.get(..name.len().saturating_sub(".gguf".len())).unwrap_or(name);
    part_of(name).map_or(stem, |(stem, ..)| stem)
}

/// Reads the name of a part of a split file, `NAME-00001-of-00003.gguf`: the shared name, the part's number and the count.
pub(crate) fn part_of(name: &str) -> Option<(&str, usize, usize)> {
    let (rest, count) = name.get(..name.len().checked_sub(".gguf".len())?)?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let number_of = |digits: &str| {
        let plain = digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<usize>().ok()).flatten()
    };
    let (number, count) = (number_of(number)?, number_of(count)?);
    ((1..=count).contains(&number) && count <= MOST_PARTS).then_some((stem, number, count))
}

/// Names of all parts of the file that one of them belongs to; of a whole file its own alone.
pub(crate) fn all_parts(name: &str) -> Vec<String> {
    let Some((stem, _, count)) = part_of(name) else { return vec![name.to_owned()] };
    let end = &name[name.len() - ".gguf".len()..];
    (1..=count).map(|number| format!("{stem}-{number:05}-of-{count:05}{end}")).collect()
}

/// Models among files with their sizes, by name.
pub(crate) fn models(files: Vec<(String, Option<u64>)>) -> Vec<GgufModel> {
    let is_model = |name: &str| {
        let own = name.rsplit('/').next().unwrap_or(name);
        is_named_gguf(name) && !NO_MODELS.iter().any(|none| own.to_ascii_lowercase().starts_with(none))
    };
    let mut files: Vec<_> = files.into_iter().filter(|(name, _)| is_model(name)).collect();
    files.sort();
    files.dedup_by(|one, other| one.0 == other.0);
    let sizes: std::collections::BTreeMap<_, _> = files.iter().cloned().collect();
    let mut models: Vec<GgufModel> = Vec::new();
    for (name, _) in files {
        if models.iter().any(|model| model.files.contains(&name)) {
            continue;
        }
        let (here, missing): (Vec<_>, Vec<_>) = all_parts(&name).into_iter().partition(|part| sizes.contains_key(part));
        let bytes = here.iter().map(|part| sizes.get(part).copied().flatten()).sum();
        models.push(GgufModel { files: here, missing: missing.into_iter().next(), bytes });
    }
    models
}

/// Names of models in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// Quantisations, where each model has another one, else files.
    ByType,
    /// Files, the first of several parts.
    ByFile,
}

/// Reports whether quantisations tell models apart.
pub(crate) fn differ(models: &[GgufModel]) -> bool {
    let kinds: Vec<_> = models.iter().map(GgufModel::quantisation).collect();
    kinds.iter().all(|kind| kind.is_some() && kinds.iter().filter(|other| *other == kind).count() == 1)
}

/// The models in words, each with its size. Where it is known how much memory is free, whether each fits.
pub(crate) fn listed(models: &[GgufModel], named: Named, free: Option<u64>) -> String {
    let by_type = named == Named::ByType && differ(models);
    let one = |model: &GgufModel| {
        let name = model.quantisation().filter(|_| by_type).unwrap_or_else(|| model.first());
        let fits = model.bytes.zip(free).map(|(bytes, free)| if bytes <= free { "fits" } else { "too large" });
        let about: Vec<_> = [model.bytes.map(size).as_deref(), fits].into_iter().flatten().map(str::to_owned).collect();
        if about.is_empty() { name.to_owned() } else { format!("{name} ({})", about.join(", ")) }
    };
    models.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    let (unit, scale) = match bytes {
        0..0x10_0000 => ("KiB", 1 << 10),
        0x10_0000..0x4000_0000 => ("MiB", 1 << 20),
        _ => ("GiB", 1 << 30),
    };
    format!("{:.1} {unit}", bytes as f64 / f64::from(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Vec<GgufModel> {
        models(names.iter().map(|name| ((*name).to_owned(), Some(400_000_000))).collect())
    }

    #[test]
    fn a_quantisation_is_found_in_a_files_name() {
        for (name, kind) in [
            ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", Some("q4_k_m")),
            ("llama-2-7b.Q4_0.gguf", Some("Q4_0")),
            ("Model-UD-Q4_K_XL.gguf", Some("UD-Q4_K_XL")),
            ("Q8_0/Model-Q8_0-00001-of-00003.gguf", Some("Q8_0")),
            ("model-IQ4_XS.gguf", Some("IQ4_XS")),
            ("model-bf16.gguf", Some("bf16")),
            ("tinyllama-1.1b.gguf", None),
            ("model.gguf", None),
        ] {
            let model = &of(&[name])[0];
            assert_eq!(model.quantisation(), kind, "{name}");
            if let Some(kind) = kind {
                assert!(model.is_of(&kind.to_uppercase()) && model.is_of(&kind.to_lowercase()), "{name}");
            }
            assert!(!model.is_of("Q2_K") && !model.is_of("latest") && !model.is_of("0"), "{name}");
        }
        assert!(of(&["Q4_K_M/model-00001-of-00001.gguf"])[0].is_of("q4_k_m"));
    }

    #[test]
    fn parts_belong_together_and_what_is_no_model_is_left_out() {
        let found =
            of(&["a-00002-of-00002.gguf", "a-00001-of-00002.gguf", "b-00001-of-00002.gguf", "mmproj-f16.gguf", "x"]);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].files.len(), &found[0].missing, found[0].bytes), (2, &None, Some(800_000_000)));
        assert_eq!(found[1].missing.as_deref(), Some("b-00002-of-00002.gguf"));
        assert_eq!(all_parts("a-00009-of-00002.gguf"), ["a-00009-of-00002.gguf"]);
    }

    #[test]
    fn a_list_names_types_or_files_with_sizes_and_whether_they_fit() {
        let found = of(&["m-Q4_0.gguf", "m-Q8_0.gguf"]);
        assert_eq!(listed(&found, Named::ByType, None), "Q4_0 (381.5 MiB), Q8_0 (381.5 MiB)");
        assert_eq!(listed(&found, Named::ByType, Some(1 << 30)), "Q4_0 (381.5 MiB, fits), Q8_0 (381.5 MiB, fits)");
        let alike = of(&["m-Q4_0.gguf", "n-Q4_0.gguf"]);
        assert_eq!(
            listed(&alike, Named::ByType, Some(1)),
            "m-Q4_0.gguf (381.5 MiB, too large), n-Q4_0.gguf (381.5 MiB, too large)"
        );
    }
}
