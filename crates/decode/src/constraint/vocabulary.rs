//! A constraint's view of a tokenizer: the bytes that each token adds to an answer, and the tokens that end and fill it
//! (specs/structure.md#1 and specs/structure.md#4).

use demask_step::TokenId;

use super::bytes::{ByteAutomaton, ByteState};

/// A token as a constraint sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Text: the bytes that it adds to an answer after other tokens. One that adds none is never part of an answer.
    Text(Vec<u8>),
    /// The mask.
    Mask,
    /// An end, padding, or any other control token, which writes nothing.
    Special,
}

/// Tokens that end an answer, and those that may stand after an end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ends {
    /// Tokens that end an answer.
    pub ends: Vec<TokenId>,
    /// Tokens that may stand after an end, beside the ends.
    pub padding: Vec<TokenId>,
    /// The one of both lists that fills the positions after an end. Without any end it is never written.
    pub fill: TokenId,
}

/// Why tokens are no vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyError {
    /// A list names a token that is not there.
    #[error("{what} {token} is outside the vocabulary, expected ids below {tokens}: check the tokenizer")]
    OutOfRange {
        /// The list.
        what: &'static str,
        /// The token.
        token: TokenId,
        /// Number of tokens.
        tokens: usize,
    },
    /// The fill may not stand after an end.
    #[error("the fill {0} is neither an end nor padding: name it in one of the lists")]
    Fill(TokenId),
    /// The texts of tokens at the start are not those of the vocabulary.
    #[error("{found} texts of tokens at the start of an answer for {tokens} tokens: give one for each")]
    Start {
        /// Number of texts.
        found: usize,
        /// Number of tokens.
        tokens: usize,
    },
}

/// The tokens of a model, as constraints read them. Pure data, filled once for a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary {
    texts: Texts,
    /// Texts of tokens at the start of an answer, where the detokenizer writes them otherwise.
    start: Option<Texts>,
    /// Ascending.
    ends: Vec<TokenId>,
    /// Ascending, the ends among them.
    fills: Vec<TokenId>,
    fill: TokenId,
}

impl Vocabulary {
    /// Makes a vocabulary of the role of each token, by id. An end or padding is no text, whatever its role is.
    ///
    /// # Errors
    /// If a list names a token that is not there, or the fill is in neither.
    pub fn new(roles: &[Role], ends: Ends) -> Result<Self, VocabularyError> {
        let Ends { mut ends, padding, fill } = ends;
        for (what, list) in [("end", &ends), ("padding", &padding)] {
            if let Some(&token) = list.iter().find(|&&token| token as usize >= roles.len()) {
                return Err(VocabularyError::OutOfRange { what, token, tokens: roles.len() });
            }
        }
        let mut fills = [ends.clone(), padding].concat();
        for list in [&mut ends, &mut fills] {
            list.sort_unstable();
            list.dedup();
        }
        if !ends.is_empty() && fills.binary_search(&fill).is_err() {
            return Err(VocabularyError::Fill(fill));
        }
        let text = |(token, role): (TokenId, &Role)| match role {
            Role::Text(text) if fills.binary_search(&token).is_err() => text.clone(),
            Role::Text(_) | Role::Mask | Role::Special => Vec::new(),
        };
        let texts: Vec<Vec<u8>> = (0..).zip(roles).map(text).collect();
        Ok(Self { texts: Texts::new(&texts), start: None, ends, fills, fill })
    }

    /// Gives the texts that tokens add at the start of an answer, by id, where they differ there: a leading space that the
    /// detokenizer strips.
    ///
    /// # Errors
    /// If there is not one for each token.
    pub fn with_start(self, texts: &[Vec<u8>]) -> Result<Self, VocabularyError> {
        if texts.len() != self.tokens() {
            return Err(VocabularyError::Start { found: texts.len(), tokens: self.tokens() });
        }
        // What is no text elsewhere is none here.
        let text =
            |(token, text): (TokenId, &Vec<u8>)| if self.text(token).is_empty() { Vec::new() } else { text.clone() };
        let start: Vec<Vec<u8>> = (0..).zip(texts).map(text).collect();
        Ok(Self { start: Some(Texts::new(&start)), ..self })
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.texts.ends.len()
    }

