//! Fenced blocks of code, as CommonMark 4.5 has them: in lists and quotations too.

/// Widest indentation of a fence; more is indented code.
const WIDEST: usize = 3;

/// Fewest marks of a fence.
const SHORTEST: usize = 3;

/// Columns of a tab.
const TAB: usize = 4;

/// A text, taken apart.
#[derive(Debug, Default)]
pub struct Fences {
    /// Blocks in their order.
    pub blocks: Vec<Block>,
    /// Lines before the first fence.
    pub before: Vec<String>,
}

/// A block of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its language in small letters; empty if it names none.
    pub language: String,
    /// Its lines.
    pub code: String,
}

/// What holds the lines of a list's item or of a quotation.
#[derive(Debug, Clone, Copy)]
enum Container {
    /// Columns before the item's text.
    Item(usize),
    Quotation,
}

/// An open block.
#[derive(Debug)]
struct Open {
    mark: char,
    length: usize,
    indentation: usize,
    /// Containers around it.
    depth: usize,
    language: String,
    lines: Vec<String>,
}

impl Fences {
    /// Reads a text. The first fence may only close: then `continues` says of the lines before it whether they are code.
    pub fn of(text: &str, continues: impl Fn(&[String]) -> bool) -> Self {
        let mut fences = Self::default();
        let mut containers: Vec<Container> = Vec::new();
        let mut open: Option<Open> = None;
        let mut first = true;
        for line in text.lines() {
            let (matched, rest) = inside(&containers, line);
            if let Some(block) = &mut open
                && matched >= block.depth
            {
                if block.closes(&rest) {
                    fences.blocks.extend(open.take().map(Open::block));
                } else {
                    block.lines.push(without_columns(&rest, block.indentation.min(indentation(&rest))));
                }
                continue;
            }
            // A block ends with what holds it.
            fences.blocks.extend(open.take().map(Open::block));
            if !rest.trim().is_empty() {
                containers.truncate(matched);
            }
            let rest = opened(&mut containers, rest);
            match Open::of(&rest, containers.len()) {
                Some(block) if first && block.language.is_empty() && continues(&fences.before) => {
                    fences.blocks.push(Block { language: String::new(), code: fences.before.join("\n") });
                    first = false;
                }
                Some(block) => {
                    open = Some(block);
                    first = false;
                }
                None if first => fences.before.push(line.to_owned()),
                None => {}
            }
        }
        fences.blocks.extend(open.map(Open::cut).map(Open::block));
        fences
    }
}

impl Open {
    /// The block that a line opens.
    fn of(line: &str, depth: usize) -> Option<Self> {
        let (indentation, text) = (indentation(line), line.trim_start());
        let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
        let information = text.trim_start_matches(mark);
        let length = text.len() - information.len();
        let fence = indentation <= WIDEST && length >= SHORTEST && !(mark == '`' && information.contains('`'));
        let language = language(information);
        fence.then(|| Self { mark, length, indentation, depth, language, lines: Vec::new() })
    }

    fn closes(&self, line: &str) -> bool {
        let text = line.trim();
        let marks = text.chars().all(|c| c == self.mark);
        marks && text.len() >= self.length && indentation(line) <= WIDEST
    }

    /// A block without an end: models write one after the last line of code too.
    fn cut(mut self) -> Self {
        let fence = String::from(self.mark).repeat(self.length);
        let end = self.lines.iter().position(|line| line.contains(&fence));
        if let Some((at, last)) = end.and_then(|at| Some((at, self.lines[at].split(&fence).next()?.to_owned()))) {
            self.lines.truncate(at);
            self.lines.push(last);
        }
        self
    }

    fn block(self) -> Block {
        Block { language: self.language, code: self.lines.join("\n") }
    }
}

/// Returns the number of containers that go on in a line, and the text inside of them.
fn inside(containers: &[Container], line: &str) -> (usize, String) {
    let mut rest = line.to_owned();
    for (at, container) in containers.iter().enumerate() {
        rest = match *container {
            Container::Quotation => match quoted(&rest) {
                Some(quoted) => quoted,
                None => return (at, rest),
            },
            Container::Item(_) if rest.trim().is_empty() => rest,
            Container::Item(width) if indentation(&rest) >= width => without_columns(&rest, width),
            Container::Item(_) => return (at, rest),
        };
    }
    (containers.len(), rest)
}

/// Opens the containers that begin in a line, and returns the text inside of them.
fn opened(containers: &mut Vec<Container>, mut rest: String) -> String {
    while indentation(&rest) <= WIDEST {
        if let Some(quoted) = quoted(&rest) {
            containers.push(Container::Quotation);
            rest = quoted;
        } else if let Some(width) = item(&rest) {
            containers.push(Container::Item(width));
            rest = rest.get(width..).unwrap_or_default().to_owned();
        } else {
            break;
        }
    }
    rest
}

