//! Files of tasks: TOML, read to a [`Task`]. An error names its line.

use std::path::Path;

use demask_settings::{
    names::{UnknownName, nearest},
    toml::{Entry, FileError, Reader, Table},
};
use minijinja::Value;
use regex::Regex;

use super::{
    DATA, DataFile, Dataset, Exemplars, FILES, Instructions, Likelihood, Source, Style, Task, find,
    instruction::Instruction,
    reading::{Expressions, PARTS, Reading, published},
    style::{Form, INSTRUCTION_NAMES, NAMES, OPTION_NAMES, Scope},
    words::{Words, expression},
};
use crate::{Problem, Rule};

/// Keys of a file, and of its tables.
const FILE: [&str; 13] = [
    "extends",
    "about",
    "fields",
    "gen_length",
    "shuffled",
    "subjects",
    "dataset",
    "exemplars",
    "problem",
    "instruction",
    "style",
    "likelihood",
    "decision",
];
const DATASET: [&str; 6] = ["hub", "revision", "files", "member", "file", "dev"];
const EXEMPLARS: [&str; 5] = ["files", "skip", "per_subject", "others", "published"];
const PUBLISHED: [&str; 3] = ["question", "solution", "answer"];
const INSTRUCTION: [&str; 4] = ["head", "label", "word", "between"];
const STYLE: [&str; 13] = [
    "extends",
    "about",
    "form",
    "gap",
    "head",
    "ask",
    "solve",
    "stop",
    "shots",
    "score",
    "phrases",
    "option_name",
    "answer_regex",
];
const LIKELIHOOD: [&str; 5] = ["extends", "head", "context", "option", "shots"];
const DECISION: [&str; 1] = ["instructions"];
/// Names of the rules that judge answers.
const SCORES: [&str; 8] = ["number", "letter", "choice", "math", "exact", "overlap", "program", "json"];

/// Positions to decode of a task that does not say how many.
const GEN_LENGTH: usize = 256;

/// Reads a task that is part of the program.
pub(super) fn built_in(name: &str, text: &str) -> Result<&'static Task, FileError> {
    let path = format!("{name}.toml");
    Draft::read(Reader { path: Path::new(&path), text }, name, None)
}

/// Reads a task of the user's, called after its file.
///
/// # Errors
/// If the file cannot be read, or says what cannot be meant: with its line.
pub(crate) fn read(path: &Path) -> Result<&'static Task, FileError> {
    let file = Reader { path, text: "" };
    let text = demask::plain::read(path).map_err(|error| file.unreadable(&error))?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if find(&name).is_some() {
        return Err(file.refused(format!("{name} is the name of a task of the program: call the file otherwise")));
    }
    let fingerprint = demask::fingerprint::fingerprint([text.as_bytes()]);
    Draft::read(Reader { path, text: &text }, &name, Some(fingerprint))
}

/// A file that is being read.
struct Draft<'a> {
    table: Table<'a>,
    /// The task that it extends.
    base: Option<&'static Task>,
    scope: &'static Scope,
    is_own: bool,
}

