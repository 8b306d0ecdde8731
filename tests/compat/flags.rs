//! Flags of every command: names, environment variables, defaults and possible values, read from `--help` without its prose.

use serde_json::{Map, Value, json};

use crate::{recorded, run};

const COMMANDS: [&str; 14] = [
    "",
    "ask",
    "logits",
    "tokenize",
    "bench",
    "eval",
    "eval kld",
    "eval needle",
    "library",
    "library list",
    "library add",
    "library remove",
    "library verify",
    "doctor",
];

/// Lines of a section of the help, up to the next one.
fn section<'a>(help: &'a str, title: &'a str) -> impl Iterator<Item = &'a str> {
    help.lines().skip_while(move |line| *line != title).skip(1).take_while(|line| line.is_empty() || line.starts_with(' '))
}

/// Entries of a section: the first line of each is indented by at most 6 and begins as `is_first` requires.
fn entries<'a>(lines: impl Iterator<Item = &'a str>, is_first: impl Fn(&str) -> bool) -> Vec<Vec<&'a str>> {
    let mut entries: Vec<Vec<&str>> = Vec::new();
    for line in lines {
        let text = line.trim_start();
        match entries.last_mut() {
            _ if line.len() - text.len() <= 6 && is_first(text) => entries.push(vec![text]),
            Some(entry) => entry.push(text),
            None => {}
        }
    }
    entries
}

/// Text in brackets after `[label: `.
fn bracket<'a>(text: &'a str, label: &str) -> Option<(&'a str, &'a str)> {
    let (_, after) = text.split_once(&format!("[{label}: "))?;
    after.split_once(']')
}

fn flag(entry: &[&str]) -> Value {
    let words = entry.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    let first = entry[0].split("  ").next().unwrap_or_default();
    let names: Vec<&str> = first.split([' ', ',']).filter(|word| word.starts_with('-')).collect();
    // A default behind the environment variable is clap's; another one is prose.
    let (env, after) = bracket(&words, "env").map_or((None, ""), |(env, after)| (Some(env.trim_end_matches('=')), after));
    let default = bracket(after, "default").filter(|_| after.starts_with(" [default: ")).map(|(value, _)| value);
    let listed = entry.iter().skip_while(|line| **line != "Possible values:").skip(1).filter_map(|line| line.strip_prefix("- "));
    let mut values: Vec<&str> = listed.map(|line| line.split(':').next().unwrap_or_default().trim()).collect();
    values.extend(bracket(&words, "possible values").into_iter().flat_map(|(list, _)| list.split(", ")));
    let takes = if first.contains("...") { "values" } else { ["nothing", "a value"][usize::from(first.contains('<'))] };
    json!({ "names": names, "takes": takes, "env": env, "default": default, "values": values })
}

fn of_command(command: &str) -> Value {
    let help = run(command.split_whitespace().chain(["--help"]));
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""), "{command}");
    let by_name = |entries: Vec<Vec<&str>>, begins: &str| {
        let names = entries.iter().filter_map(|entry| entry[0].split_whitespace().next());
        names.filter(|name| name.contains(begins)).map(str::to_owned).collect::<Vec<_>>()
    };
    let is_command = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase());
    let commands = entries(section(&help.out, "Commands:").filter(|line| line.find(|c| c != ' ') == Some(2)), is_command);
    let arguments = entries(section(&help.out, "Arguments:"), |text| text.starts_with(['<', '[']));
    let flags = entries(section(&help.out, "Options:"), |text| text.starts_with('-'));
    json!({
        "commands": by_name(commands, ""),
        "arguments": by_name(arguments, ""),
        "flags": flags.iter().map(|entry| flag(entry)).collect::<Vec<_>>(),
    })
}

/// Differences between two maps of flags, one line each.
fn differences(before: &Value, now: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for command in COMMANDS {
        let (was, is) = (&before[command], &now[command]);
        for list in ["commands", "arguments"] {
            if was[list] != is[list] {
                found.push(format!("{command}: {list} were {}, are {}", was[list], is[list]));
            }
        }
        let flags = |side: &Value| side["flags"].as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
        let (was, is) = (flags(was), flags(is));
        found.extend(was.iter().filter(|flag| !is.contains(flag)).map(|flag| format!("{command}: no longer {flag}")));
        found.extend(is.iter().filter(|flag| !was.contains(flag)).map(|flag| format!("{command}: new {flag}")));
    }
    found
}

#[test]
fn flags_of_every_command_are_those_of_before() {
    let now: Map<String, Value> = COMMANDS.iter().map(|command| ((*command).to_owned(), of_command(command))).collect();
    let now = Value::from(now);
    let found = differences(&recorded("flags.json", &now), &now);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn flags_are_read_from_both_layouts_of_help() {
    let long = "--kv-dtype <TYPE>\nElement type [default: any]\n\nPossible values:\n- f16: half\n- q8:  8 bits\n\n[env: STRATA_X=]\n[default: f16]";
    let short = "-o, --output <F>...  How to print [env: STRATA_O=] [default: md] [possible values: md, csv]";
    let read = |text: &str| flag(&text.lines().collect::<Vec<_>>());
    let expected =
        json!({ "names": ["--kv-dtype"], "takes": "a value", "env": "STRATA_X", "default": "f16", "values": ["f16", "q8"] });
    assert_eq!(read(long), expected);
    let expected =
        json!({ "names": ["-o", "--output"], "takes": "values", "env": "STRATA_O", "default": "md", "values": ["md", "csv"] });
    assert_eq!(read(short), expected);
}
