//! Regular expressions as automata over characters.

use regex_syntax::{
    ast::{self, Ast, Visitor},
    hir::{Class, Hir, HirKind, Look},
};

use super::{
    automaton::{Dfa, Fuel, Kind, Nfa, Node},
    error::ConstraintError,
};

/// Deepest nesting of a pattern's groups and repetitions.
const NESTING: u32 = 64;

/// Most classes of a pattern: some of Unicode's have hundreds of ranges.
const CLASSES: usize = 2_048;

/// Longest pattern, in bytes.
pub(super) const LONGEST: usize = 64 << 10;

/// The last character.
const LAST: u32 = char::MAX as u32;

/// Which texts a pattern stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reach {
    /// Those that it matches as a whole.
    Whole,
    /// Those in which it matches anywhere.
    Anywhere,
}

/// Returns the texts of a pattern in the syntax of the crate `regex`, with the empty set of flags and Unicode.
pub(super) fn automaton(pattern: &str, reach: Reach, fuel: &mut Fuel) -> Result<Dfa, ConstraintError> {
    if pattern.len() > LONGEST {
        let reason = format!("it has {} bytes, expected at most {LONGEST}", pattern.len());
        return Err(ConstraintError::Pattern { position: LONGEST, reason });
    }
    let hir = parse(pattern)?;
    let mut builder = Builder { nfa: Nfa::default(), pattern, fuel };
    let accept = builder.nfa.add(Kind::Accept)?;
    let start = match reach {
        Reach::Whole => builder.node(&hir, accept)?,
        Reach::Anywhere => {
            let after = builder.anything(accept)?;
            let found = builder.node(&hir, after)?;
            builder.anything(found)?
        }
    };
    builder.nfa.determinize(start, builder.fuel)?.minimal(builder.fuel)
}

fn refused(position: usize, reason: impl Into<String>) -> ConstraintError {
    ConstraintError::Pattern { position, reason: reason.into() }
}

fn parse(pattern: &str) -> Result<Hir, ConstraintError> {
    let mut parser = ast::parse::ParserBuilder::new();
    let ast = parser.nest_limit(NESTING).build().parse(pattern).map_err(|error| {
        let what = error.kind().to_string();
        let hint = match error.kind() {
            ast::ErrorKind::UnsupportedLookAround => ": put into the pattern what it looks for",
            ast::ErrorKind::UnsupportedBackreference => ": no automaton remembers what a group has matched",
            _ => "",
        };
        refused(error.span().start.offset, what + hint)
    })?;
    ast::visit(&ast, Refusals::default())?;
    let translator = regex_syntax::hir::translate::TranslatorBuilder::new();
    translator
        .build()
        .translate(pattern, &ast)
        .map_err(|error| refused(error.span().start.offset, error.kind().to_string()))
}

/// Looks for what no automaton over texts has, before much memory is taken.
#[derive(Default)]
struct Refusals {
    classes: usize,
}

impl Refusals {
    fn class(&mut self, span: &ast::Span) -> Result<(), ConstraintError> {
        self.classes += 1;
        if self.classes > CLASSES {
            return Err(refused(span.start.offset, format!("it has more than {CLASSES} classes of characters")));
        }
        Ok(())
    }
}

impl Visitor for Refusals {
    type Output = ();
    type Err = ConstraintError;

    fn finish(self) -> Result<(), ConstraintError> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), ConstraintError> {
        match ast {
            Ast::Assertion(assertion) => match assertion.kind {
                ast::AssertionKind::StartLine
                | ast::AssertionKind::EndLine
                | ast::AssertionKind::StartText
                | ast::AssertionKind::EndText => Ok(()),
                _ => Err(refused(assertion.span.start.offset, "word boundaries are not supported: leave it out")),
            },
            Ast::ClassPerl(_) | Ast::ClassUnicode(_) | Ast::ClassBracketed(_) | Ast::Dot(_) => self.class(ast.span()),
            _ => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), ConstraintError> {
        match item {
            ast::ClassSetItem::Perl(_) | ast::ClassSetItem::Unicode(_) | ast::ClassSetItem::Bracketed(_) => {
                self.class(item.span())
            }
            _ => Ok(()),
        }
    }
}

/// Builds nodes from the end of a pattern to its start.
struct Builder<'a> {
    nfa: Nfa,
    pattern: &'a str,
    fuel: &'a mut Fuel,
}

impl Builder<'_> {
    /// Any text, then `next`.
    fn anything(&mut self, next: Node) -> Result<Node, ConstraintError> {
        let again = self.nfa.hole()?;
        let any = self.nfa.edges(&[(0, LAST, again)])?;
        let kind = self.nfa.split_kind(&[any, next]);
        self.nfa.fill(again, kind);
        Ok(again)
    }

    fn node(&mut self, hir: &Hir, next: Node) -> Result<Node, ConstraintError> {
        self.fuel.spend(1)?;
        match hir.kind() {
            HirKind::Empty => Ok(next),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0)
                    .map_err(|_| refused(0, "it matches bytes that are no UTF-8: leave (?-u) out"))?;
                text.chars()
                    .rev()
                    .try_fold(next, |next, symbol| self.nfa.edges(&[(symbol as u32, symbol as u32, next)]))
            }
            HirKind::Class(class) => {
                let ranges: Vec<(u32, u32, Node)> = match class {
                    Class::Unicode(class) => {
                        class.iter().map(|range| (range.start() as u32, range.end() as u32, next)).collect()
                    }
                    Class::Bytes(class) => {
                        class.iter().map(|range| (u32::from(range.start()), u32::from(range.end()), next)).collect()
                    }
                };
                self.fuel.spend(ranges.len())?;
                self.nfa.edges(&ranges)
            }
            HirKind::Look(Look::Start) => self.nfa.add(Kind::AtStart(next)),
            HirKind::Look(Look::End) => self.nfa.add(Kind::AtEnd(next)),
            HirKind::Look(_) => {
                let position = self.pattern.find("(?").unwrap_or_default();
                Err(refused(position, "anchors of lines are not supported: leave the flag m out"))
            }
            HirKind::Capture(capture) => self.node(&capture.sub, next),
            HirKind::Concat(parts) => parts.iter().rev().try_fold(next, |next, part| self.node(part, next)),
            HirKind::Alternation(parts) => {
                let nodes: Vec<Node> = parts.iter().map(|part| self.node(part, next)).collect::<Result<_, _>>()?;
                self.nfa.split(&nodes)
            }
            HirKind::Repetition(repetition) => self.repetition(&repetition.sub, repetition.min, repetition.max, next),
        }
    }

    fn repetition(&mut self, sub: &Hir, min: u32, max: Option<u32>, next: Node) -> Result<Node, ConstraintError> {
        let mut node = next;
        match max {
            None => {
                let again = self.nfa.hole()?;
                let once = self.node(sub, again)?;
                let kind = self.nfa.split_kind(&[once, next]);
                self.nfa.fill(again, kind);
                node = again;
            }
            Some(max) => {
                for _ in min..max {
                    let once = self.node(sub, node)?;
                    node = self.nfa.split(&[once, next])?;
                }
            }
        }
        for _ in 0..min {
            node = self.node(sub, node)?;
        }
        Ok(node)
    }
}
