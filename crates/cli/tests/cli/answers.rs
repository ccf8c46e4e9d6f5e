//! `generate`, `chat` and `trace`.

use std::{fs, io::Read};

use serde_json::Value;

use crate::harness::{Run, command, demask, demask_with_input, project, questions, refused};

/// A schema's unknown keyword is no keyword that holds: a slip of the pen must be seen.
#[test]
fn an_unknown_keyword_of_a_schema_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("schema.json");
    fs::write(&schema, r#"{"type": "integer", "minimun": 0, "maximum": 9}"#).unwrap();
    let run = demask(&["generate", "--json-schema", schema.to_str().unwrap(), "Ada has 3 pears. How many pears?"]);
    let note = "note: minimun at # of the JSON schema is unknown and changes nothing\n";
    assert!(run.code == Some(0) && run.stderr.contains(note), "{}", run.stderr);
}

#[test]
fn a_temperature_without_a_seed_draws_one_and_says_which() {
    let generate = |more: &[&str]| demask(&[&["generate", "Hello?", "--temperature", "1.5"], more].concat());
    let seed = |run: &Run| -> String {
        let line =
            run.stderr.lines().find(|line| line.starts_with("seed ")).unwrap_or_else(|| panic!("{}", run.stderr));
        line["seed ".len()..].split(':').next().unwrap().to_owned()
    };
    let (first, second) = (generate(&[]), generate(&["--seed", "-1"]));
    assert_ne!(seed(&first), seed(&second));
    let again = generate(&["--seed", &seed(&first), "--json"]);
    assert!(!again.stderr.contains("seed "), "{}", again.stderr);
    let answer = again.json();
    assert_eq!(answer["text"].as_str().unwrap(), first.stdout.trim_end_matches('\n'));
    assert_eq!(answer["receipt"]["seed"].to_string(), seed(&first));
    let greedy = demask(&["generate", "Hello?", "--json"]);
    assert!(!greedy.stderr.contains("seed "), "{}", greedy.stderr);
    assert_eq!(greedy.json()["receipt"]["seed"].as_u64(), Some(0));
    let refused = demask(&["generate", "Hello?", "--seed", "-2"]);
    let told =
        "error: invalid value '-2' for '--seed <N>': expected a whole number from 0 on, or -1 for one that is drawn";
    assert!(refused.stderr.starts_with(told), "{}", refused.stderr);
}

#[test]
fn word_problems_are_answered() {
    for (question, answer) in &questions()[..3] {
        let run = demask(&["generate", question, "--dtype", "f32"]);
        assert!(run.stderr.contains(" tokens/s, "), "{}", run.stderr);
        let text = run.success();
        assert!(text.ends_with(&format!("The final answer is {answer}\n")), "{question} {text}");
    }
}

#[test]
fn json_is_one_object_with_the_whole_receipt() {
    let (question, _) = &questions()[0];
    let run = demask(&["generate", question, "--json", "--seed", "7"]);
    assert_eq!(run.stderr, "");
    let answer = run.json();
    let keys = |value: &Value| {
        let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys.join(" ")
    };
    assert_eq!(keys(&answer), "end_token finish generated_tokens prompt_tokens receipt text tokens");
    for key in [
        "version",
        "model",
        "settings",
        "decoder",
        "cache",
        "exactness",
        "against",
        "seed",
        "nfe",
        "forwards",
        "guide_nfe",
        "tokens_per_nfe",
        "rows",
        "flops",
        "seconds",
        "memory",
    ] {
        assert!(answer["receipt"].get(key).is_some(), "{key}");
    }
    assert_eq!(keys(&answer["receipt"]["seconds"]), "first_token guide load model tokens_per_second total wall");
    assert_eq!(keys(&answer["receipt"]["memory"]), "cache guide peak weights");
    assert_eq!(answer["finish"], "eos");
    assert_eq!(answer["receipt"]["seed"], 7);
    assert_eq!(answer["tokens"].as_array().unwrap().len() as u64, answer["generated_tokens"].as_u64().unwrap());
}

