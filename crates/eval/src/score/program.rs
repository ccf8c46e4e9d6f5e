//! Programs: the code in an output, joined with the problem's own code, and run.

use crate::{
    Gold, Problem, Verdict,
    sandbox::{Outcome, Permission, Program},
    score::fences::Fences,
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
    let code = code(prompt, tests, entry_point.as_deref(), output);
    if code.trim().is_empty() {
        return Verdict::none();
    }
    let program = Program {
        given: entry_point.as_deref().map_or("", |name| before(prompt, name)).to_owned(),
        tests: called(tests, entry_point.as_deref()),
        entry_point: entry_point.clone(),
        code,
    };
    match permission.run(&program) {
        Ok(Outcome::Passed) => Verdict::of(program.code, true),
        Ok(outcome) => Verdict { failure: Some(outcome.to_string()), ..Verdict::of(program.code, false) },
        Err(error) => Verdict { failure: Some(format!("sandbox: {error}")), ..Verdict::of(program.code, false) },
    }
}

/// The tests, and the call of `check` where the problem names a function and the tests leave it out.
fn called(tests: &str, entry_point: Option<&str>) -> String {
    let call = entry_point.map(|name| format!("check({name})")).filter(|call| !tests.lines().any(|line| line == call));
    format!("{tests}\n{}\n", call.unwrap_or_default())
}

/// The part of a problem's prompt before the function that it asks for.
fn before<'a>(prompt: &'a str, name: &str) -> &'a str {
    definition(prompt, name).map_or("", |at| &prompt[..at])
}

