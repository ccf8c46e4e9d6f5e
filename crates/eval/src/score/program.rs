//! Programs: the code in an output, joined with what the problem gives, and run.

use crate::{
    Gold, Problem, Verdict,
    sandbox::{Outcome, Permission},
};

/// Words that open a statement of Python; two other words side by side are prose.
const STATEMENTS: [&str; 31] = [
    "def", "class", "import", "from", "if", "elif", "else", "for", "while", "with", "try", "except", "finally",
    "return", "yield", "async", "await", "raise", "del", "global", "nonlocal", "assert", "pass", "break", "continue",
    "lambda", "not", "match", "case", "type", "print",
];

/// Words that stand between the names of an expression.
const OPERATORS: [&str; 7] = ["in", "is", "and", "or", "if", "not", "for"];

/// Runs the program that a model wrote and returns whether it passes the problem's tests. The answer is the code.
pub fn judge(permission: &Permission, problem: &Problem, output: &str) -> Verdict {
    let Gold::Program { prompt, tests, entry_point } = &problem.gold else { return Verdict::failed("rule") };
    let code = code(prompt, entry_point.as_deref(), output);
    if code.trim().is_empty() {
        return Verdict::none();
    }
    let program = with_tests(&code, tests, entry_point.as_deref());
    match permission.run(&program) {
        Ok(Outcome::Passed) => Verdict::of(code, true),
        Ok(outcome) => Verdict { failure: Some(outcome.to_string()), ..Verdict::of(code, false) },
        Err(error) => Verdict { failure: Some(format!("sandbox: {error}")), ..Verdict::of(code, false) },
    }
}

/// The code, the tests, and the call of `check` where the problem names a function.
fn with_tests(code: &str, tests: &str, entry_point: Option<&str>) -> String {
    let call = entry_point.map_or_else(String::new, |name| format!("\ncheck({name})\n"));
    format!("{code}\n\n{tests}\n{call}")
}

/// The whole code: the problem's prompt with the completion; if this defines the function anew, only what the prompt says
/// before it.
fn code(prompt: &str, entry_point: Option<&str>, output: &str) -> String {
    let found = fenced(output, entry_point).unwrap_or_else(|| unfenced(output, !prompt.is_empty()));
    let whole = entry_point.map_or(prompt.is_empty(), |name| definition(&found, name).is_some());
    if !whole {
        return format!("{}\n{}\n", prompt.trim_end(), indented(&found));
    }
    let before = entry_point.and_then(|name| definition(prompt, name)).map_or("", |at| &prompt[..at]);
    format!("{before}{}\n", found.trim_end())
}

/// Start of a function's definition, at the start of a line.
fn definition(code: &str, name: &str) -> Option<usize> {
    let mut at = 0;
    let mut found = None;
    for line in code.split_inclusive('\n') {
        let signature = line.strip_prefix("async ").unwrap_or(line).strip_prefix("def ").unwrap_or_default();
        let rest = signature.trim_start().strip_prefix(name).unwrap_or_default();
        found = if rest.trim_start().starts_with('(') { Some(at) } else { found };
        at += line.len();
    }
    found
}

/// The code between Markdown's fences: the last block that defines the function, else the last one that can be Python,
/// even without an end. If the first fence only closes, the prompt has opened it.
fn fenced(output: &str, entry_point: Option<&str>) -> Option<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut outside: Vec<&str> = Vec::new();
    // The lines of the open block, and whether they can be Python.
    let mut open: Option<(bool, Vec<&str>)> = None;
    let mut first = true;
    for line in output.lines() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            // A fence may close a block behind its last line.
            let closed = open.as_ref().and_then(|_| line.split_once("```"));
            let lines = open.as_mut().map_or(&mut outside, |(_, lines)| lines);
            lines.push(closed.map_or(line, |(code, _)| code));
            if closed.is_some()
                && let Some((python, lines)) = open.take()
            {
                blocks.extend(python.then(|| lines.join("\n")));
            }
            continue;
        };
        match open.take() {
            Some((python, lines)) => blocks.extend(python.then(|| lines.join("\n"))),
            None if first && language.trim().is_empty() && continues_code(&outside, entry_point) => {
                blocks.push(outside.join("\n"));
            }
            None => open = Some((is_python(language), Vec::new())),
        }
        first = false;
    }
    blocks.extend(open.and_then(|(python, lines)| python.then(|| lines.join("\n"))));
    blocks.retain(|block| !block.trim().is_empty());
    let defining = entry_point.and_then(|name| blocks.iter().rposition(|block| definition(block, name).is_some()));
    let chosen = defining.or(blocks.len().checked_sub(1))?;
    Some(blocks.swap_remove(chosen))
}

fn is_python(language: &str) -> bool {
    matches!(language.trim().to_lowercase().as_str(), "" | "python" | "python3" | "py" | "py3")
}

/// Reports whether the lines before the first fence are code rather than words that announce it.
fn continues_code(lines: &[&str], entry_point: Option<&str>) -> bool {
    let text = lines.join("\n");
    let first = lines.iter().find(|line| !line.trim().is_empty());
    first.is_some_and(|line| line.starts_with([' ', '\t']))
        || entry_point.is_some_and(|name| definition(&text, name).is_some())
}