#[test]
fn a_receipt_makes_the_answer_again() {
    let (question, _) = &questions()[0];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("receipt.json");
    let file = file.to_str().unwrap();
    let [causal, blocks, dream] = ["qwen", "sdar", "dream"].map(|name| project(&format!("demo/demo-{name}")));
    let guided = ["--model", &dream, "--guide", &causal];
    let warm = ["--temperature", "0.8", "--top-p", "0.9", "--stop-rule", "never", "--stop", "The"];
    let calls: [(&[&str], &[&str], &[&str]); 8] = [
        (&[], &[], &[]),
        (&[], &["--gen-length", "32", "--block-length", "8", "--decoder", "static:steps=8"], &[]),
        (&[], &warm, &[]),
        (&[], &["--max-tokens", "7", "--ignore-eos", "--schedule", "dream", "--alg-temp", "0.2"], &[]),
        (&["--model", &causal], &["--temperature", "1.1", "--top-k", "5"], &[]),
        (&["--model", &blocks], &["--temperature", "0.7", "--suppress-eos"], &[]),
        (&guided, &["--decoder", "guided", "--temperature", "0.9"], &[]),
        (&[], &["--remasking", "entropy"], &["--infill"]),
    ];
    for (models, options, form) in calls {
        let prompt = if form.is_empty() { question.as_str() } else { "Ada has 3<mask:4> pears.<mask:3>" };
        let asked = [&["generate", prompt, "--json"], models, form].concat();
        let first = demask(&[&asked[..], options].concat()).json();
        let whole = first.to_string();
        for text in [&whole, &first["receipt"].to_string()] {
            fs::write(file, text).unwrap();
            let again = demask(&[&asked[..], &["--like", file]].concat()).json();
            assert_eq!(again["tokens"], first["tokens"], "{options:?}");
            assert_eq!(again["receipt"]["settings"], first["receipt"]["settings"], "{options:?}");
            for name in ["decoder", "cache", "steps", "block_length", "seed", "nfe", "forwards", "flops"] {
                assert_eq!(again["receipt"][name], first["receipt"][name], "{options:?}: {name}");
            }
        }
    }
    let lengths = ["--gen-length", "16", "--block-length", "8"];
    let other =
        demask(&[&["generate", question, "--json", "--like", file, "--seed", "9"][..], &lengths].concat()).json();
    let settings = &other["receipt"]["settings"];
    assert_eq!((&other["receipt"]["seed"], &settings["gen_length"]), (&9.into(), &16.into()));
}

#[test]
fn a_receipt_tells_how_its_answer_was_decoded() {
    let (question, _) = &questions()[0];
    let call = ["--temperature", "0.7", "--top-p", "0.9", "--stop-rule", "never", "--json"];
    let answer = demask(&[&["generate", question][..], &call].concat()).json();
    let settings = &answer["receipt"]["settings"];
    for (name, value) in [
        ("temperature", Value::from(0.7)),
        ("top_p", 0.9.into()),
        ("top_k", 0.into()),
        ("alg_temp", 0.0.into()),
        ("cfg_scale", 0.0.into()),
        ("gen_length", 64.into()),
        ("stop_rule", "never".into()),
    ] {
        assert_eq!(settings[name], value, "{name}: {settings}");
    }
}

#[test]
fn steps_that_change_nothing_are_named() {
    let note = |flags: &[&str]| {
        let run = demask(&[&["generate", "hi", "--max-tokens", "4"], flags].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stderr.lines().find(|line| line.contains("changes nothing")).map(str::to_owned)
    };
    let told = |flag: &str| {
        Some(format!("note: {flag} changes nothing beside --decoder threshold, which takes tokens by their confidence"))
    };
    assert_eq!(note(&["--decoder", "threshold", "--steps", "8"]), told("--steps"));
    assert_eq!(note(&["--decoder", "threshold", "--schedule", "linear"]), told("--schedule"));
    assert_eq!(note(&["--decoder", "threshold:tau=0.9,quota", "--steps", "8"]), None);
    assert_eq!(note(&["--steps", "8"]), None);
}

#[test]
fn a_receipt_of_something_else_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("receipt.json");
    let path = file.to_str().unwrap();
    let dream = project("demo/demo-dream");
    let mut answer = demask(&["generate", "--json", "hi", "--max-tokens", "4"]).json();
    let refused = |text: &str, more: &[&str], told: &str| {
        fs::write(&file, text).unwrap();
        let run = demask(&[&["generate", "hi", "--like", path], more].concat());
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{}", run.stderr);
        assert!(run.stderr.contains(told), "{}", run.stderr);
    };
    let told = "error: the receipt is of the model demo-llada, and demo-dream is here: name that one";
    refused(&answer.to_string(), &["--model", &dream], told);
    refused("{}", &[], "there is no receipt: found JSON of another kind, expected what generate --json prints");
    answer["receipt"]["version"] = "0.0.1".into();
    fs::write(&file, answer.to_string()).unwrap();
    let run = demask(&["generate", "hi", "--like", path]);
    assert!(
        run.code == Some(0) && run.stderr.contains("warning: the receipt is of demask 0.0.1, this is "),
        "{}",
        run.stderr
    );
}

