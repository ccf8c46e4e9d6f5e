//! Parser from tokens to a tree that is nowhere deeper than [`DEEPEST`].

use std::rc::Rc;

use super::{
    DEEPEST, Error, LONGEST_SOURCE, Trouble,
    lexer::{Token, tokens},
    meter::Meter,
    tree::{
        Arguments, Comparison, Expression, ExpressionKind as Kind, Filters, For, Macro, Operator, Statement,
        StatementKind, Target, Uses,
    },
    value::Value,
};

/// Reads a source.
pub(super) fn parse(source: &str, meter: &Rc<Meter>) -> Result<Vec<Statement>, Error> {
    if source.len() > LONGEST_SOURCE {
        let found = source.len();
        let trouble = Trouble::Syntax(format!("it has {found} bytes, expected at most {LONGEST_SOURCE}"));
        return Err(Error { trouble, line: 1 });
    }
    let mut parser = Parser { tokens: tokens(source)?, at: 0, depth: 0, loops: 0, uses: Uses::default(), meter };
    let (statements, _) = parser.statements(&[])?;
    Ok(statements)
}

struct Parser<'a> {
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
    loops: usize,
    /// What the macro that is read uses so far.
    uses: Uses,
    meter: &'a Rc<Meter>,
}

type Parsed<T> = Result<T, Error>;

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn line(&self) -> usize {
        self.tokens[self.at].1
    }

    fn next(&mut self) -> Token {
        let token = std::mem::replace(&mut self.tokens[self.at].0, Token::End);
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn wrong<T>(&self, what: impl Into<String>) -> Parsed<T> {
        Err(Error { trouble: Trouble::Syntax(what.into()), line: self.line() })
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(found) if *found == sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(found) if found == word)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        if found {
            self.next();
        }
        found
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.takes(sign) { Ok(()) } else { self.wrong(format!("expected {sign}")) }
    }

    fn expect_end(&mut self) -> Parsed<()> {
        if *self.peek() == Token::BlockEnd {
            self.next();
            Ok(())
        } else {
            self.wrong("expected the end of the tag")
        }
    }

    fn name(&mut self) -> Parsed<String> {
        match self.next() {
            Token::Name(name) => Ok(name),
            _ => self.wrong("expected a name"),
        }
    }

    /// Runs what nests, unless it is too deep.
    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.wrong(format!("it nests more than {DEEPEST} deep"));
        }
        let result = work(self);
        self.depth -= 1;
        result
    }

    // Statements.

    /// Statements up to a tag with one of these words, and the word.
    fn statements(&mut self, ends: &[&str]) -> Parsed<(Vec<Statement>, String)> {
        let mut statements = Vec::new();
        loop {
            let line = self.line();
            match self.next() {
                Token::End if ends.is_empty() => return Ok((statements, String::new())),
                Token::End => return self.wrong(format!("expected {}", ends.join(" or "))),
                Token::Data(text) => {
                    self.meter.claim(text.len()).map_err(|trouble| Error { trouble, line })?;
                    statements.push(Statement { line, kind: StatementKind::Data(text) });
                }
                Token::PrintStart => {
                    let value = self.tuple_or_expression()?;
                    if self.next() != Token::PrintEnd {
                        return self.wrong("expected the end of the expression");
                    }
                    statements.push(Statement { line, kind: StatementKind::Print(value) });
                }
                Token::BlockStart => {
                    let word = self.name()?;
                    if ends.contains(&word.as_str()) {
                        return Ok((statements, word));
                    }
                    self.deeper(|parser| parser.statement(&word, line, &mut statements))?;
                }
                _ => return self.wrong("expected a tag"),
            }
        }
    }

    fn body(&mut self, end: &str) -> Parsed<Vec<Statement>> {
        let (body, _) = self.statements(&[end])?;
        self.expect_end()?;
        Ok(body)
    }

    fn statement(&mut self, word: &str, line: usize, statements: &mut Vec<Statement>) -> Parsed<()> {
        let kind = match word {
            "if" => self.condition()?,
            "for" => self.for_loop()?,
            "set" => self.set()?,
            "macro" => self.macro_definition()?,
            "call" => self.call_block(line)?,
            "filter" => {
                let filters = self.filters()?;
                self.expect_end()?;
                StatementKind::Filter(filters, self.body("endfilter")?)
            }
            "with" => self.with()?,
            "do" => {
                let value = self.tuple_or_expression()?;
                self.expect_end()?;
                StatementKind::Do(value)
            }
            // It marks what the assistant says and changes nothing.
            "generation" => {
                self.expect_end()?;
                statements.extend(self.body("endgeneration")?);
                return Ok(());
            }
            "break" | "continue" if self.loops > 0 => {
                self.expect_end()?;
                if word == "break" { StatementKind::Break } else { StatementKind::Continue }
            }
            "break" | "continue" => return self.wrong(format!("{word} stands outside of a loop")),
            "include" | "import" | "from" | "extends" | "block" => {
                return self.wrong(format!("{word} is not for chat templates, which are one file"));
            }
            other => return self.wrong(format!("unexpected tag {:?}", other.chars().take(40).collect::<String>())),
        };
        statements.push(Statement { line, kind });
        Ok(())
    }

    fn condition(&mut self) -> Parsed<StatementKind> {
        let mut branches = Vec::new();
        loop {
            let condition = self.expression()?;
            self.expect_end()?;
            let (body, word) = self.statements(&["elif", "else", "endif"])?;
            branches.push((condition, body));
            if word == "elif" {
                continue;
            }
            self.expect_end()?;
            let otherwise = if word == "else" { self.body("endif")? } else { Vec::new() };
            return Ok(StatementKind::If(branches, otherwise));
        }
    }

    fn for_loop(&mut self) -> Parsed<StatementKind> {
        let target = self.targets()?;
        if !self.takes_word("in") {
            return self.wrong("expected in");
        }
        let items = self.unconditional()?;
        let condition = if self.takes_word("if") { Some(self.expression()?) } else { None };
        let recursive = self.takes_word("recursive");
        self.expect_end()?;
        self.loops += 1;
        let (body, word) = self.statements(&["else", "endfor"])?;
        self.loops -= 1;
        self.expect_end()?;
        let otherwise = if word == "else" { self.body("endfor")? } else { Vec::new() };
        Ok(StatementKind::For(Rc::new(For { target, items, condition, recursive, body, otherwise })))
    }

    fn targets(&mut self) -> Parsed<Target> {
        let mut targets = Vec::new();
        let mut several = false;
        loop {
            if self.takes("(") {
                targets.push(self.deeper(Self::targets)?);
                self.expect(")")?;
            } else {
                let name = self.name()?;
                let attribute = if self.takes(".") { Some(self.name()?) } else { None };
                targets.push(match attribute {
                    Some(attribute) => Target::Attribute(name, attribute),
                    None => Target::Name(name),
                });
            }
            if !self.takes(",") {
                break;
            }
            several = true;
            if !matches!(self.peek(), Token::Name(_)) && !self.is("(") {
                break;
            }
        }
        if several {
            return Ok(Target::Several(targets));
        }
        targets.pop().map_or_else(|| self.wrong("expected a name"), Ok)
    }

    fn set(&mut self) -> Parsed<StatementKind> {
        let target = self.targets()?;
        if self.takes("=") {
            let value = self.tuple_or_expression()?;
            self.expect_end()?;
            return Ok(StatementKind::Set(target, value));
        }
        let filters = if self.takes("|") { self.filters()? } else { Vec::new() };
        self.expect_end()?;
        Ok(StatementKind::Capture(target, filters, self.body("endset")?))
    }

    fn filters(&mut self) -> Parsed<Filters> {
        let mut filters = Vec::new();
        loop {
            let name = self.name()?;
            let arguments = if self.takes("(") { self.arguments()?.0 } else { Arguments::default() };
            filters.push((name, arguments));
            if !self.takes("|") {
                return Ok(filters);
            }
        }
    }

    fn parameters(&mut self) -> Parsed<Vec<(String, Option<Expression>)>> {
        let mut parameters = Vec::new();
        self.expect("(")?;
        while !self.takes(")") {
            let name = self.name()?;
            let default = if self.takes("=") { Some(self.expression()?) } else { None };
            parameters.push((name, default));
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        Ok(parameters)
    }

    /// The statements of a macro, and what they use: loops around it are not its own.
    fn macro_body(&mut self, end: &str) -> Parsed<(Vec<Statement>, Uses)> {
        let loops = std::mem::take(&mut self.loops);
        let around = std::mem::take(&mut self.uses);
        let body = self.body(end)?;
        self.loops = loops;
        let uses = self.uses;
        self.uses = Uses {
            caller: around.caller || uses.caller,
            kwargs: around.kwargs || uses.kwargs,
            varargs: around.varargs || uses.varargs,
        };
        Ok((body, uses))
    }

    fn macro_definition(&mut self) -> Parsed<StatementKind> {
        let name = self.name()?;
        let parameters = self.parameters()?;
        self.expect_end()?;
        let (body, uses) = self.macro_body("endmacro")?;
        Ok(StatementKind::Macro(Rc::new(Macro { name, parameters, uses, body })))
    }

    fn call_block(&mut self, line: usize) -> Parsed<StatementKind> {
        let parameters = if self.is("(") { self.parameters()? } else { Vec::new() };
        let call = self.expression()?;
        self.expect_end()?;
        let (body, uses) = self.macro_body("endcall")?;
        if !matches!(*call.kind, Kind::Call(..)) {
            return Err(Error { trouble: Trouble::Syntax("call needs the call of a macro".to_owned()), line });
        }
        Ok(StatementKind::Call(call, Rc::new(Macro { name: "caller".to_owned(), parameters, uses, body })))
    }

    fn with(&mut self) -> Parsed<StatementKind> {
        let mut values = Vec::new();
        while *self.peek() != Token::BlockEnd {
            let name = self.name()?;
            self.expect("=")?;
            values.push((Target::Name(name), self.expression()?));
            if !self.takes(",") {
                break;
            }
        }
        self.expect_end()?;
        Ok(StatementKind::With(values, self.body("endwith")?))
    }

    // Expressions, from the loosest to the tightest.

    fn node(&self, line: usize, below: usize, kind: Kind) -> Parsed<Expression> {
        if below >= DEEPEST {
            return self.wrong(format!("it nests more than {DEEPEST} deep"));
        }
        self.meter.claim(128).map_err(|trouble| Error { trouble, line })?;
        Ok(Expression { line, depth: below + 1, kind: Box::new(kind) })
    }

    fn two(&self, kind: fn(Expression, Expression) -> Kind, a: Expression, b: Expression) -> Parsed<Expression> {
        let (line, depth) = (a.line, a.depth.max(b.depth));
        self.node(line, depth, kind(a, b))
    }

    /// An expression, or a tuple without brackets.
    fn tuple_or_expression(&mut self) -> Parsed<Expression> {
        let line = self.line();
        let first = self.expression()?;
        if !self.is(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.takes(",") {
            if matches!(self.peek(), Token::BlockEnd | Token::PrintEnd) {
                break;
            }
            items.push(self.expression()?);
        }
        self.node(line, deepest(&items), Kind::Tuple(items))
    }

    fn expression(&mut self) -> Parsed<Expression> {
        self.deeper(|parser| {
            let mut value = parser.unconditional()?;
            while parser.takes_word("if") {
                let condition = parser.unconditional()?;
                let otherwise = if parser.takes_word("else") { Some(parser.expression()?) } else { None };
                let below = otherwise.as_ref().map_or(0, |otherwise| otherwise.depth);
                let (line, below) = (value.line, below.max(value.depth).max(condition.depth));
                value = parser.node(line, below, Kind::Choice(value, condition, otherwise))?;
            }
            Ok(value)
        })
    }

    /// An expression without `if`.
    fn unconditional(&mut self) -> Parsed<Expression> {
        let mut left = self.conjunction()?;
        while self.takes_word("or") {
            let right = self.conjunction()?;
            left = self.two(Kind::Or, left, right)?;
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Parsed<Expression> {
        let mut left = self.negation()?;
        while self.takes_word("and") {
            let right = self.negation()?;
            left = self.two(Kind::And, left, right)?;
        }
        Ok(left)
    }

    fn negation(&mut self) -> Parsed<Expression> {
        let line = self.line();
        if self.takes_word("not") {
            let value = self.deeper(Self::negation)?;
            return self.node(line, value.depth, Kind::Not(value));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Parsed<Expression> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let comparison = match self.peek() {
                Token::Sign("==") => Comparison::Equal,
                Token::Sign("!=") => Comparison::NotEqual,
                Token::Sign("<") => Comparison::Less,
                Token::Sign("<=") => Comparison::LessOrEqual,
                Token::Sign(">") => Comparison::Greater,
                Token::Sign(">=") => Comparison::GreaterOrEqual,
                Token::Name(word) if word == "in" => Comparison::In,
                Token::Name(word) if word == "not" => Comparison::NotIn,
                _ => break,
            };
            self.next();
            if comparison == Comparison::NotIn && !self.takes_word("in") {
                return self.wrong("expected in behind not");
            }
            rest.push((comparison, self.sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let below = rest.iter().map(|(_, value)| value.depth).max().unwrap_or(0).max(first.depth);
        self.node(first.line, below, Kind::Compare(first, rest))
    }

    fn chain(
        &mut self,
        operators: &[(&str, Operator)],
        below: fn(&mut Self) -> Parsed<Expression>,
    ) -> Parsed<Expression> {
        let mut left = below(self)?;
        while let Some((sign, operator)) = operators.iter().find(|(sign, _)| self.is(sign)).copied() {
            self.expect(sign)?;
            let right = below(self)?;
            let (line, depth) = (left.line, left.depth.max(right.depth));
            left = self.node(line, depth, Kind::Binary(operator, left, right))?;
        }
        Ok(left)
    }

    fn sum(&mut self) -> Parsed<Expression> {
        self.chain(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::joined)
    }

    fn joined(&mut self) -> Parsed<Expression> {
        self.chain(&[("~", Operator::Join)], Self::product)
    }

    fn product(&mut self) -> Parsed<Expression> {
        let operators =
            [("*", Operator::Multiply), ("/", Operator::Divide), ("//", Operator::Floor), ("%", Operator::Remainder)];
        self.chain(&operators, Self::power)
    }

    fn power(&mut self) -> Parsed<Expression> {
        self.chain(&[("**", Operator::Power)], |parser| parser.signed(true))
    }

    /// A value behind its signs. Filters and tests are of the signed value, attributes of the value itself.
    fn signed(&mut self, filtered: bool) -> Parsed<Expression> {
        let line = self.line();
        let negative = self.is("-");
        let value = if negative || self.is("+") {
            self.next();
            let value = self.deeper(|parser| parser.signed(false))?;
            self.node(line, value.depth, if negative { Kind::Negative(value) } else { Kind::Positive(value) })?
        } else {
            self.primary()?
        };
        self.postfix(value, filtered)
    }

    fn constant(&mut self, line: usize, value: Value) -> Parsed<Expression> {
        self.node(line, 0, Kind::Constant(value))
    }

    fn primary(&mut self) -> Parsed<Expression> {
        let line = self.line();
        match self.next() {
            Token::Int(number) => self.constant(line, Value::Int(number)),
            Token::Float(number) => self.constant(line, Value::Float(number)),
            Token::Text(mut text) => {
                // Neighbours are one text, as in Python.
                while let Token::Text(more) = self.peek() {
                    text.push_str(more);
                    self.next();
                }
                let value = self.meter.text(text).map_err(|trouble| Error { trouble, line })?;
                self.constant(line, value)
            }
            Token::Name(name) => match name.as_str() {
                "true" | "True" => self.constant(line, Value::Bool(true)),
                "false" | "False" => self.constant(line, Value::Bool(false)),
                "none" | "None" => self.constant(line, Value::None),
                _ => {
                    match name.as_str() {
                        "caller" => self.uses.caller = true,
                        "kwargs" => self.uses.kwargs = true,
                        "varargs" => self.uses.varargs = true,
                        _ => {}
                    }
                    self.node(line, 0, Kind::Name(name))
                }
            },
            Token::Sign("(") => self.deeper(|parser| parser.bracketed(line)),
            Token::Sign("[") => self.deeper(|parser| {
                let items = parser.items("]")?;
                parser.node(line, deepest(&items), Kind::List(items))
            }),
            Token::Sign("{") => self.deeper(|parser| parser.dictionary(line)),
            _ => {
                self.at = self.at.saturating_sub(1);
                self.wrong("expected a value")
            }
        }
    }

    fn bracketed(&mut self, line: usize) -> Parsed<Expression> {
        if self.takes(")") {
            return self.node(line, 0, Kind::Tuple(Vec::new()));
        }
        let first = self.expression()?;
        if self.takes(")") {
            return Ok(first);
        }
        self.expect(",")?;
        let mut items = vec![first];
        items.extend(self.items(")")?);
        self.node(line, deepest(&items), Kind::Tuple(items))
    }

    fn items(&mut self, end: &str) -> Parsed<Vec<Expression>> {
        let mut items = Vec::new();
        while !self.takes(end) {
            items.push(self.expression()?);
            if !self.is(end) {
                self.expect(",")?;
            }
        }
        Ok(items)
    }

    fn dictionary(&mut self, line: usize) -> Parsed<Expression> {
        let (mut items, mut below) = (Vec::new(), 0);
        while !self.takes("}") {
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            below = below.max(key.depth).max(value.depth);
            items.push((key, value));
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        self.node(line, below, Kind::Map(items))
    }

    fn postfix(&mut self, mut value: Expression, filtered: bool) -> Parsed<Expression> {
        loop {
            let line = self.line();
            let depth = value.depth;
            value = if self.takes(".") {
                match self.next() {
                    Token::Name(name) => self.node(line, depth, Kind::Attribute(value, name))?,
                    Token::Int(index) => {
                        let index = self.constant(line, Value::Int(index))?;
                        self.two(Kind::Item, value, index)?
                    }
                    _ => return self.wrong("expected a name behind the dot"),
                }
            } else if self.takes("[") {
                self.deeper(|parser| parser.subscript(value, line))?
            } else if self.takes("(") {
                let (arguments, below) = self.arguments()?;
                self.node(line, depth.max(below), Kind::Call(value, arguments))?
            } else if filtered && self.takes("|") {
                let name = self.name()?;
                let (arguments, below) = if self.takes("(") { self.arguments()? } else { Default::default() };
                self.node(line, depth.max(below), Kind::Filter(value, name, arguments))?
            } else if filtered && self.takes_word("is") {
                self.test(value, line)?
            } else {
                return Ok(value);
            };
        }
    }

    fn test(&mut self, value: Expression, line: usize) -> Parsed<Expression> {
        let negated = self.takes_word("not");
        let name = self.name()?;
        let starts = match self.peek() {
            Token::Text(_) | Token::Int(_) | Token::Float(_) => true,
            Token::Sign(sign) => matches!(*sign, "[" | "{"),
            Token::Name(word) => {
                !matches!(word.as_str(), "else" | "or" | "and" | "is" | "not" | "if" | "in" | "recursive")
            }
            _ => false,
        };
        let (arguments, below) = if self.takes("(") {
            self.arguments()?
        } else if starts {
            let only = self.deeper(|parser| {
                let base = parser.primary()?;
                parser.postfix(base, false)
            })?;
            let depth = only.depth;
            (Arguments { positional: vec![only], ..Arguments::default() }, depth)
        } else {
            Default::default()
        };
        let depth = value.depth.max(below);
        self.node(line, depth, Kind::Test(value, name, arguments, negated))
    }

    fn subscript(&mut self, value: Expression, line: usize) -> Parsed<Expression> {
        let mut bounds = [None, None, None];
        let mut place = 0;
        let mut slices = false;
        loop {
            if self.takes("]") {
                break;
            }
            if self.takes(":") {
                slices = true;
                place += 1;
                if place == bounds.len() {
                    return self.wrong("a slice has at most 3 parts");
                }
                continue;
            }
            if bounds[place].is_some() {
                return self.wrong("expected ]");
            }
            bounds[place] = Some(self.expression()?);
        }
        let below = bounds.iter().flatten().map(|bound| bound.depth).max().unwrap_or(0).max(value.depth);
        if slices {
            return self.node(line, below, Kind::Slice(value, bounds));
        }
        let [Some(index), ..] = bounds else { return self.wrong("expected an index") };
        self.node(line, below, Kind::Item(value, index))
    }

    /// Arguments behind the opening bracket, and how deep they are.
    fn arguments(&mut self) -> Parsed<(Arguments, usize)> {
        let mut arguments = Arguments::default();
        let mut below = 0;
        while !self.takes(")") {
            let (star, stars) = (self.takes("*"), self.takes("**"));
            if (arguments.stars.is_some() && !stars) || (star && arguments.star.is_some()) {
                return self.wrong("an argument stands behind ** or a second *");
            }
            let value = self.expression()?;
            below = below.max(value.depth);
            match *value.kind {
                _ if star => arguments.star = Some(value),
                _ if stars && arguments.stars.is_some() => return self.wrong("a call has two **"),
                _ if stars => arguments.stars = Some(value),
                Kind::Name(ref name) if self.is("=") => {
                    let name = name.clone();
                    self.expect("=")?;
                    let value = self.expression()?;
                    below = below.max(value.depth);
                    if arguments.named.iter().any(|(known, _)| *known == name) {
                        return self.wrong(format!("the argument {name} is given twice"));
                    }
                    arguments.named.push((name, value));
                }
                _ if !arguments.named.is_empty() || arguments.star.is_some() => {
                    return self.wrong("an argument without a name stands behind one with a name or behind *");
                }
                _ => arguments.positional.push(value),
            }
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        Ok((arguments, below))
    }
}

fn deepest(items: &[Expression]) -> usize {
    items.iter().map(|item| item.depth).max().unwrap_or(0)
}