impl Draft<'_> {
    fn read(reader: Reader<'_>, name: &str, file: Option<u64>) -> Result<&'static Task, FileError> {
        let table = reader.parse()?;
        table.only("a task", &FILE)?;
        let base = table.get("extends").map(|entry| known_task(entry, &entry.as_text()?)).transpose()?;
        let scope = scope(&table, base)?;
        let draft = Draft { table, base, scope, is_own: file.is_some() };
        let styles = draft.styles()?;
        let (table, rule) = (&draft.table, styles[0].rule);
        let task = Task {
            name: leak(name.to_owned()),
            about: text(table, "about", base.map(|base| base.about))?,
            source: draft.source()?,
            dev: draft.dev()?,
            exemplars: draft.exemplars(rule)?,
            styles,
            gen_length: count(table, "gen_length")?.or(base.map(|base| base.gen_length)).unwrap_or(GEN_LENGTH),
            fields: text(table, "fields", base.map(|base| base.fields).or(Some("")))?,
            reading: draft.reading(rule)?,
            shuffled: flag(table, "shuffled")?.or(base.map(|base| base.shuffled)).unwrap_or_default(),
            likelihood: draft.likelihood(styles)?,
            decision: draft.decision()?,
            file,
        };
        Ok(Box::leak(Box::new(task)))
    }

    fn source(&self) -> Result<Source, FileError> {
        let Some(dataset) = self.table.table("dataset")? else {
            let without =
                || self.table.refused("a task without [dataset]: expected its `hub` and `files`, or its `file`");
            return self.base.map(|base| base.source).ok_or_else(without);
        };
        dataset.only("dataset", &DATASET)?;
        if let Some(file) = dataset.get("file") {
            if let Some(other) = dataset.entries().find(|entry| !["file", "dev"].contains(&entry.key.as_str())) {
                return Err(other.refused(format!("{} beside file: omit one of them", other.key)));
            }
            return self.file_of(file);
        }
        let id = leak(dataset.needed("hub", "a dataset without its place")?.as_text()?);
        let files = dataset.needed("files", "a dataset without files")?;
        let (revision, member) = (text(&dataset, "revision", Some("main"))?, dataset.text("member")?.map(leak));
        Ok(Source::Hub(Dataset { id, revision, files: self.files(files, member)? }))
    }

    /// A file of problems: the program's own, or one beside the user's.
    fn file_of(&self, entry: &Entry<'_>) -> Result<Source, FileError> {
        let name = entry.as_text()?;
        let built_in = DATA.iter().find(|(known, _)| !self.is_own && *known == name);
        let beside = || Source::File(Box::leak(entry.beside(Path::new(&name)).into_boxed_path()));
        Ok(built_in.map_or_else(beside, |(_, text)| Source::BuiltIn(text)))
    }

    /// Problems to choose by: those of a task that is extended are for its own problems.
    fn dev(&self) -> Result<Option<Source>, FileError> {
        let Some(dataset) = self.table.table("dataset")? else { return Ok(self.base.and_then(|base| base.dev)) };
        dataset.get("dev").map(|entry| self.file_of(entry)).transpose()
    }

    /// Files of a dataset: one for each subject where the path has `{}`.
    fn files(&self, entry: &Entry<'_>, member: Option<&'static str>) -> Result<&'static [DataFile], FileError> {
        let mut files = Vec::new();
        for path in entry.as_texts()? {
            let subjects =
                if path.contains("{}") { self.scope.names.iter().copied().map(Some).collect() } else { vec![None] };
            files.extend(subjects.into_iter().map(|subject| {
                let path = leak(path.replace("{}", subject.unwrap_or_default()));
                DataFile { path, member, subject }
            }));
        }
        if files.is_empty() {
            return Err(entry.refused("files has none: expected at least one path (and subjects, where it has {})"));
        }
        Ok(files.leak())
    }

    fn exemplars(&self, rule: Rule) -> Result<Exemplars, FileError> {
        let Some(table) = self.table.table("exemplars")? else {
            return Ok(self.base.map_or(Exemplars::None, |base| base.exemplars));
        };
        table.only("exemplars", &EXEMPLARS)?;
        let shown = table.tables("published")?;
        let per_subject = flag(&table, "per_subject")?.unwrap_or_default();
        match (table.get("files"), flag(&table, "others")?, shown.is_empty()) {
            (Some(files), None | Some(false), true) => {
                let skip = count(&table, "skip")?.unwrap_or_default();
                Ok(Exemplars::Files { files: self.files(files, None)?, skip, per_subject })
            }
            (None, Some(true), true) => Ok(Exemplars::Others),
            (None, None | Some(false), false) => {
                let shown = shown.iter().enumerate().map(|(index, table)| exemplar(index, table, rule));
                Ok(Exemplars::Published(shown.collect::<Result<Vec<_>, _>>()?.leak()))
            }
            _ => {
                Err(table
                    .refused("exemplars are not said once: expected files, others = true or [[exemplars.published]]"))
            }
        }
    }

    fn reading(&self, rule: Rule) -> Result<&'static Reading, FileError> {
        let parts = match (self.table.table("problem")?, self.base) {
            (Some(table), _) => parts(&table, rule)?,
            (None, Some(base)) => base.reading.parts,
            (None, None) => {
                return Err(self.table.refused("a task without [problem]: expected its question and answer"));
            }
        };
        Ok(Box::leak(Box::new(Reading { parts, instruction: self.scope.instruction, rule })))
    }

    fn styles(&self) -> Result<&'static [Style], FileError> {
        let mut styles: Vec<Style> = Vec::new();
        let Some(table) = self.table.table("style")? else {
            styles.extend(
                self.base.iter().flat_map(|base| base.styles).map(|style| Style { scope: self.scope, ..*style }),
            );
            return self.some(styles);
        };
        for entry in table.entries() {
            let style = self.style(entry, &styles)?;
            let [own, first] = [&style, styles.first().unwrap_or(&style)].map(|style| kind(style.rule));
            if own != first {
                return Err(entry.refused(format!("score judges {own}, where that of the first style judges {first}")));
            }
            styles.push(style);
        }
        self.some(styles)
    }

    fn some(&self, styles: Vec<Style>) -> Result<&'static [Style], FileError> {
        if styles.is_empty() {
            return Err(self.table.refused("a task without a style: expected [style.NAME] with ask, solve and score"));
        }
        Ok(styles.leak())
    }

    fn style(&self, entry: &Entry<'_>, before: &[Style]) -> Result<Style, FileError> {
        let table = entry.as_table()?;
        table.only(&format!("style {}", entry.key), &STYLE)?;
        let base = table.get("extends").map(|entry| self.extended_style(entry, before)).transpose()?;
        let base = base.as_ref();
        let words = |key, of: Option<Words>| self.words(&table, key, of.map(Words::source), &[]);
        let shots = count(&table, "shots")?.or(base.map(|base| base.shots)).unwrap_or_default();
        let solve = base.and_then(|base| base.solve);
        // Only exemplars have an answer.
        let needs_solve = shots > 0 || solve.is_some() || table.get("solve").is_some();
        let rule = rule(&table, base.map(|base| base.rule))?;
        Ok(Style {
            name: leak(entry.key.clone()),
            about: text(&table, "about", base.map(|base| base.about))?,
            form: form(&table, base.map(|base| base.form))?,
            head: self.words(&table, "head", base.map(|base| base.head.source()).or(Some("")), &[])?,
            ask: words("ask", base.map(|base| base.ask))?,
            solve: needs_solve.then(|| words("solve", solve)).transpose()?,
            stop: texts(&table, "stop")?.or(base.map(|base| base.stop)).unwrap_or_default(),
            shots,
            rule,
            pattern: pattern(&table, rule)?.or(base.and_then(|base| base.pattern)),
            scope: self.scope,
        })
    }

    fn likelihood(&self, styles: &[Style]) -> Result<Option<Likelihood>, FileError> {
        let Some(table) = self.table.table("likelihood")? else {
            let of = |likelihood: Likelihood| Likelihood { scope: self.scope, ..likelihood };
            return Ok(self.base.and_then(|base| base.likelihood).map(of));
        };
        table.only("likelihood", &LIKELIHOOD)?;
        let base = table.get("extends").map(|entry| self.extended_style(entry, styles)).transpose()?;
        let words = |key, of| self.words(&table, key, of, &OPTION_NAMES);
        Ok(Some(Likelihood {
            head: words("head", base.map(|base| base.head.source()).or(Some("")))?,
            context: words("context", base.map(|base| base.ask.source()))?,
            option: words("option", None)?,
            shots: count(&table, "shots")?.unwrap_or_default(),
            scope: self.scope,
        }))
    }

    fn decision(&self) -> Result<Option<Instructions>, FileError> {
        let Some(table) = self.table.table("decision")? else {
            let of = |instructions: Instructions| Instructions { scope: self.scope, ..instructions };
            return Ok(self.base.and_then(|base| base.decision).map(of));
        };
        table.only("decision", &DECISION)?;
        Ok(Some(Instructions { words: self.words(&table, "instructions", None, &[])?, scope: self.scope }))
    }

    /// Returns a template of a table, or of the style that it extends, whose names have to be this task's too.
    fn words(
        &self,
        table: &Table<'_>,
        key: &'static str,
        base: Option<&'static str>,
        more: &[&str],
    ) -> Result<Words, FileError> {
        let source = text(table, key, base)?;
        let instruction = self.scope.instruction.map_or(&[][..], |_| &INSTRUCTION_NAMES);
        let place = table.get(key).map_or_else(|| table.place(), Entry::place);
        Words::parse(key, source, &[&NAMES, instruction, more].concat())
            .map_err(|told| place.refused(format!("{key}: {told}")))
    }

    /// The style that a table extends: one before it, one of the task that the file extends, or TASK/STYLE.
    fn extended_style(&self, entry: &Entry<'_>, before: &[Style]) -> Result<Style, FileError> {
        let name = entry.as_text()?;
        let (styles, name) = match name.split_once('/') {
            Some((task, style)) => (known_task(entry, task)?.styles.to_vec(), style),
            None => (before.iter().chain(self.base.map_or(&[][..], |base| base.styles)).copied().collect(), &*name),
        };
        let known = || styles.iter().map(|style| style.name).collect();
        let unknown =
            || entry.refused(UnknownName { what: "style", found: name.to_owned(), known: known() }.to_string());
        styles.iter().find(|style| style.name == name).copied().ok_or_else(unknown)
    }
}