#[test]
fn a_canvas_that_is_longer_than_the_model_is_made_for_is_said_to_be_an_input() {
    let (question, answer) = &questions()[0];
    let long = demask(&["generate", question, "--gen-length", "256"]);
    assert!(long.stderr.contains("note: --gen-length 256 is an input"), "{}", long.stderr);
    assert!(long.stderr.contains("made for 64") && long.stderr.contains("--max-tokens bounds"), "{}", long.stderr);
    let chat = demask_with_input(&["chat", "--gen-length", "256"], "");
    assert!(chat.stderr.contains("note: --gen-length 256 is an input"), "{}", chat.stderr);
    for fit in [&["--gen-length", "128"][..], &["--max-tokens", "4096"], &["--gen-length", "256", "-q"]] {
        let run = demask(&[&["generate", question], fit].concat());
        assert!(!run.stderr.contains("is an input"), "{}", run.stderr);
    }
    // A bound changes nothing else.
    let bound = demask(&["generate", question, "--max-tokens", "4096"]).success();
    assert_eq!(bound, demask(&["generate", question]).success());
    assert!(bound.ends_with(&format!("The final answer is {answer}\n")), "{bound}");
    let blocks = project("demo/demo-sdar");
    let run = demask(&["generate", question, "--model", &blocks, "--gen-length", "512"]);
    assert!(!run.stderr.contains("is an input"), "{}", run.stderr);
}

#[test]
fn an_answer_that_was_cut_by_its_length_says_so_on_standard_error() {
    let (question, _) = &questions()[0];
    let causal = project("demo/demo-qwen");
    for (arguments, told) in [
        (&["--max-tokens", "4"][..], "the answer was cut at 4 tokens: raise --max-tokens for a longer one"),
        (&["--gen-length", "4"], "the answer fills its 4 positions: raise --gen-length for a longer one"),
        (&["--model", &causal, "--max-tokens", "4"], "the answer was cut at 4 tokens: raise --max-tokens"),
        (&["--max-tokens", "4", "--json"], "the answer was cut at 4 tokens"),
    ] {
        let run = demask(&[&["generate", question], arguments].concat());
        assert_eq!(run.stderr.lines().filter(|line| line.contains(told)).count(), 1, "{arguments:?}: {}", run.stderr);
        run.success();
    }
    let chat = demask_with_input(&["chat", "--max-tokens", "4"], question);
    assert!(chat.stderr.contains("raise --max-tokens"), "{}", chat.stderr);
    for whole in [&["--ignore-eos", "--gen-length", "16"][..], &[], &["--max-tokens", "4", "-q"]] {
        let run = demask(&[&["generate", question], whole].concat());
        assert!(!run.stderr.contains(" for a longer one"), "{whole:?}: {}", run.stderr);
    }
}

#[test]
fn a_causal_model_goes_on_up_to_its_context() {
    let causal = project("demo/demo-qwen");
    let arguments = ["generate", "--raw", "Ada has", "--model", &causal, "--ignore-eos", "--json"];
    let answer = demask(&arguments).json();
    let tokens = |name: &str| answer[name].as_u64().unwrap();
    assert_eq!(tokens("prompt_tokens") + tokens("generated_tokens"), 1024);
    let run = demask(&["generate", "hi", "--gen-length", "2000"]);
    assert!(run.stderr.ends_with("context of 1024: shorten the prompt or lower --gen-length\n"), "{}", run.stderr);
    let long = "Ada has 3 pears. ".repeat(400);
    let run = demask(&["generate", &long, "--max-tokens", "5"]);
    assert!(run.code == Some(2) && run.stderr.contains("--max-tokens"), "{}", run.stderr);
}