/// The code of an output without fences: from the first line of code to the first line of prose behind it.
fn unfenced(output: &str, may_be_body: bool) -> String {
    let text = output.split("[DONE]").next().unwrap_or_default();
    let text = text.rsplit_once("[BEGIN]").map_or(text, |(_, code)| code);
    let is_code =
        |line: &&str| !line.trim().is_empty() && !is_prose(line) && (may_be_body || !line.starts_with([' ', '\t']));
    let mut in_string = false;
    let goes_on = |line: &&str| {
        let ends = !in_string && is_prose(line);
        in_string ^= (line.matches("\"\"\"").count() + line.matches("'''").count()) % 2 == 1;
        !ends
    };
    text.lines().skip_while(|line| !is_code(line)).take_while(goes_on).collect::<Vec<_>>().join("\n")
}

/// Reports whether a line that stands at the margin is words of a language for people.
fn is_prose(line: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphabetic() || matches!(c, '\'' | '’'));
    // `x: int = 5` is code, `Note: this is it` is not.
    let marks: &[char] =
        if line.starts_with(char::is_uppercase) && !line.contains(" = ") { &[',', '.', ':', '!'] } else { &[','] };
    let mut words = line.split(' ').map(|word| word.trim_end_matches(marks));
    let first = words.next().unwrap_or_default();
    let Some(second) = words.next() else {
        let called_out = line.ends_with([':', '!', '.']) && first.starts_with(char::is_uppercase);
        return called_out && is_word(first);
    };
    let operation = OPERATORS.contains(&second) && !first.starts_with(char::is_uppercase);
    is_word(first) && is_word(second) && !STATEMENTS.contains(&first) && !operation
}

/// A function's body, indented: models leave out the first line's spaces, or all lines'.
fn indented(body: &str) -> String {
    let body = body.trim_start_matches(['\n', '\r']);
    let mut lines = body.lines();
    let first = lines.next().unwrap_or_default();
    if first.starts_with([' ', '\t']) {
        return body.to_owned();
    }
    let rest: Vec<_> = lines.collect();
    let margin = |line: &&&str| line.len() - line.trim_start().len();
    let next = rest.iter().find(|line| !line.trim().is_empty()).as_ref().map(margin);
    let deeper = if first.trim_end().ends_with(':') { 8 } else { 4 };
    let only_first = next.is_some_and(|next| next >= deeper);
    let indent = |line: &str| if line.trim().is_empty() { String::new() } else { format!("    {line}") };
    let rest = rest.into_iter().map(|line| if only_first { line.to_owned() } else { indent(line) });
    std::iter::once(indent(first)).chain(rest).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str = "import math\n\ndef area(r):\n    \"\"\" Area of a circle \"\"\"\n";
    const BODY: &str = "    return math.pi * r * r";

    fn built(output: &str) -> String {
        code(PROMPT, Some("area"), output)
    }

    fn completed() -> String {
        format!("{}\n{BODY}\n", PROMPT.trim_end())
    }

    #[test]
    fn bodies_complete_the_prompt() {
        for output in [
            BODY.to_owned(),
            "return math.pi * r * r".to_owned(),
            format!("\n{BODY}\n\nThis function returns the area."),
            format!("```python\n{BODY}\n```"),
            format!("{BODY}\n```\nThat is all."),
            "Here is the body:\n```\nreturn math.pi * r * r\n```\nDone.".to_owned(),
            format!("Here is the body:\n{BODY}"),
        ] {
            assert_eq!(built(&output).replace("\n\n", "\n"), completed().replace("\n\n", "\n"), "{output}");
        }
    }

    #[test]
    fn a_definition_replaces_the_prompt_but_not_what_stands_before_it() {
        let function = format!("def area(r):\n{BODY}");
        let expected = format!("import math\n\n{function}\n");
        for output in [
            function.clone(),
            format!("```python\n{function}\n```"),
            format!("Sure!\n\n```py\n{function}\n```\n\nUse it:\n```python\nprint(area(2))\n```"),
            format!("```python\n{function}"),
            format!("```python\n{function}``` as asked"),
            format!("Here you are:\n\n{function}\n\nI hope this helps"),
            format!("```bash\npip install it\n```\n```python\n{function}\n```"),
        ] {
            assert_eq!(built(&output), expected, "{output}");
        }
    }

    #[test]
    fn prose_is_told_from_code() {
        for prose in [
            "This is it.",
            "Note: this works",
            "Sure!",
            "so we return it",
            "Here is the code:",
            "The function (f) adds",
        ] {
            assert!(is_prose(prose), "{prose}");
        }
        for code in [
            "x: int = 5",
            "def f(x):",
            "if x in y:",
            "x = y",
            "    words in here",
            "print x",
            "",
            "@cache",
            "MAX: int = 5",
        ] {
            assert!(!is_prose(code), "{code}");
        }
    }

    #[test]
    fn bodies_without_their_margin_get_it() {
        assert_eq!(indented("for x in y:\n    pass\nreturn 1"), "    for x in y:\n        pass\n    return 1");
        assert_eq!(indented("for x in y:\n        pass\n    return 1"), "    for x in y:\n        pass\n    return 1");
        assert_eq!(indented("x = 1\n    return x"), "    x = 1\n    return x");
    }

    #[test]
    fn whole_programs_need_no_entry_point() {
        let program = "import re\ndef f(x):\n    return x";
        for output in [
            program.to_owned(),
            format!("[BEGIN]\n{program}\n[DONE]\nmore"),
            format!("The code:\n\n```python\n{program}\n```"),
            format!("{program}\n\nThe function (f) returns x."),
        ] {
            assert_eq!(code("", None, &output).trim(), program, "{output}");
        }
        assert_eq!(code("", None, "I cannot do this.").trim(), "");
        assert_eq!(code("def f(x):", None, "return x"), "def f(x):\n    return x\n");
    }
}