/// Returns the whole code: the problem's prompt and the completion. If the completion defines the function itself, only
/// the prompt's part before the function precedes it.
fn code(prompt: &str, tests: &str, entry_point: Option<&str>, output: &str) -> String {
    let wanted = entry_point.map_or_else(|| names_called(tests), |name| vec![name]);
    let found = fenced(output, &wanted).unwrap_or_else(|| unfenced(output, !prompt.is_empty()));
    let whole = entry_point.map_or(prompt.is_empty(), |name| definition(&found, name).is_some());
    if !whole {
        return format!("{}\n{}\n", prompt.trim_end(), indented(&found));
    }
    let before = entry_point.map_or("", |name| before(prompt, name));
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

/// The code between Markdown's fences: the first block that defines the functions which the tests call, with the blocks
/// that define the names which it uses; else the first one that can be Python. A block that shows how to use a function
/// defines nothing. If the first fence only closes, the prompt has opened it.
fn fenced(output: &str, wanted: &[&str]) -> Option<String> {
    let continues = |lines: &[String]| continues_code(lines, wanted);
    let mut blocks = Fences::of(output, continues).blocks;
    blocks.retain(|block| !block.code.trim().is_empty());
    let codes: Vec<_> = blocks.iter().map(|block| at_the_margin(&block.code)).collect();
    let (python, others): (Vec<_>, Vec<_>) = (0..blocks.len()).partition(|&at| is_python(&blocks[at].language));
    let defines_wanted = |&&at: &&usize| wanted.iter().any(|name| defines(&codes[at], name));
    // A fence may name another language, or none that is known.
    let Some(&chosen) = python.iter().find(defines_wanted).or_else(|| others.iter().find(defines_wanted)) else {
        return python.first().map(|&at| codes[at].clone());
    };
    let mut joined = vec![chosen];
    // What the tests call may be in several blocks, and so may what these use.
    for &at in &python {
        let new = |name: &&str| !joined.iter().any(|&other| defines(&codes[other], name));
        let used = |name: &str| {
            let named = || joined.iter().any(|&other| identifiers(&codes[other]).any(|used| used == name));
            wanted.contains(&name) || !is_variable(&codes[at], name) && named()
        };
        if at != chosen && defined(&codes[at]).filter(new).any(used) {
            joined.push(at);
        }
    }
    joined.sort_unstable();
    Some(joined.iter().map(|&at| codes[at].as_str()).collect::<Vec<_>>().join("\n\n"))
}

/// Code without the margin that all of its lines share, if it defines something: a body keeps its own.
fn at_the_margin(code: &str) -> String {
    let lines = || code.lines().filter(|line| !line.trim().is_empty());
    let margin = lines().map(|line| line.len() - line.trim_start_matches(' ').len()).min().unwrap_or(0);
    let opens = ["def ", "class ", "import ", "from ", "async def ", "@"];
    if !lines().next().is_some_and(|line| opens.iter().any(|word| line.trim_start().starts_with(word))) {
        return code.to_owned();
    }
    code.lines().map(|line| line.get(margin..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Names that code defines at its margin: functions, classes, imports, values.
fn defined(code: &str) -> impl Iterator<Item = &str> {
    code.lines().flat_map(|line| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        if let Some(rest) = line.strip_prefix("def ").or_else(|| line.strip_prefix("class ")) {
            return identifiers(rest).take(1).collect();
        }
        if let Some((_, names)) = line.split_once("import ").filter(|_| line.starts_with(['f', 'i'])) {
            return names.split(',').filter_map(|part| identifiers(part).last()).collect();
        }
        let name = &line[..line.find(|c: char| !is_of_name(c)).unwrap_or(line.len())];
        let rest = line[name.len()..].trim_start();
        let set = rest.starts_with('=') && !rest.starts_with("==") || rest.starts_with(": ") && rest.contains(" = ");
        Vec::from_iter((set && !name.is_empty()).then_some(name))
    })
}

fn defines(code: &str, name: &str) -> bool {
    defined(code).any(|other| other == name)
}

/// Reports whether a name belongs to a value that is no constant: another function may have its own one of this name.
fn is_variable(code: &str, name: &str) -> bool {
    let set = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(['=', ':']));
    name.contains(char::is_lowercase) && code.lines().any(set)
}

/// Names in code, words of the language included.
fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !is_of_name(c)).filter(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Names that tests call, but for methods.
fn names_called(tests: &str) -> Vec<&str> {
    let called = |(at, _): (usize, &str)| {
        let before = tests[..at].trim_end_matches(' ');
        let name = &before[before.rfind(|c: char| !is_of_name(c)).map_or(0, |end| end + 1)..];
        let method = before[..before.len() - name.len()].ends_with('.');
        (!method && !STATEMENTS.contains(&name)).then(|| identifiers(name).next())?
    };
    tests.match_indices('(').filter_map(called).collect()
}

fn is_python(language: &str) -> bool {
    matches!(language, "" | "py" | "py3" | "ipython" | "sage") || language.starts_with("python")
}

/// Reports whether the lines before the first fence are code rather than words that announce it.
fn continues_code(lines: &[String], wanted: &[&str]) -> bool {
    let text = lines.join("\n");
    let first = lines.iter().find(|line| !line.trim().is_empty());
    first.is_some_and(|line| line.starts_with([' ', '\t'])) || wanted.iter().any(|name| defines(&text, name))
}

/// The code of an output without fences: from the first line of code to the first line of prose after it.
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
        code(PROMPT, "", Some("area"), output)
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
            assert_eq!(code("", "", None, &output).trim(), program, "{output}");
        }
        assert_eq!(code("", "", None, "I cannot do this.").trim(), "");
        assert_eq!(code("def f(x):", "", None, "return x"), "def f(x):\n    return x\n");
    }

    const TESTS: &str = "import math\nassert add(1, 2) == 3\nassert math.floor(add(0, 0)) == len(set([0]))\n";

    /// The code for an MBPP problem, without its empty lines.
    fn of_tests(output: &str) -> String {
        let code = code("", TESTS, None, output);
        code.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn tests_name_what_they_call() {
        assert_eq!(names_called(TESTS), ["add", "add", "len", "set"]);
        assert!(names_called("assert (x) == (1,)\n").is_empty());
    }

    #[test]
    fn a_block_of_use_is_not_taken_for_the_solution() {
        let add = "def add(a, b):\n    return a + b";
        let block = |code: &str| format!("```python\n{code}\n```\n\n");
        let (solution, lambda) = (block(add), block("add = lambda a, b: a + b"));
        for output in [
            format!("{solution}Example:\n\n{}", block("print(add(1, 2))")),
            format!("{solution}Tests:\n{}{}", block("assert add(1, 2) == 3"), block("x = add(1, 2)\nprint(x)")),
            format!("Call it so:\n{}{solution}", block("print(add(1, 2))")),
            format!("Install it:\n```bash\npip install it\n```\n{solution}Output:\n```\n3\n```"),
            format!("```\npip install it\n```\n{solution}"),
            format!("{solution}Alternatively:\n{lambda}"),
            format!("{solution}With a class:\n{}", block("class Adder:\n    pass")),
            format!("{solution}Use:\n{}", block("from solution import add\nadd(1, 2)")),
            format!("1. The function:\n\n   ```python\n   {}\n   ```", add.replace('\n', "\n   ")),
            format!("```python title=\"add.py\"\n{add}\n```"),
            format!("```{{.python .numberLines}}\n{add}\n```"),
            format!("~~~python\n{add}\n~~~"),
            format!("````markdown\nText\n````\n{solution}"),
            format!("```code\n{add}\n```"),
            format!("```Python3\n{add}\n```"),
            format!("```python\n{add}"),
            format!("   ```python\n   {}\n   ```", add.replace('\n', "\n   ")),
            format!("> ```python\n> {}\n> ```", add.replace('\n', "\n> ")),
            add.to_owned(),
        ] {
            assert_eq!(of_tests(&output), add, "{output}");
        }
        assert_eq!(of_tests(&lambda), "add = lambda a, b: a + b");
    }

    #[test]
    fn a_solution_in_several_blocks_is_joined() {
        let helper = "def plus(a, b):\n    return a + b";
        let main = "def add(a, b):\n    return plus(a, b)";
        let joined = format!("{helper}\n{main}");
        let use_of = "```python\nprint(add(1, 2))\n```";
        for (first, second) in [(helper, main), (main, helper)] {
            let output = format!("First:\n```python\n{first}\n```\nThen:\n```python\n{second}\n```\nUse:\n{use_of}");
            assert_eq!(of_tests(&output), format!("{first}\n{second}"), "{output}");
        }
        let output = format!("```python\nimport os\nLIMIT = 3\n```\n```python\n{joined}\n```");
        assert_eq!(of_tests(&output), joined);
        let output = format!("```python\nimport plus_of as plus\n```\n```python\n{main}\n```");
        assert_eq!(of_tests(&output), format!("import plus_of as plus\n{main}"));
        // Names of values are often the same.
        let output = format!("```python\na = int(input())\nprint(add(a, 1))\n```\n```python\n{joined}\n```");
        assert_eq!(of_tests(&output), joined);
        let constant = "def add(a, b):\n    return a + b + ZERO";
        let output = format!("```python\nZERO: int = 0\n```\n```python\n{constant}\n```");
        assert_eq!(of_tests(&output), format!("ZERO: int = 0\n{constant}"));
    }

    #[test]
    fn fences_inside_of_code_do_not_end_it() {
        let function = "def area(r):\n    \"\"\" Area.\n\n    ```\n    area(2)\n    ```\n    \"\"\"\n    mark = '```'\n    return r";
        for output in [
            format!("```python\n{function}\n```\nDone."),
            format!("~~~~\n{function}\n~~~~"),
            format!("````py\n{function}\n````"),
        ] {
            assert_eq!(built(&output), format!("import math\n\n{function}\n"), "{output}");
        }
    }
}