#[test]
fn a_seed_decides_everything() {
    let sample = |seed: &str, threads: &str| {
        let arguments = ["generate", "Hello?", "--temperature", "1", "--seed", seed, "--threads", threads];
        demask(&[&arguments[..], &["--gen-length", "16", "--ignore-eos", "--json"]].concat()).json()["tokens"].clone()
    };
    assert_eq!(sample("1", "1"), sample("1", "2"));
    assert_ne!(sample("1", "1"), sample("2", "1"));
    assert_eq!(sample("3", "1").as_array().unwrap().len(), 16);
}

#[test]
fn marks_of_a_file_are_no_part_of_a_prompt() {
    let question = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let expected = demask(&["generate", question, "--json"]).json()["text"].clone();
    assert!(expected.as_str().unwrap().starts_with("3+4=7 pears."));
    for text in
        [question.to_owned(), format!("\u{feff}{question}"), format!("\u{feff}{question}\r\n"), format!("{question}\r")]
    {
        fs::write(file.path(), &text).unwrap();
        let answer = demask(&["generate", "--prompt-file", path, "--json"]).json();
        assert_eq!((&answer["prompt_tokens"], &answer["text"]), (&34.into(), &expected), "{text:?}");
        let piped = demask_with_input(&["generate", "--prompt-file", "-", "--json"], &text).json();
        assert_eq!(piped["prompt_tokens"], 34, "{text:?}");
    }
    fs::write(file.path(), b"\xff\xfeA\0").unwrap();
    let refused = demask(&["generate", "--prompt-file", path]);
    assert!(refused.stderr.contains("it is UTF-16, expected UTF-8: save it as UTF-8"));
}

#[test]
fn control_tokens_are_read_from_messages_only_if_that_is_asked_for() {
    let count = |more: &[&str]| {
        let arguments = ["generate", "a<|eot_id|>b<|mdm_mask|>", "--gen-length", "8", "--json"];
        demask(&[&arguments[..], more].concat())
    };
    let plain = count(&[]).json()["prompt_tokens"].as_u64().unwrap();
    assert_eq!(count(&["--split-special", "true"]).json()["prompt_tokens"], plain);
    assert!(count(&["--split-special", "false"]).stderr.contains("mask"));
    let old = demask(&["generate", "a<|eot_id|>b", "--gen-length", "8", "--json", "--split-special", "false"]).json();
    assert!(old["prompt_tokens"].as_u64().unwrap() + 10 < plain);
    assert!(count(&["--split-special", "maybe"]).stderr.contains("--split-special is \"maybe\""));
}

#[test]
fn prompts_come_from_files_standard_input_and_as_tokens() {
    let (question, _) = &questions()[1];
    let expected = demask(&["generate", question, "-q"]).success();
    let piped = demask_with_input(&["generate", "--prompt-file", "-", "-q"], &format!("{question}\n"));
    assert_eq!(piped.success(), expected);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), question).unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(demask(&["generate", "--prompt-file", path, "-q"]).success(), expected);

    let model = project("golden/ckpt/tiny-llada");
    let arguments = ["generate", "--model", &model, "--prompt-tokens", "1, 2,3", "--gen-length", "4", "--ignore-eos"];
    let answer = demask(&[&arguments[..], &["--json"]].concat()).json();
    assert_eq!((&answer["text"], &answer["prompt_tokens"]), (&Value::Null, &3.into()));
    let text = demask(&[&arguments[..], &["-q"]].concat()).success();
    let tokens: Vec<_> = answer["tokens"].as_array().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(text.trim_end(), tokens.join(","));
}

#[test]
fn what_is_piped_is_the_prompt_or_follows_it() {
    let (question, _) = &questions()[1];
    let (first, rest) = question.split_once(". ").unwrap();
    let count = |run: Run| run.json()["prompt_tokens"].clone();
    let whole = count(demask(&["generate", question, "--json"]));
    for arguments in
        [&["generate"][..], &["generate", "-"], &["generate", "-p", "-"], &["generate", "--prompt-file", "-"]]
    {
        let piped = demask_with_input(&[arguments, &["--json"]].concat(), &format!("{question}\n"));
        assert_eq!(count(piped), whole, "{arguments:?}");
    }
    let joined = count(demask(&["generate", &format!("{first}.\n\n{rest}"), "--json"]));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("{first}.\n")).unwrap();
    let head = format!("{first}.");
    for prompt in [&[head.as_str()][..], &["--prompt-file", file.path().to_str().unwrap()]] {
        let arguments = [&["generate", "--json"], prompt].concat();
        assert_eq!(count(demask_with_input(&arguments, &format!("{rest}\n"))), joined, "{prompt:?}");
        // Nothing is no text.
        assert_eq!(count(demask_with_input(&arguments, "\n")), count(demask(&arguments)), "{prompt:?}");
    }
    let filled = demask_with_input(&["generate", "--infill", "--json"], "3+4=<mask:1> pears.\n").json();
    assert!(filled["text"].as_str().unwrap().starts_with("3+4="), "{filled}");
}