    /// Returns the bytes that a token adds after others: none if it is no text, or there is no such token.
    pub fn text(&self, token: TokenId) -> &[u8] {
        self.texts.of(token)
    }

    /// Returns the tokens that end an answer, ascending.
    pub fn ends(&self) -> &[TokenId] {
        &self.ends
    }

    /// Returns the tokens that may stand after an end, ascending; ends are among them.
    pub fn fills(&self) -> &[TokenId] {
        &self.fills
    }

    /// Returns the token that fills the positions after an end.
    pub fn fill(&self) -> TokenId {
        self.fill
    }

    /// Reports whether every byte is a token: then no text takes more tokens than bytes.
    pub fn has_every_byte(&self) -> bool {
        let single = |&(start, end): &(u32, u32)| end - start == 1;
        let mut met = [false; 256];
        let bytes = self.texts.spans().filter(single).map(|(start, _)| self.texts.bytes[start as usize]);
        bytes.for_each(|byte| met[usize::from(byte)] = true);
        met == [true; 256]
    }

    /// Returns the texts of tokens after others, or at the start of an answer.
    pub(super) fn texts(&self, at_start: bool) -> &Texts {
        self.start.as_ref().filter(|_| at_start).unwrap_or(&self.texts)
    }

    /// Reports whether tokens at the start of an answer have texts of their own.
    pub(super) fn starts_apart(&self) -> bool {
        self.start.is_some()
    }
}

/// The bytes of all tokens, and a trie over those that have any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    /// End of each token's bytes.
    ends: Vec<u32>,
    /// Nodes in the order of a walk that visits a node before its children.
    nodes: Vec<Node>,
    /// Tokens by the node that they end at, in the order of the nodes.
    tokens: Vec<TokenId>,
}

/// A node of the trie: a byte after those of the nodes above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    byte: u8,
    /// Bytes up to and with this one.
    depth: u16,
    /// Node after its subtree.
    behind: u32,
    /// End of its tokens, which begin where those of the node before end.
    tokens: u32,
}

/// Longest text of a token whose bytes are looked at; a longer one is no text. The longest of real vocabularies has a few
/// hundred.
const LONGEST: usize = u16::MAX as usize;

impl Texts {
    fn new(texts: &[Vec<u8>]) -> Self {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(texts.len());
        for text in texts {
            if text.len() <= LONGEST {
                bytes.extend_from_slice(text);
            }
            ends.push(bytes.len() as u32);
        }
        let mut all = Self { bytes, ends, nodes: Vec::new(), tokens: Vec::new() };
        all.plant();
        all
    }

    /// Fills in the trie: texts in their order, each of which shares nodes with the one before.
    fn plant(&mut self) {
        let mut order: Vec<TokenId> =
            (0..self.ends.len() as TokenId).filter(|&token| !self.of(token).is_empty()).collect();
        order.sort_unstable_by(|&left, &right| self.of(left).cmp(self.of(right)).then(left.cmp(&right)));
        let (mut nodes, mut path): (Vec<Node>, Vec<usize>) = (Vec::new(), Vec::new());
        for &token in &order {
            let text = self.of(token);
            let shared = path.iter().zip(text).take_while(|&(&node, &byte)| nodes[node].byte == byte).count();
            for node in path.drain(shared..) {
                nodes[node].behind = nodes.len() as u32;
            }
            let before = nodes.last().map_or(0, |last| last.tokens);
            for &byte in &text[shared..] {
                path.push(nodes.len());
                nodes.push(Node { byte, depth: path.len() as u16, behind: 0, tokens: before });
            }
            // The text ends at the last node: it is new, or that of an equal text.
            if let Some(last) = nodes.last_mut() {
                last.tokens += 1;
            }
        }
        for node in path {
            nodes[node].behind = nodes.len() as u32;
        }
        (self.nodes, self.tokens) = (nodes, order);
    }