fn quoted(line: &str) -> Option<String> {
    let inner = line.trim_start().strip_prefix('>').filter(|_| indentation(line) <= WIDEST)?;
    Some(inner.strip_prefix(' ').unwrap_or(inner).to_owned())
}

/// Columns before the text of a list's item that begins in a line.
fn item(line: &str) -> Option<usize> {
    let text = line.trim_start_matches(' ');
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let mark = text[digits..].chars().next()?;
    let marks = if digits == 0 { "-+*" } else { ".)" };
    if !marks.contains(mark) || digits > 9 {
        return None;
    }
    let after = &text[digits + 1..];
    let spaces = after.len() - after.trim_start_matches(' ').len();
    let before = line.len() - text.len() + digits + 1;
    match spaces {
        0 if after.is_empty() => Some(before + 1),
        0 => None,
        // More space belongs to indented code inside.
        1..=4 if spaces < after.len() => Some(before + spaces),
        _ => Some(before + 1),
    }
}

/// Columns of the space at the start of a line.
fn indentation(line: &str) -> usize {
    let blank = |c: &char| matches!(c, ' ' | '\t');
    line.chars().take_while(blank).fold(0, |at, c| if c == '\t' { at + TAB - at % TAB } else { at + 1 })
}

/// A line without so much of its indentation.
fn without_columns(line: &str, columns: usize) -> String {
    let (mut at, mut rest) = (0, line);
    while at < columns && rest.starts_with([' ', '\t']) {
        at = if rest.starts_with('\t') { at + TAB - at % TAB } else { at + 1 };
        rest = &rest[1..];
    }
    " ".repeat(at.saturating_sub(columns)) + rest
}

/// The language that the text after a fence names: `python title="x"`, `{.python .numbers}`, `{python}`, `py,ignore`.
fn language(information: &str) -> String {
    let text = information.trim();
    let text = text.strip_prefix('{').map_or(text, |inner| inner.trim_start().trim_start_matches('.'));
    let ends = |c: char| c.is_whitespace() || matches!(c, ',' | ':' | ';' | '{' | '}' | '=');
    let word = text.split(ends).next().unwrap_or_default();
    // The name of an attribute is no language.
    let word = if text[word.len()..].starts_with('=') { "" } else { word };
    word.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Vec<(String, String)> {
        Fences::of(text, |_| false).blocks.into_iter().map(|block| (block.language, block.code)).collect()
    }

    fn one(text: &str, language: &str, code: &str) {
        assert_eq!(blocks(text), [(language.to_owned(), code.to_owned())], "{text}");
    }

    #[test]
    fn fences_are_those_of_common_mark() {
        one("```\nx\n```", "", "x");
        one("~~~python\nx\n~~~", "python", "x");
        one("`````py\n```\nx\n```\n`````", "py", "```\nx\n```");
        one("~~~\n```\n~~~", "", "```");
        one("```\nx\n~~~\n````", "", "x\n~~~");
        one("   ```\n   x\n     y\n z\n  ```", "", "x\n  y\nz");
        one("```\nx\n    ```\ny\n```", "", "x\n    ```\ny");
        one("```\nx\n``` y\n```", "", "x\n``` y");
        one("```\n\nx\n  \n```", "", "\nx\n  ");
        one("```python\nx", "python", "x");
        one("```python\nx``` as asked", "python", "x");
        one("```\ns = '```'\n```", "", "s = '```'");
        for none in ["``\nx\n``", "    ```\n    x\n    ```", "``` a`b\nx", "x ```\ny"] {
            assert_eq!(blocks(none), [], "{none}");
        }
        assert_eq!(blocks("```\nx\n```\n~~~\ny\n~~~").len(), 2);
    }

    #[test]
    fn fences_in_lists_and_quotations_end_with_them() {
        one("1. The function:\n\n   ```python\n   def f():\n       pass\n   ```", "python", "def f():\n    pass");
        one("10) Text\n    ```\n    x\n    ```", "", "x");
        one("- ```py\n  x\n\n  y\n  ```", "py", "x\n\ny");
        one("* a\n  * b\n\n    ```\n    x\n    ```", "", "x");
        one("- a\n\n  ```\n  x\nText", "", "x");
        one("> ```\n> x\n>   y\n> ```", "", "x\n  y");
        one("> ```\n> x\ny", "", "x");
        one("1. a\n\n\t```\n\tx\n\t```", "", "x");
    }

    #[test]
    fn the_language_is_the_first_word() {
        for (information, name) in [
            ("", ""),
            (" Python ", "python"),
            ("python title=\"total.py\"", "python"),
            ("{.python}", "python"),
            ("{.python .numberLines startFrom=\"1\"}", "python"),
            ("{ .py }", "py"),
            ("{python}", "python"),
            ("python{1,3}", "python"),
            ("py:solution.py", "py"),
            ("title=\"x\"", ""),
        ] {
            assert_eq!(language(information), name, "{information}");
        }
    }
}