/// Beside a prompt an open pipe is waited for, and a line says so. Other kinds of standard input are never read.
#[test]
#[cfg(unix)]
fn standard_input_that_stays_open() {
    use std::{
        io::{BufRead, BufReader},
        os::{fd::OwnedFd, unix::net::UnixStream},
        process::Stdio,
    };
    let (question, answer) = &questions()[1];
    let arguments = ["generate", question.as_str()];
    let mut child = command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
    let (open, mut line) = (child.stdin.take(), String::new());
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "waiting for the end of standard input, which is a pipe: where nothing comes, add < /dev/null\n");
    drop(open);
    let told = |output: std::process::Output| String::from_utf8(output.stdout).unwrap();
    let expected = format!("The final answer is {answer}\n");
    assert!(told(child.wait_with_output().unwrap()).ends_with(&expected));
    let (near, _far) = UnixStream::pair().unwrap();
    let output = command(&arguments).stdin(OwnedFd::from(near)).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(told(output).ends_with(&expected));
}

#[test]
fn stop_texts_end_the_answer() {
    let (question, _) = &questions()[0];
    let answer = demask(&["generate", question, "--stop", "cups", "--json"]).json();
    assert_eq!((&answer["finish"], &answer["text"]), (&"stop".into(), &"19+6=25 ".into()));
    assert_eq!(demask(&["generate", question, "--stop", "cups", "-q"]).success(), "19+6=25 \n");
    assert_eq!((&answer["stop_text"], &answer["end_token"]), (&"cups".into(), &Value::Null));
    let kept = demask(&["generate", question, "--stop", "cups", "--include-stop", "-q"]).success();
    assert_eq!(kept, "19+6=25 cups\n");
    let (stopped, first) = (&answer["tokens"], answer["tokens"][1].to_string());
    let ended = demask(&["generate", question, "--stop-token-ids", &first, "--json"]).json();
    assert_eq!((&ended["end_token"], &ended["finish"]), (&stopped[1], &"eos".into()));
}

#[test]
fn each_token_has_its_log_probability_in_json() {
    let (question, _) = &questions()[0];
    let answer = demask(&["generate", question, "--top-logprobs", "3", "--json"]).json();
    let (tokens, told) = (answer["tokens"].as_array().unwrap(), answer["logprobs"].as_array().unwrap());
    assert_eq!(tokens.len(), told.len());
    for (token, told) in tokens.iter().zip(told) {
        assert_eq!(&told["token"], token);
        // Greedily, the token is the best of the list.
        assert_eq!((&told["top"][0][0], &told["top"][0][1]), (token, &told["logprob"]));
        assert!(told["logprob"].as_f64().unwrap() <= 0.0 && told["top"].as_array().unwrap().len() == 3);
    }
    let plain = demask(&["generate", question, "--json"]).json();
    assert_eq!((&plain["tokens"], plain.get("logprobs")), (&answer["tokens"], None));
}

#[test]
fn plans_are_explained_and_not_run() {
    let run = demask(&[
        "generate",
        "--prompt-tokens",
        "1,2,3",
        "--gen-length",
        "4",
        "--block-length",
        "2",
        "--decoder",
        "static",
        "--explain",
    ]);
    let text = run.success();
    let (plans, costs) = text.split_once("\n\n").unwrap();
    assert_eq!(
        plans,
        "decoder static, cache none: reference; 4 steps, blocks of 2\n\
         step 0 sequence 0: live 0..7 visible 7 full canvas predict 3..5\n\
         step 1 sequence 0: live 0..7 visible 7 full canvas predict 4\n\
         step 2 sequence 0: live 0..7 visible 7 full canvas predict 5..7\n\
         step 3 sequence 0: live 0..7 visible 7 full canvas predict 6\n\
         4 forwards, 4 NFE, 28 rows"
    );
    assert!(costs.contains("decoder static, cache none; 3 prompt tokens, 4 decoded; acceptance 0"), "{costs}");
    assert!(costs.contains("from step  forwards  rows"), "{costs}");
    let json = demask(&["generate", "--prompt-tokens", "1", "--gen-length", "2", "--explain", "--json"]).json();
    assert_eq!(json["plans"].as_array().unwrap().len(), 3);
    assert!(json["cost"]["estimate"]["flops"].as_f64().unwrap() > 0.0);
}