fn known_task(entry: &Entry<'_>, name: &str) -> Result<&'static Task, FileError> {
    find(name).ok_or_else(|| {
        let known = FILES.iter().map(|file| file.name).collect();
        entry.refused(UnknownName { what: "task", found: name.to_owned(), known }.to_string())
    })
}

/// Names that the words of a task may use: its subjects, listed or described, and its instructions.
fn scope(table: &Table<'_>, base: Option<&'static Task>) -> Result<&'static Scope, FileError> {
    let base = base.map(|base| base.styles[0].scope);
    let (names, subjects) = match table.get("subjects").map(|entry| (entry, entry.as_table())) {
        Some((entry, Err(_))) => (entry.as_texts()?.into_iter().map(leak).collect(), Value::UNDEFINED),
        Some((_, Ok(told))) => {
            let told = told.entries().map(|entry| Ok((leak(entry.key.clone()), entry.as_text()?)));
            let told = told.collect::<Result<Vec<_>, FileError>>()?;
            (told.iter().map(|(name, _)| *name).collect(), Value::from_pairs(told))
        }
        None => base.map(|base| (base.names.clone(), base.subjects.clone())).unwrap_or_default(),
    };
    let instruction = match table.table("instruction")? {
        Some(table) => {
            table.only("instruction", &INSTRUCTION)?;
            let [head, label, word, between] = INSTRUCTION.map(|key| text(&table, key, None));
            Some(Instruction { head: head?, label: label?, word: word?, between: between? })
        }
        None => base.and_then(|base| base.instruction),
    };
    Ok(Box::leak(Box::new(Scope { names, subjects, instruction })))
}