    fn spans(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(self.ends.iter().copied())
    }

    /// Returns a token's bytes.
    pub(super) fn of(&self, token: TokenId) -> &[u8] {
        let Some(&end) = self.ends.get(token as usize) else { return &[] };
        let start = (token as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }

    /// Walks the trie from a state and hands over each token that leads anywhere, with the state after it. A byte that leads
    /// nowhere skips all that begins so.
    pub(super) fn walk(&self, automaton: &ByteAutomaton, from: ByteState, mut each: impl FnMut(ByteState, TokenId)) {
        let mut states = vec![from];
        let mut index = 0;
        while let Some(node) = self.nodes.get(index) {
            states.truncate(usize::from(node.depth));
            let before = states.last().copied().unwrap_or(from);
            let Some(state) = automaton.next(before, node.byte) else {
                index = node.behind as usize;
                continue;
            };
            let first = index.checked_sub(1).map_or(0, |before| self.nodes[before].tokens);
            self.tokens[first as usize..node.tokens as usize].iter().for_each(|&token| each(state, token));
            states.push(state);
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Role {
        Role::Text(text.as_bytes().to_vec())
    }

    #[test]
    fn the_trie_has_every_text_once() {
        let roles = [text("ab"), text("b"), Role::Mask, text("a"), text(""), text("abc"), text("b"), Role::Special];
        let vocabulary = Vocabulary::new(&roles, Ends { ends: vec![7], padding: vec![], fill: 7 }).unwrap();
        assert_eq!(vocabulary.text(5), b"abc");
        assert!(vocabulary.text(2).is_empty() && vocabulary.text(99).is_empty());
        // Any string of a, b and c.
        let mut row = [None; 256];
        b"abc".iter().for_each(|&byte| row[usize::from(byte)] = Some(0));
        let all = ByteAutomaton::new(&[row], &[true]).unwrap();
        let mut found = Vec::new();
        vocabulary.texts(false).walk(&all, 0, |state, token| found.push((state, token)));
        found.sort_unstable();
        assert_eq!(found, [(0, 0), (0, 1), (0, 3), (0, 5), (0, 6)]);
        // Without b, all that begins with ab is skipped, and what follows is not.
        row[usize::from(b'b')] = None;
        let some = ByteAutomaton::new(&[row], &[true]).unwrap();
        found.clear();
        vocabulary.texts(false).walk(&some, 0, |state, token| found.push((state, token)));
        assert_eq!(found, [(0, 3)]);
    }

    #[test]
    fn lists_are_checked() {
        let roles = [text("a"), Role::Special];
        let lists =
            |ends: &[TokenId], fill| Vocabulary::new(&roles, Ends { ends: ends.to_vec(), padding: vec![], fill });
        assert!(lists(&[1], 1).is_ok() && lists(&[], 0).is_ok());
        assert_eq!(lists(&[1], 0), Err(VocabularyError::Fill(0)));
        assert_eq!(lists(&[2], 2), Err(VocabularyError::OutOfRange { what: "end", token: 2, tokens: 2 }));
        let vocabulary = lists(&[1], 1).unwrap();
        assert!(!vocabulary.has_every_byte());
        assert!(vocabulary.clone().with_start(&[]).is_err());
        let stripped = vocabulary.with_start(&[b"b".to_vec(), b"x".to_vec()]).unwrap();
        assert_eq!((stripped.texts(true).of(0), stripped.texts(true).of(1)), (&b"b"[..], &b""[..]));
        let bytes: Vec<Role> = (0..=255).map(|byte| Role::Text(vec![byte])).collect();
        assert!(Vocabulary::new(&bytes, Ends::default()).unwrap().has_every_byte());
    }
}