#[test]
fn plans_under_a_form_end_and_say_what_is_forced() {
    let question = "Is 3 + 4 equal to 7?";
    let text = demask(&["generate", "--explain", "--choice", "yes", "--choice", "no", question]).success();
    let plans: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    let forced = |line: &str| Some(line.split_once("forces ")?.1.split_once(' ')?.0.parse::<usize>().unwrap());
    assert!(plans[1].starts_with("form: leaves no choice about "), "{text}");
    let before: usize = plans[1].split(' ').nth(5).unwrap().parse().unwrap();
    let all = before + plans.iter().filter_map(|line| forced(line)).sum::<usize>();
    assert!(before > 50 && all > before, "{text}");
    // Two words are told from each other by their first token.
    assert!(plans.len() < 8, "{text}");
}

#[test]
fn holes_are_filled_in_place() {
    let run = demask(&["generate", "--infill", "19+6=<mask:2> cups.\nThe final answer is 2<mask:1>", "-q"]);
    let text = run.success();
    assert!(text.starts_with("19+6=") && text.contains(" cups.\nThe final answer is 2"), "{text}");
    assert!(!text.contains("mask"), "{text}");
    let answer =
        demask(&["generate", "--infill", "19+6=<mask:2> cups.\nThe final answer is 2<mask:1>", "--json"]).json();
    let holes: Vec<_> = answer["holes"].as_array().unwrap().iter().map(|hole| hole.as_str().unwrap()).collect();
    let [first, second] = holes[..] else { panic!("two holes: {holes:?}") };
    let whole = format!("19+6={first} cups.\nThe final answer is 2{second}");
    assert_eq!(answer["text"].as_str(), Some(whole.as_str()));
}

/// Asked for what it cannot know, the demo says what it is, once and beside the answer.
#[test]
fn the_demo_says_what_it_is() {
    let note = "note: the built-in demo solves small word problems and knows nothing else (there is no number in the \
                question); for other questions name a model, such as --model JetLM/SDAR-1.7B-Chat\n";
    let run = demask(&["generate", "Why is the sky blue?"]);
    assert!(run.stderr.starts_with(note), "{}", run.stderr);
    assert_eq!(run.stderr.matches("note: ").count(), 1);
    let unknown = demask(&["generate", "Ada has 3 elephants."]);
    assert!(unknown.stderr.contains("(\"elephants\" is none of its words)"), "{}", unknown.stderr);
    for silent in [
        &["generate", "-q", "Why is the sky blue?"][..],
        &["generate", &questions()[0].0],
        &["generate", "--model", &project("demo/demo-sdar"), "Why is the sky blue?"],
        &["generate", "--raw", "Why is the sky blue?"],
    ] {
        let run = demask(silent);
        assert!(!run.stderr.contains("note: "), "{silent:?}: {}", run.stderr);
        run.success();
    }
}

#[test]
fn a_conversation_is_one_message_a_line() {
    let (question, answer) = &questions()[0];
    let input = format!("{question}\n\n/reset\n{question}\n/exit\nnever read\n");
    let text = demask_with_input(&["chat", "-q"], &input).success();
    assert_eq!(text.matches(&format!("The final answer is {answer}\n")).count(), 2, "{text}");
    let text = demask_with_input(&["chat", "--json"], &format!("{question}\nAnd now?")).success();
    let turns: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(turns.len(), 2);
    assert!(turns[1]["prompt_tokens"].as_u64() > turns[0]["prompt_tokens"].as_u64(), "the history is part of it");
}