/// An exemplar that the file has itself.
fn exemplar(index: usize, table: &Table<'_>, rule: Rule) -> Result<Problem, FileError> {
    table.only("an exemplar", &PUBLISHED)?;
    let answer = text(table, "answer", None)?;
    let odd = || table.refused(format!("answer is {answer:?}, expected {}", kind(rule)));
    Ok(Problem {
        id: format!("published/{index}"),
        question: text(table, "question", None)?.to_owned(),
        solution: table.text("solution")?,
        gold: published(rule, answer.to_owned()).ok_or_else(odd)?,
        ..Problem::default()
    })
}

/// The expressions of a problem's parts.
fn parts(table: &Table<'_>, rule: Rule) -> Result<Expressions, FileError> {
    let mut parts: Vec<(&'static str, _)> = Vec::new();
    for entry in table.entries() {
        let name = PARTS.iter().find(|part| **part == entry.key).ok_or_else(|| entry.unknown("problem", &PARTS))?;
        let before: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
        let made = expression(leak(entry.as_text()?), &before);
        parts.push((name, made.map_err(|told| entry.refused(format!("{name}: {told}")))?));
    }
    let right = match rule {
        Rule::Program => "tests",
        // Any valid value is right where there is no answer.
        Rule::Json if table.get("schema").is_some() => "schema",
        _ => "answer",
    };
    for needed in ["question", right] {
        table.needed(needed, &format!("a problem without {needed}"))?;
    }
    Ok(parts.leak())
}

/// Conversation or plain text with a gap.
fn form(table: &Table<'_>, base: Option<Form>) -> Result<Form, FileError> {
    let (form, gap) = (table.text("form")?, table.text("gap")?.map(leak));
    let form = match (form.as_deref(), base) {
        (Some("chat"), _) | (None, Some(Form::Chat)) => Form::Chat,
        (None, Some(Form::Text { gap: of })) => Form::Text { gap: gap.unwrap_or(of) },
        (Some("text"), _) => Form::Text { gap: gap.unwrap_or_default() },
        _ => return Err(table.refused("a style without its form: expected form = \"chat\" or \"text\"")),
    };
    match (form, table.get("gap")) {
        (Form::Chat, Some(gap)) => Err(gap.refused("gap is between paragraphs, and a conversation has none: omit it")),
        _ => Ok(form),
    }
}

/// Returns the rule that judges answers. A missing key is taken of the extended style.
fn rule(table: &Table<'_>, base: Option<Rule>) -> Result<Rule, FileError> {
    let (score, phrases, name) = match base {
        Some(Rule::Number(phrases)) => ("number", phrases, None),
        Some(Rule::Letter(phrases)) => ("letter", phrases, None),
        Some(Rule::Choice { name, triggers }) => ("choice", triggers, Some(name)),
        Some(Rule::Math(phrases)) => ("math", phrases, None),
        Some(Rule::Exact(phrases)) => ("exact", phrases, None),
        Some(Rule::Overlap) => ("overlap", &[][..], None),
        Some(Rule::Program) => ("program", &[][..], None),
        Some(Rule::Json) => ("json", &[][..], None),
        None => ("", &[][..], None),
    };
    let score = text(table, "score", base.map(|_| score))?;
    let phrases = texts(table, "phrases")?.unwrap_or(phrases);
    let name = table.text("option_name")?.map(leak).or(name);
    match (score, name) {
        ("number", _) => Ok(Rule::Number(phrases)),
        ("letter", _) => Ok(Rule::Letter(phrases)),
        ("choice", Some(name)) => Ok(Rule::Choice { name, triggers: phrases }),
        ("choice", None) => {
            Err(table.refused("score choice without the word of options: expected option_name = \"...\""))
        }
        ("math", _) => Ok(Rule::Math(phrases)),
        ("exact", _) => Ok(Rule::Exact(phrases)),
        ("overlap", _) => Ok(Rule::Overlap),
        ("program", _) => Ok(Rule::Program),
        ("json", _) => Ok(Rule::Json),
        _ => {
            let meant = nearest(score, &SCORES).map(|name| format!(", did you mean {name:?}?")).unwrap_or_default();
            Err(table.refused(format!("unknown score {score:?}{meant} (known: {})", SCORES.join(", "))))
        }
    }
}

/// The pattern of the part that a rule judges.
fn pattern(table: &Table<'_>, rule: Rule) -> Result<Option<&'static Regex>, FileError> {
    let Some(entry) = table.get("answer_regex") else { return Ok(None) };
    if rule == Rule::Program {
        return Err(entry.refused("answer_regex has no meaning with score program, which runs whole blocks: omit it"));
    }
    let refused = |error: regex::Error| {
        let told = error.to_string();
        let told = told.lines().last().unwrap_or_default().trim_start_matches("error: ");
        entry.refused(format!("answer_regex cannot be read: {told}"))
    };
    let pattern = Regex::new(&entry.as_text()?).map_err(refused)?;
    if pattern.captures_len() > 2 {
        return Err(entry.refused("answer_regex has several groups, expected one at most: write others as (?:...)"));
    }
    Ok(Some(Box::leak(Box::new(pattern))))
}

/// Kind of answer that a rule judges.
fn kind(rule: Rule) -> &'static str {
    match rule {
        Rule::Number(_) => "a number",
        Rule::Letter(_) | Rule::Choice { .. } => "an option",
        Rule::Math(_) => "an expression",
        Rule::Exact(_) | Rule::Overlap => "a text",
        Rule::Program => "a program",
        Rule::Json => "a value in JSON",
    }
}

/// A text that is needed, if the table extends nothing that has it.
fn text(table: &Table<'_>, key: &str, base: Option<&'static str>) -> Result<&'static str, FileError> {
    let missing = || table.refused(format!("{key} is missing: expected {key} = \"...\""));
    table.text(key)?.map(leak).or(base).ok_or_else(missing)
}

fn texts(table: &Table<'_>, key: &str) -> Result<Option<&'static [&'static str]>, FileError> {
    let texts = table.get(key).map(Entry::as_texts).transpose()?;
    Ok(texts.map(|texts| &*texts.into_iter().map(leak).collect::<Vec<_>>().leak()))
}

fn count(table: &Table<'_>, key: &str) -> Result<Option<usize>, FileError> {
    table.get(key).map(Entry::as_count).transpose()
}

fn flag(table: &Table<'_>, key: &str) -> Result<Option<bool>, FileError> {
    let expected = |entry: &Entry<'_>| entry.refused(format!("{key} is neither true nor false"));
    table.get(key).map(|entry| entry.json()?.as_bool().ok_or_else(|| expected(entry))).transpose()
}

/// A text for as long as the program runs, as all that a task says.
fn leak(text: String) -> &'static str {
    text.leak()
}
