use std::path::{Path, PathBuf};

use serde_json::json;

use crate::{
    Field, Guides, List, SettingError, Settings,
    layers::{Layered, Origin},
    settings,
    toml::{FileError, Reader},
};

settings! {
    /// Settings of a mill.
    pub struct Mill of "setting" removed [("wings", "0.1.0", "use `sails`")] {
        /// Number of sails.
        sails: usize = 4, "N" in (1, 12);
        /// Speed of the stones; see `sails`.
        speed: f32, "R";
        /// Grains that it grinds.
        grain: Vec<String>, "NAME" or "all";
        /// Names of its millers, separated by commas.
        miller: List, "NAMES";
        /// File with its accounts.
        accounts: PathBuf, "FILE";
        /// Doors that stay open.
        open: bool, "";
        /// Mills beside it.
        beside: Guides, "[NAME=]MILL";
    }
}

fn set(name: &str, text: &str) -> Result<Mill, SettingError> {
    let mut mill = Mill::default();
    mill.set(name, text).map(|()| mill)
}

#[test]
fn a_value_is_written_as_it_is_read() {
    for (name, text, json) in [
        ("sails", "6", json!(6)),
        ("speed", "0.1", json!(0.1)),
        ("grain", "rye, and more", json!(["rye, and more"])),
        ("miller", " Ann ,,Ben", json!(["Ann", "Ben"])),
        ("accounts", "a/b", json!("a/b")),
        ("open", "off", json!(false)),
        ("beside", "a=b=c,d", json!(["a=b=c", "d"])),
    ] {
        let mill = set(name, text).unwrap();
        assert_eq!(serde_json::to_value(&mill).unwrap(), json!({name: json}));
        let read: Mill = serde_json::from_value(json!({name.to_uppercase(): json})).unwrap();
        assert_eq!(read, mill);
    }
}

#[test]
fn a_wrong_value_is_refused_with_what_was_found_and_expected() {
    for (name, text, refused) in [
        ("sails", "13", "`sails` is \"13\", expected a whole number from 1 to 12"),
        ("sails", "", "`sails` is \"\", expected a whole number from 1 to 12"),
        ("speed", "fast", "`speed` is \"fast\", expected a number"),
        ("open", "yes", "`open` is \"yes\", expected true or false"),
        ("sail", "1", "unknown setting \"sail\", did you mean \"sails\"? (known: sails, speed, "),
        ("Wings", "4", "`wings` was removed, version 0.1.0 had it: use `sails`"),
    ] {
        let found = set(name, text).unwrap_err().to_string();
        assert!(found.starts_with(refused), "{found}");
    }
    for (json, refused) in [
        (r#"{"sails": 4, "SAILS": 4}"#, "`SAILS` is there twice, give it once"),
        (r#"{"sails": "4"}"#, "`sails` is \"4\", expected a whole number from 1 to 12"),
        (r#"{"grain": [1]}"#, "`grain` is [1], expected a text or a list of texts"),
        (r#"{"beside": 1}"#, "`beside` is 1, expected a model, or an object of models by name"),
        (r"[]", "invalid type: sequence, expected an object of settings"),
    ] {
        let found = serde_json::from_str::<Mill>(json).unwrap_err().to_string();
        assert!(found.starts_with(refused), "{found}");
    }
}

#[test]
fn help_and_defaults_follow_from_the_declaration() {
    let help: Vec<String> = Mill::FIELDS.iter().take(3).map(Field::help).collect();
    let expected =
        ["Number of sails [default: 4]", "Speed of the stones; see sails", "Grains that it grinds [default: all]"];
    assert_eq!(help, expected);
    assert_eq!((Mill::default().sails(), set("sails", "7").unwrap().sails()), (4, 7));
    let field = Mill::field("ACCOUNTS").unwrap();
    assert_eq!((field.flag(), field.variable()), ("--accounts".to_owned(), "DEMASK_ACCOUNTS".to_owned()));
}

/// Flags, then the environment, then a file.
fn layered(text: &str) -> Result<Layered<Mill>, FileError> {
    let mut flags = Mill::default();
    flags.set("grain", "rye").unwrap();
    flags.set("grain", "oats").unwrap();
    let mut layered = Layered::new(flags);
    let environment = |name: &str| match name {
        "DEMASK_SAILS" => Some("5".into()),
        "DEMASK_GRAIN" => Some("barley".into()),
        "DEMASK_OPEN" => panic!("nobody takes it"),
        _ => None,
    };
    layered.add_environment(|name| name != "open", environment).unwrap();
    for entry in (Reader { path: Path::new("mill.toml"), text }).parse()?.entries() {
        assert!(layered.add_entry(entry)?, "{}", entry.key);
    }
    Ok(layered)
}

#[test]
fn the_first_source_wins_and_each_value_knows_its_own() {
    let layered = layered("sails = 6\n\nspeed = 2\nopen = true\nmiller = \"Ann,Ben\"\n").unwrap();
    let lines = [
        "sails = 5  # DEMASK_SAILS",
        "speed = 2.0  # mill.toml, line 3",
        "grain = [\"rye\",\"oats\"]  # flag",
        "miller = [\"Ann\",\"Ben\"]  # mill.toml, line 5",
        "open = true  # mill.toml, line 4",
    ];
    assert_eq!(layered.lines(), lines);
    assert_eq!(layered.origin("sails"), Some(&Origin::Variable("DEMASK_SAILS".to_owned())));
    // What is written is read, and comes to the same.
    let text = layered.lines().join("\n");
    let mut again = Layered::new(Mill::default());
    for entry in (Reader { path: Path::new("again.toml"), text: &text }).parse().unwrap().entries() {
        again.add_entry(entry).unwrap();
    }
    assert_eq!(again.settings(), layered.settings());
    assert_eq!(Layered::new(Mill::default()).lines(), ["sails = 4  # default", "# grain: all  # default"]);
}

#[test]
fn a_file_is_refused_with_its_line() {
    for (text, refused) in [
        ("\nsails = 0\n", "mill.toml, line 2: sails is 0, expected a whole number from 1 to 12"),
        ("sails = \"x\"", "mill.toml, line 1: sails is \"x\", expected a whole number from 1 to 12"),
        ("sails = 1\n\nSAILS = 2", "mill.toml, line 3: sails is there twice, first on line 1: omit one"),
        ("speed = 1\nspeed = 2\n", "mill.toml, line 2: this is no TOML: duplicate key"),
        ("accounts = 1979-05-27", "mill.toml, line 1: accounts cannot be read: expected a text"),
        ("grain = [\"a\", 1]", "mill.toml, line 1: grain is [\"a\",1], expected a text or a list of texts"),
        ("= 1", "mill.toml, line 1: this is no TOML"),
        ("\u{feff}\0", "mill.toml, line 1: this is no TOML"),
        ("sails = \"a", "mill.toml, line 1: this is no TOML"),
    ] {
        let found = layered(text).unwrap_err().to_string();
        assert!(found.starts_with(refused) && !found.contains('\n'), "{text:?}: {found}");
    }
}

#[test]
fn a_variable_is_refused_by_its_name() {
    for (value, refused) in [
        ("x", "DEMASK_SAILS is \"x\", expected a whole number from 1 to 12"),
        ("", "DEMASK_SAILS is empty: give it a value, or unset it"),
    ] {
        let mut layered = Layered::new(Mill::default());
        let environment = |name: &str| (name == "DEMASK_SAILS").then(|| value.into());
        let found = layered.add_environment(|_| true, environment).unwrap_err().to_string();
        assert_eq!(found, refused);
    }
}
