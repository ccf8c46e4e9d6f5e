//! The texts of values that hold a shape.

use std::{collections::HashSet, rc::Rc};

use super::{
    super::{
        automaton::{Dfa, Operation},
        decimal, ecma,
        error::ConstraintError,
        grammar::{Expr, Grammar, List, Record, Spelling},
        json::Json,
        pattern::{self, Reach},
    },
    document::Place,
    formats,
    shape::{ALL, ARRAY, BOOL, FRACTION, INTEGER, NULL, NUMBER, OBJECT, Part, STRING, Shape, is_true, type_of},
    translator::Translator,
};

/// Most patterns for the keys of one map: every set of them is a case.
const KEY_PATTERNS: usize = 5;

impl<'a> Translator<'a, '_> {
    /// The texts of values that hold all of these parts.
    pub(super) fn value(&mut self, parts: &[Part]) -> Result<Expr, ConstraintError> {
        if parts.is_empty() {
            let depth = self.limits.depth.saturating_sub(1);
            return self.any(depth);
        }
        if let Some(&known) = self.values.get(parts) {
            return Ok(known);
        }
        let mut texts = Vec::new();
        for alternative in self.open(parts)? {
            let known = self.values.get(&alternative).copied();
            let made = known.map_or_else(|| self.deeper(|translator| translator.alternative(&alternative)), Ok)?;
            self.values.insert(alternative, made);
            texts.push(made);
        }
        let texts = self.grammar.union(&texts);
        self.values.insert(parts.to_vec(), texts);
        Ok(texts)
    }

    fn alternative(&mut self, parts: &[Part]) -> Result<Expr, ConstraintError> {
        let mut ignored = Vec::new();
        let mut shape = Shape::new(self.document, parts, &mut ignored, self.fuel)?;
        self.ignored.extend(ignored);
        let place = shape.plains.first().map_or(0, |plain| plain.place);
        if let Some(values) = shape.values.take() {
            return self.enumerated(&shape, &values, place);
        }
        if !shape.is_typed && shape.stated == 0 && shape.types == ALL {
            self.narrow(place, format!("values are nested at most {} deep", self.limits.depth));
            return self.any(self.limits.depth);
        }
        if !shape.is_typed && shape.stated != 0 {
            shape.types &= shape.stated;
            self.narrow(place, "without a type, values are of the type that keywords are about".to_owned());
        }
        for (types, keyword, place, reason) in &shape.refused {
            let is_single = *keyword == "uniqueItems" && shape.max_items.is_some_and(|max| max <= 1);
            if types & shape.types != 0 && !is_single {
                return Err(self.document.refused(*place, keyword, reason.as_str()));
            }
        }
        let mut texts = Vec::new();
        if shape.types & NULL != 0 {
            texts.push(self.grammar.bytes("null"));
        }
        if shape.types & BOOL != 0 {
            texts.extend([self.grammar.bytes("true"), self.grammar.bytes("false")]);
        }
        if shape.types & NUMBER != 0 {
            texts.push(self.number(&shape, place)?);
        }
        if shape.types & STRING != 0 {
            let characters = self.characters(&shape, place)?;
            texts.push(self.quoted(&characters));
        }
        if shape.types & ARRAY != 0 {
            texts.push(self.array(&shape, place)?);
        }
        if shape.types & OBJECT != 0 {
            texts.push(self.object(&shape, place)?);
        }
        Ok(self.grammar.union(&texts))
    }

    /// Any value, nested so deep at most.
    fn any(&mut self, depth: u8) -> Result<Expr, ConstraintError> {
        if let Some(&known) = self.anything.get(depth as usize) {
            return Ok(known);
        }
        let below = if depth == 0 { Grammar::NEVER } else { self.any(depth - 1)? };
        let text = self.any_text()?;
        let text = self.quoted(&text);
        let number = self.range(&decimal::Range::default(), false)?;
        let mut texts = vec![text, self.grammar.text(&number, Spelling::Plain)];
        texts.extend(["null", "true", "false"].map(|word| self.grammar.bytes(word)));
        if depth > 0 {
            let pair = self.grammar.concat(&[text, self.layout.colon, below]);
            for (brackets, rest) in [(self.layout.array, below), (self.layout.object, pair)] {
                texts.push(self.grammar.list(List { brackets, items: Vec::new(), rest, min: 0, max: None }));
            }
        }
        let texts = self.grammar.union(&texts);
        self.anything.push(texts);
        Ok(texts)
    }

    fn enumerated(&mut self, shape: &Shape<'a>, values: &[&'a Json], place: Place) -> Result<Expr, ConstraintError> {
        let mut texts = Vec::new();
        for &value in values {
            if self.denies(shape, value, 1)? {
                continue;
            }
            let own = type_of(value);
            if own & (ARRAY | OBJECT) & shape.stated != 0 {
                let reason = "has arrays or objects next to keywords about them: leave these keywords out";
                return Err(self.document.refused(place, "enum", reason));
            }
            for (types, keyword, place, reason) in &shape.refused {
                if types & own != 0 {
                    return Err(self.document.refused(*place, keyword, reason.as_str()));
                }
            }
            texts.push(self.literal(value)?);
        }
        Ok(self.grammar.union(&texts))
    }

    /// One value.
    fn literal(&mut self, value: &Json) -> Result<Expr, ConstraintError> {
        self.fuel.spend(1)?;
        Ok(match value {
            Json::Null => self.grammar.bytes("null"),
            Json::Bool(value) => self.grammar.bytes(value.to_string()),
            Json::Integer(_) | Json::Float(_) => self.grammar.bytes(value.decimal().unwrap_or_default()),
            Json::String(text) => self.grammar.bytes(spelled(text)),
            Json::Array(items) => {
                let items = items.iter().map(|item| self.literal(item)).collect::<Result<Vec<_>, _>>()?;
                let min = items.len() as u32;
                self.grammar.list(List { brackets: self.layout.array, items, rest: Grammar::NEVER, min, max: None })
            }
            Json::Object(pairs) => {
                let mut items = Vec::new();
                for (name, value) in pairs {
                    let value = self.literal(value)?;
                    items.push(self.pair(name, value));
                }
                let min = items.len() as u32;
                self.grammar.list(List { brackets: self.layout.object, items, rest: Grammar::NEVER, min, max: None })
            }
        })
    }

    fn pair(&mut self, name: &str, value: Expr) -> Expr {
        let name = self.grammar.bytes(spelled(name));
        self.grammar.concat(&[name, self.layout.colon, value])
    }

    fn quoted(&mut self, characters: &Rc<Dfa>) -> Expr {
        let spelling = if self.limits.short { Spelling::Short } else { Spelling::Quoted };
        let quote = self.grammar.bytes("\"");
        let inside = self.grammar.text(characters, spelling);
        self.grammar.concat(&[quote, inside, quote])
    }

    fn number(&mut self, shape: &Shape<'a>, place: Place) -> Result<Expr, ConstraintError> {
        let integer = shape.types & FRACTION == 0;
        if shape.range.is_empty() {
            return Ok(Grammar::NEVER);
        }
        if shape.range.low.is_none() || shape.range.high.is_none() || !integer {
            let fraction = if integer { String::new() } else { format!(", fractions at most {}", decimal::FRACTION) };
            self.narrow(place, format!("numbers have at most {} digits{fraction}", decimal::WHOLE));
        }
        let mut texts = self.range(&shape.range, integer)?;
        if shape.types & INTEGER == 0 {
            // A fraction of few enough digits is none that a parser rounds to an integer.
            let fraction = r"-?[0-9]{1,8}\.[0-9]{0,3}[1-9][0-9]{0,3}";
            let fraction = pattern::automaton(fraction, Reach::Whole, self.fuel)?;
            texts = Rc::new(texts.combine(Operation::And, &fraction, self.fuel)?);
        }
        Ok(self.grammar.text(&texts, Spelling::Plain))
    }

    fn range(&mut self, range: &decimal::Range, integer: bool) -> Result<Rc<Dfa>, ConstraintError> {
        let key = (range.clone(), integer);
        if let Some(known) = self.ranges.get(&key) {
            return Ok(known.clone());
        }
        let made = Rc::new(range.automaton(integer, self.fuel)?);
        self.ranges.insert(key, made.clone());
        Ok(made)
    }

    /// Any characters.
    pub(super) fn any_text(&mut self) -> Result<Rc<Dfa>, ConstraintError> {
        self.whole("(?s:.)*")
    }

    /// The texts of a pattern of ours.
    fn whole(&mut self, text: &str) -> Result<Rc<Dfa>, ConstraintError> {
        if let Some(known) = self.wholes.get(text) {
            return Ok(known.clone());
        }
        let made = Rc::new(pattern::automaton(text, Reach::Whole, self.fuel)?);
        self.wholes.insert(text.to_owned(), made.clone());
        Ok(made)
    }

    /// The texts in which a schema's pattern is found.
    pub(super) fn pattern(&mut self, text: &'a str, place: Place, keyword: &str) -> Result<Rc<Dfa>, ConstraintError> {
        if let Some(known) = self.patterns.get(text) {
            return Ok(known.clone());
        }
        let made = ecma::translate(text).and_then(|text| pattern::automaton(&text, Reach::Anywhere, self.fuel));
        let made = Rc::new(made.map_err(|error| match error {
            ConstraintError::Pattern { position, reason } => {
                let reason = format!("is not usable at byte {position} or near it: {reason}");
                self.document.refused(place, keyword, reason)
            }
            other => other,
        })?);
        self.patterns.insert(text, made.clone());
        Ok(made)
    }

    /// The characters of strings that hold a shape.
    fn characters(&mut self, shape: &Shape<'a>, place: Place) -> Result<Rc<Dfa>, ConstraintError> {
        let (min, mut max) = (shape.min_length, shape.max_length);
        if self.limits.short {
            self.narrow(place, "strings have no escapes by code".to_owned());
        }
        if max.is_some_and(|max| max < min) {
            return self.whole(NOTHING);
        }
        let most = self.limits.length.max(min);
        if max.is_some_and(|max| max > most) {
            max = Some(most);
            self.narrow(place, format!("strings have at most {most} characters"));
        }
        let mut texts = match (min, max) {
            (0, None) => self.any_text()?,
            (min, max) => {
                self.whole(&format!("(?s:.){{{min},{}}}", max.map_or(String::new(), |max| max.to_string())))?
            }
        };
        for &(pattern, place) in &shape.patterns {
            let pattern = self.pattern(pattern, place, "pattern")?;
            texts = self.both(&texts, &pattern)?;
        }
        for &(format, place) in &shape.formats {
            let Some(pattern) = formats::pattern(format) else {
                self.ignored.insert((place, format!("format {format}")));
                continue;
            };
            let pattern = self.whole(pattern)?;
            let both = self.both(&texts, &pattern)?;
            if both.is_empty() {
                self.ignored.insert((place, format!("format {format}")));
            } else {
                self.narrow(place, format!("a narrow form of {format}"));
                texts = both;
            }
        }
        Ok(texts)
    }

    fn both(&mut self, left: &Rc<Dfa>, right: &Rc<Dfa>) -> Result<Rc<Dfa>, ConstraintError> {
        let key = (Rc::as_ptr(left), Rc::as_ptr(right));
        if let Some(known) = self.products.get(&key) {
            return Ok(known.2.clone());
        }
        let made = Rc::new(left.combine(Operation::And, right, self.fuel)?);
        self.products.insert(key, (left.clone(), right.clone(), made.clone()));
        Ok(made)
    }

    fn array(&mut self, shape: &Shape<'a>, place: Place) -> Result<Expr, ConstraintError> {
        let (mut prefix, mut max) = (0, shape.max_items);
        for plain in &shape.plains {
            for keyword in ["prefixItems", "items"] {
                if let Some(Json::Array(items)) = plain.schema.get(keyword) {
                    prefix = prefix.max(items.len());
                }
            }
        }
        let most = self.limits.items.max(shape.min_items);
        if max.is_some_and(|max| max > most) {
            max = Some(most);
            self.narrow(place, format!("arrays have at most {most} items"));
        }
        prefix = prefix.min(max.map_or(usize::MAX, |max| max as usize));
        let mut items = Vec::new();
        for at in 0..=prefix {
            let mut parts = Vec::new();
            for plain in &shape.plains {
                let lists = [plain.schema.get("prefixItems"), plain.schema.get("items")];
                let list = lists.into_iter().flatten().find_map(Json::array).unwrap_or_default();
                let is_list = matches!(lists[1], Some(Json::Array(_)));
                let rest = if is_list { plain.schema.get("additionalItems") } else { lists[1] };
                parts.extend(list.get(at).or(rest).map(|schema| plain.below(self.document, schema)));
            }
            let unused = max.is_some_and(|max| at >= max as usize);
            items.push(if unused { Grammar::NEVER } else { self.value(&parts)? });
        }
        let rest = items.pop().unwrap_or(Grammar::NEVER);
        Ok(self.grammar.list(List { brackets: self.layout.array, items, rest, min: shape.min_items, max }))
    }

    /// Returns a shape's schemas of a property: those that list it, those whose patterns its name has, and those for
    /// others.
    pub(super) fn property(&mut self, shape: &Shape<'a>, name: &str) -> Result<Vec<Part>, ConstraintError> {
        let mut parts = Vec::new();
        for plain in &shape.plains {
            self.fuel.spend(40)?;
            let mut of_name: Vec<&'a Json> = plain.listed.get(name).copied().into_iter().collect();
            for (pattern, schema) in plain.schema.get("patternProperties").and_then(Json::object).into_iter().flatten()
            {
                if self.pattern(pattern, plain.place, "patternProperties")?.contains(name.chars().map(u32::from)) {
                    of_name.push(schema);
                }
            }
            if of_name.is_empty() {
                of_name.extend(plain.schema.get("additionalProperties"));
            }
            parts.extend(of_name.into_iter().map(|schema| plain.below(self.document, schema)));
        }
        Ok(parts)
    }

    fn object(&mut self, shape: &Shape<'a>, place: Place) -> Result<Expr, ConstraintError> {
        let mut names: Vec<&str> = Vec::new();
        let mut met = HashSet::new();
        for plain in &shape.plains {
            let listed = plain.schema.get("properties").and_then(Json::object).unwrap_or_default();
            names.extend(listed.iter().map(|pair| pair.0.as_str()).filter(|name| met.insert(*name)));
        }
        names.extend(shape.required.iter().map(|name| &**name).filter(|name| met.insert(*name)));
        if names.is_empty() {
            return self.map(shape, place);
        }
        let closed = shape.plains.iter().any(|plain| {
            let others = plain.schema.get("patternProperties").and_then(Json::object).unwrap_or_default();
            plain.schema.get("additionalProperties") == Some(&Json::Bool(false)) && others.is_empty()
        });
        if !closed {
            self.narrow(place, "properties that are not listed are left out".to_owned());
        }
        let keys = self.keys(shape)?;
        let required: HashSet<&str> = shape.required.iter().map(|name| &**name).collect();
        let mut pairs = Vec::new();
        for name in names {
            let mut value = Grammar::NEVER;
            if !shape.absent.iter().any(|absent| **absent == *name) && keys.contains(name.chars().map(u32::from)) {
                let parts = self.property(shape, name)?;
                value = self.value(&parts)?;
            }
            let pair = self.pair(name, value);
            pairs.push((pair, required.contains(name)));
        }
        let (min, max) = (shape.min_properties, shape.max_properties.unwrap_or(u32::MAX));
        Ok(self.grammar.record(Record { brackets: self.layout.object, pairs, min, max }))
    }

    /// Names that properties may have.
    fn keys(&mut self, shape: &Shape<'a>) -> Result<Rc<Dfa>, ConstraintError> {
        let mut keys = self.any_text()?;
        for plain in &shape.plains {
            let Some(names) = plain.schema.get("propertyNames").filter(|schema| !is_true(schema)) else { continue };
            let mut allowed = self.whole(NOTHING)?;
            for parts in self.open(&[plain.below(self.document, names)])? {
                let mut ignored = Vec::new();
                let mut names = Shape::new(self.document, &parts, &mut ignored, self.fuel)?;
                self.ignored.extend(ignored);
                if names.types & STRING == 0 {
                    continue;
                }
                let texts = match names.values.take() {
                    Some(values) => self.listed(&names, &values)?,
                    None => self.characters(&names, plain.place)?,
                };
                allowed = Rc::new(allowed.combine(Operation::Or, &texts, self.fuel)?);
            }
            keys = self.both(&keys, &allowed)?;
        }
        Ok(keys)
    }

    /// Those of these values that are strings and hold a shape.
    fn listed(&mut self, shape: &Shape<'a>, values: &[&'a Json]) -> Result<Rc<Dfa>, ConstraintError> {
        let mut allowed = Vec::new();
        for &value in values {
            if let Some(text) = value.string()
                && !self.denies(shape, value, 0)?
            {
                allowed.push(regex_syntax::escape(text));
            }
        }
        if allowed.is_empty() { self.whole(NOTHING) } else { self.whole(&allowed.join("|")) }
    }

    /// An object whose properties have no names of their own.
    fn map(&mut self, shape: &Shape<'a>, place: Place) -> Result<Expr, ConstraintError> {
        if shape.min_properties > 1 {
            let reason = "is more than 1 where no property is listed, whose names may repeat: list properties";
            return Err(self.document.refused(place, "minProperties", reason));
        }
        let mut keys = self.keys(shape)?;
        for name in &shape.absent {
            let name = self.whole(&regex_syntax::escape(name))?;
            keys = Rc::new(keys.combine(Operation::Without, &name, self.fuel)?);
        }
        // A case for each set of patterns: names that have these and no others.
        let mut cases = vec![(keys, HashSet::new())];
        let mut count = 0;
        for plain in &shape.plains {
            for (pattern, _) in plain.schema.get("patternProperties").and_then(Json::object).into_iter().flatten() {
                let texts = self.pattern(pattern, plain.place, "patternProperties")?;
                count += 1;
                if count > KEY_PATTERNS {
                    let reason = format!("has more than {KEY_PATTERNS} patterns: use fewer");
                    return Err(self.document.refused(plain.place, "patternProperties", reason));
                }
                let mut split = Vec::new();
                for (keys, patterns) in cases {
                    let without = Rc::new(keys.combine(Operation::Without, &texts, self.fuel)?);
                    let with: HashSet<&str> = patterns.iter().copied().chain([pattern.as_str()]).collect();
                    split.extend([(self.both(&keys, &texts)?, with), (without, patterns)]);
                }
                cases = split;
            }
        }
        let mut pairs = Vec::new();
        for (keys, patterns) in cases.into_iter().filter(|case| !case.0.is_empty()) {
            let mut parts = Vec::new();
            for plain in &shape.plains {
                let own = plain.schema.get("patternProperties").and_then(Json::object).unwrap_or_default();
                let mut schemas: Vec<&'a Json> =
                    own.iter().filter(|pair| patterns.contains(pair.0.as_str())).map(|pair| &pair.1).collect();
                if schemas.is_empty() {
                    schemas.extend(plain.schema.get("additionalProperties"));
                }
                parts.extend(schemas.into_iter().map(|schema| plain.below(self.document, schema)));
            }
            let value = self.value(&parts)?;
            let key = self.quoted(&keys);
            pairs.push(self.grammar.concat(&[key, self.layout.colon, value]));
        }
        let rest = self.grammar.union(&pairs);
        let (min, max) = (shape.min_properties, shape.max_properties);
        Ok(self.grammar.list(List { brackets: self.layout.object, items: Vec::new(), rest, min, max }))
    }
}

/// A pattern that no text has.
const NOTHING: &str = r"[^\x00-\u{10FFFF}]";

/// A text as a JSON string.
fn spelled(text: &str) -> String {
    let mut spelled = String::from("\"");
    for symbol in text.chars() {
        match symbol {
            '"' | '\\' => spelled.extend(['\\', symbol]),
            '\u{8}' => spelled.push_str("\\b"),
            '\t' => spelled.push_str("\\t"),
            '\n' => spelled.push_str("\\n"),
            '\u{C}' => spelled.push_str("\\f"),
            '\r' => spelled.push_str("\\r"),
            '\0'..='\u{1F}' => spelled.extend(format!("\\u{:04x}", symbol as u32).chars()),
            _ => spelled.push(symbol),
        }
    }
    spelled + "\""
}
