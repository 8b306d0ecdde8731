//! Settings fixture: a file in which no key has its default, opened and written again.

use serde_json::{Value, json};

use crate::{fixture, internals};

const FILE: &str = "settings.json";
const MODEL: &str = "/models/other.gguf";
const KEYS: [&str; 9] =
    ["disk_budget", "keep_read", "model", "model_folders", "models", "ram_budget", "theme", "vram_budget", "zoom"];
const MODEL_KEYS: [&str; 10] =
    ["answers_read", "context", "kv_dtype", "max_tokens", "min_p", "repetition_penalty", "seed", "temperature", "top_k", "top_p"];

fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn settings_of_before_are_in_force() {
    let (now, notices) = internals::settings(&fixture(FILE), MODEL);
    assert_eq!(notices, Vec::<String>::new());
    let fields = ["0.3", "7", "0.8", "0.2", "1.1", "42", "99", "4096", "1536MiB", "3GiB", "1500000001"];
    let expected = json!({
        "fields": fields,
        "kv_dtype": "q8",
        "reads_what_matters": true,
        "keep_read": false,
        "theme": "light",
        "zoom": 1.25,
        "has_last_model": true,
        "model_folders": ["/models", "/more models"],
    });
    assert_eq!(now, expected);
    let (other, notices) = internals::settings(&fixture(FILE), "built-in");
    assert_eq!(notices, Vec::<String>::new());
    assert_eq!((&other["kv_dtype"], &other["fields"][6], &other["theme"]), (&json!("f16"), &json!("512"), &json!("light")));
}

#[test]
fn settings_chosen_now_are_written_under_the_keys_of_before() {
    let before: Value = serde_json::from_slice(&std::fs::read(fixture(FILE)).unwrap()).unwrap();
    assert_eq!(keys(&before), KEYS);
    assert_eq!(keys(&before["models"][MODEL]), MODEL_KEYS);
    let now: Value = serde_json::from_str(&internals::settings_again(&fixture(FILE), MODEL)).unwrap();
    assert_eq!(now, before);
}