#[test]
fn a_message_is_answered_once_more_by_other_random_numbers() {
    let (question, _) = &questions()[0];
    let turns = |temperature: &str| {
        let options = ["--decoder", "static", "--temperature", temperature, "--seed", "0", "--max-tokens", "24"];
        let arguments = [&["chat", "--json"][..], &options].concat();
        let text = demask_with_input(&arguments, &format!("{question}\n/retry\n/retry\nAnd now?\n")).success();
        let turns: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // Each answer takes the place of the one before.
        assert_eq!(turns[0]["prompt_tokens"], turns[2]["prompt_tokens"]);
        assert!(turns[3]["prompt_tokens"].as_u64() > turns[2]["prompt_tokens"].as_u64());
        turns.into_iter().map(|turn| turn["text"].clone()).collect::<Vec<_>>()
    };
    let greedy = turns("0");
    assert!(greedy[0] == greedy[1] && greedy[1] == greedy[2], "{greedy:?}");
    let drawn = turns("2");
    assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2], "{drawn:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let arguments = ["generate", "Hello?", "--gen-length", "256", "--block-length", "16", "--ignore-eos", "-q"];
    let mut child = command(&arguments).spawn().unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
#[cfg(unix)]
fn an_interruption_leaves_nothing_behind() {
    use std::{process::Command, thread, time::Duration};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let arguments = ["generate", "Hello?", "--gen-length", "900", "--ignore-eos", "-q", "--trace"];
    let mut child = command(&[&arguments[..], &[path.to_str().unwrap()]].concat()).spawn().unwrap();
    // The temporary file says that it has begun.
    while fs::read_dir(directory.path()).unwrap().count() == 0 && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "error: interrupted\n");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_guide_judges_drafts() {
    let (question, answer) = &questions()[0];
    let guide = project("demo/demo-qwen");
    let guided = |model: &str, decoder: &str| {
        let arguments = ["generate", question, "--model", model, "--guide", &guide, "--decoder", decoder];
        demask(&[&arguments[..], &["--dtype", "f32", "--json"]].concat()).json()
    };
    let (dream, llada) = (project("demo/demo-dream"), project("demo/demo-llada"));
    // One vocabulary, and two: the drafts go by their bytes.
    for (model, decoder) in
        [(&dream, "guided"), (&dream, "guided:match=topk_relative"), (&dream, "guided:align=bytes"), (&llada, "guided")]
    {
        let run = guided(model, decoder);
        let text = run["text"].as_str().unwrap();
        assert!(text.ends_with(&format!("The final answer is {answer}")), "{model} {decoder}: {text}");
        let receipt = &run["receipt"];
        let (nfe, calls) = (receipt["nfe"].as_u64().unwrap(), receipt["guide_nfe"].as_u64().unwrap());
        assert!(calls > 0 && nfe < run["generated_tokens"].as_u64().unwrap(), "{model} {decoder}: {receipt}");
        assert_eq!((&receipt["exactness"], &receipt["guide"]["model"]), (&"approximate".into(), &"demo-qwen".into()));
        assert!(receipt["memory"]["guide"].as_u64() > Some(0) && receipt["seconds"]["guide"].as_f64() > Some(0.0));
    }
    // The guide's own output, whatever the model drafts.
    let shared = ["generate", question, "--raw", "--gen-length", "40", "--dtype", "f32", "--json"];
    let target = ["--model", &dream, "--guide", &guide, "--decoder", "guided:target=guide"];
    let run = demask(&[&shared[..], &target].concat()).json();
    assert_eq!(run["receipt"]["against"], "ar of the guide, cache causal");
    let own = demask(&[&shared[..], &["--model", &guide]].concat()).json();
    assert_eq!(run["tokens"], own["tokens"]);
    assert!(run["receipt"]["nfe"].as_u64() < own["receipt"]["nfe"].as_u64());
}

#[test]
fn rounds_are_explained_at_an_acceptance() {
    let model = project("golden/ckpt/idlm-toy");
    let args = ["generate", "--model", &model, "--prompt-tokens", "3,4,5", "--gen-length", "12", "--decoder", "isd"];
    let text = demask(&[&args[..], &["--explain", "--acceptance", "1"]].concat()).success();
    for told in [
        "predict 4..11 (guesses 8..11): accepts 3 of 3 drafts, settles 4 tokens\n",
        "12 decoded; acceptance 1, operations as demask counts",
        "3 verify and 1 cold rounds, accepted by place 1.00 1.00 1.00\n",
    ] {
        assert!(text.contains(told), "{told} is missing in {text}");
    }
    let refusal = "--acceptance says what --explain assumes: give --explain, too";
    refused(&demask(&[&args[..], &["--acceptance", "1"]].concat()), 2, refusal);
}
