//! Commands that load a model: output that scripts rely on. They need a GPU, and most of them small models of the test data.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::common::data_dir;
use crate::{Ran, run, strata};

/// A small model of the test data; without it, the test prints that it is skipped.
fn model(test: &str, path: &str) -> Option<String> {
    let Some(dir) = data_dir().filter(|_| has_device(test)) else {
        eprintln!("skipped: {test}: no STRATA_DATA or no device");
        return None;
    };
    Some(dir.join("models").join(path).to_str().unwrap().to_owned())
}

/// True if there is a GPU; a missing one is a failure if `STRATA_REQUIRE_GPU=1`.
fn has_device(test: &str) -> bool {
    crate::common::gpu(test, strata::gpu::FeatureOverrides::default()).is_some()
}

const STORIES: &str = "stories260k/stories260K-F32.gguf";

fn json_lines(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A file of the given text that lives as long as the folder.
fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn ask_streams_tokens_and_ends_with_a_summary() {
    let Some(model) = model("ask_streams", STORIES) else { return };
    let dir = tempfile::tempdir().unwrap();
    let doc = file(&dir, "tale.txt", "Once upon a time there was a girl named Lily. She had a red ball.");
    let args = ["--doc", &doc, "--prompt", "One.", "--prompt", "Two.", "--max-tokens", "12", "--temperature", "0", "--json"];
    let ran = run(["ask", "--model", &model].iter().chain(&args));
    let lines = json_lines(&ran);
    let summaries: Vec<&Value> = lines.iter().filter(|l| l["event"] == "summary").collect();
    assert_eq!(summaries.len(), 2);
    assert_eq!(lines.last().unwrap()["event"], "summary");
    let first: String = lines
        .iter()
        .take_while(|l| l["event"] != "summary")
        .filter(|l| l["event"] == "token")
        .map(|l| l["text"].as_str().unwrap())
        .collect();
    assert_eq!(first, summaries[0]["text"].as_str().unwrap());
    assert!(summaries[0]["generated_tokens"].as_u64().unwrap() <= 12);
    assert!(matches!(summaries[0]["stop"].as_str(), Some("length" | "eos")));
    let n = |i: usize, field: &str| summaries[i][field].as_u64().unwrap();
    assert!(n(1, "cached_tokens") >= n(0, "prompt_tokens"), "the document was prefilled again: {:?}", summaries[1]);
    assert!(n(1, "prompt_tokens") > n(0, "prompt_tokens"));
    assert!(summaries[1]["kv_bytes"]["vram"].as_u64().unwrap() > 0);
    // Plain output is the same text.
    let plain = run(["ask", "--model", &model].iter().chain(&args[..args.len() - 1]));
    let texts: Vec<&str> = summaries.iter().map(|s| s["text"].as_str().unwrap().trim_end_matches('\n')).collect();
    assert_eq!(plain.out.trim_end_matches('\n'), texts.join("\n\n"));
}

#[test]
fn ask_at_once_answers_each_question_independently() {
    if !has_device("ask_at_once_answers_each_question_independently") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let kv_dir = dir.path().to_str().unwrap();
    let doc = format!("{}/assets/sample-document.md", env!("CARGO_MANIFEST_DIR"));
    let asked = ["What is the annual budget of Somiko?", "What is the current temperature for Somiko?"];
    let ask = |more: &[&str]| run(["ask", "--doc", &doc, "--kv-dir", kv_dir, "--max-tokens", "24"].iter().chain(more));
    let alone = asked.map(|question| ask(&["--prompt", question]).out);
    let words = ["--prompt", asked[0], "--prompt", asked[1], "--at-once"];
    let together = ask(&words);
    assert_eq!(together.code, Some(0), "{}", together.err);
    assert_eq!(together.out, format!("{}\n{}\n{}\n{}", asked[0], alone[0], asked[1], alone[1]));
    let lines = json_lines(&ask(&[&words[..], &["--json"]].concat()));
    for (i, alone) in alone.iter().enumerate() {
        let of = |kind: &str| lines.iter().filter(|l| l["event"] == kind && l["turn"] == i + 1).collect::<Vec<_>>();
        let text: String = of("token").iter().map(|l| l["text"].as_str().unwrap()).collect();
        assert_eq!((of("summary").len(), text.trim_end()), (1, alone.trim_end()));
        assert_eq!(of("summary")[0]["text"], text);
    }
}

#[test]
fn ask_with_a_seed_repeats_and_another_seed_differs() {
    let Some(model) = model("ask_with_a_seed", STORIES) else { return };
    let ask = |seed: &str| {
        let args = ["ask", "--prompt", "Once", "--max-tokens", "24", "--temperature", "1.5", "--top-k", "0", "--top-p", "1"];
        let ran = run(args.iter().chain(&["--min-p", "0", "--seed", seed, "--model", &model]));
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        ran.out
    };
    let first = ask("7");
    assert_eq!(first, ask("7"));
    assert_ne!(first, ask("8"));
}

#[test]
fn ask_longer_than_the_window_is_refused_with_both_numbers() {
    let Some(model) = model("ask_longer_than_the_window", STORIES) else { return };
    let dir = tempfile::tempdir().unwrap();
    let doc = file(&dir, "long.txt", &"Once upon a time there was a girl. ".repeat(200));
    run(["ask", "--model", &model, "--doc", &doc, "--prompt", "Who?"]).assert_refused(2, "512");
    run(["ask", "--model", &model, "--context", "64", "--doc", &doc, "--prompt", "Who?"]).assert_refused(2, "64");
}

#[test]
fn ask_over_the_vram_budget_is_refused_with_both_numbers() {
    if !has_device("ask_over_the_vram_budget") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let doc = file(&dir, "short.txt", "The annual budget of Lorene is 48210.");
    run(["ask", "--vram-budget", "256KiB", "--doc", &doc, "--prompt", "What?"]).assert_refused(2, "256 KiB");
}

#[test]
fn invalid_models_are_one_sentence_and_exit_2() {
    if !has_device("invalid_models") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let text = file(&dir, "model.gguf", "this is no model at all");
    let folder = dir.path().to_str().unwrap().to_owned();
    let absent = dir.path().join("absent.gguf").to_str().unwrap().to_owned();
    for (path, part) in [(&text, "model.gguf"), (&folder, ""), (&absent, "absent.gguf")] {
        run(["ask", "--prompt", "q", "--model", path]).assert_refused(2, part);
        run(["tokenize", "--text", &text, "--model", path]).assert_refused(2, part);
    }
    run(["bench", "--synthetic", "llama-99b", "-p", "1", "-n", "0"]).assert_refused(2, "llama-99b");
    run(["ask", "--prompt", "q", "--gpu", "no such card"]).assert_refused(2, "no such card");
}

#[test]
fn tokenize_gives_the_ids_of_the_golden_file() {
    let Some(path) = model("tokenize_gives", "golden-greedy-llamacpp.json") else { return };
    let golden: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut n_cases = 0;
    for (name, case) in golden["cases"].as_object().unwrap() {
        let text = file(&dir, "prompt.txt", case["prompt"].as_str().unwrap());
        let model = PathBuf::from(&path).with_file_name(name);
        let ran = run(["tokenize", "--text", &text, "--model", model.to_str().unwrap()]);
        assert_eq!(json_lines(&ran), [case["prompt_ids"].clone()], "{name}");
        n_cases += 1;
    }
    assert!(n_cases > 10);
}

#[test]
fn logits_file_has_a_row_per_token_and_its_best_token_is_the_golden_one() {
    let Some(path) = model("logits_file", "golden-greedy-llamacpp.json") else { return };
    let golden: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let case = &golden["cases"][STORIES];
    let ids: Vec<String> = case["prompt_ids"].as_array().unwrap().iter().map(Value::to_string).collect();
    let model = PathBuf::from(&path).with_file_name(STORIES);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("l.npy");
    let args = ["logits", "--kv-dtype", "f32", "--tokens", &ids.join(","), "--out", out.to_str().unwrap()];
    let ran = run(args.iter().chain(&["--model", model.to_str().unwrap(), "--json"]));
    let lines = json_lines(&ran);
    let shape = &lines.last().unwrap()["shape"];
    assert_eq!(shape, &serde_json::json!([ids.len(), 512]));
    let bytes = std::fs::read(&out).unwrap();
    let values: Vec<f32> =
        bytes[bytes.len() - ids.len() * 512 * 4..].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert!(values.iter().all(|v| v.is_finite()));
    let last = &values[(ids.len() - 1) * 512..];
    let best = (0..512).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
    assert_eq!(Value::from(best), case["greedy_ids"][0]);
    run(args.iter().chain(&["--model", model.to_str().unwrap(), "--tokens", "999999"])).assert_refused(2, "");
}

#[test]
fn bench_prints_a_line_per_test_in_every_format() {
    let Some(model) = model("bench_prints", STORIES) else { return };
    let bench = |format: &str| run(["bench", "--model", &model, "-p", "16", "-n", "4", "-d", "0,16", "-r", "2", "-o", format]);
    let lines = json_lines(&bench("jsonl"));
    let tests: Vec<&str> = lines.iter().map(|l| l["test"].as_str().unwrap()).collect();
    assert_eq!(tests, ["pp16", "tg4", "pp16 @ d16", "tg4 @ d16"]);
    for line in &lines {
        assert!(line["tokens_per_s_mean"].as_f64().unwrap() > 0.0 && line["n"] == 2, "{line}");
        assert!(line["dispatches"].as_u64().unwrap() > 0, "{line}");
    }
    let table = bench("md");
    assert_eq!(table.out.lines().filter(|l| l.contains(" ± ")).count(), 4, "{}", table.out);
    assert_eq!(json_lines(&bench("json"))[0].as_array().unwrap().len(), 4);
    assert_eq!(bench("csv").out.lines().count(), 5);
    let filled =
        ["-p", "0", "-n", "4", "-d", "300", "-r", "1", "--fill", "--kv-policy", "leoam!", "--importance", "64", "--json"];
    let line = json_lines(&run(["bench", "--model", &model].iter().chain(&filled))).remove(0);
    assert_eq!((&line["test"], &line["policy"]), (&"tg4 @ d300".into(), &"leoam".into()), "{line}");
    assert!(line["share_read"].as_f64().unwrap() < 1.0 && line["evaluations_per_step"].as_f64().unwrap() > 0.0, "{line}");
}

#[test]
fn doctor_measures_the_device_it_names() {
    if !has_device("doctor_measures") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("library");
    let report = &json_lines(&run(["doctor", "--json", "--kv-dir", library.to_str().unwrap()]))[0];
    for what in ["stream_read_bytes_per_s", "copy_bytes_per_s", "upload_bytes_per_s", "readback_bytes_per_s", "gemm_flops"] {
        assert!(report["device"]["measured"][what].as_f64().unwrap() > 1e6, "{what}: {report}");
    }
    assert!(report["adapters"].as_array().unwrap().iter().any(|a| a["name"] == report["device"]["name"]));
    assert!(report["paths"]["data"].as_str().unwrap().contains("strata"));
    assert!(report["disk"]["read_bytes_per_s"].as_f64().unwrap() > 1e6, "{report}");
    assert_eq!(report["disk"]["library"], library.to_str().unwrap());
    assert!(report["budgets"]["vram"].as_u64().unwrap() > 0);
    assert!(!library.exists(), "doctor creates no folder");
    run(["doctor", "--gpu", "no such card"]).assert_refused(2, "no such card");
}

#[test]
fn ask_into_a_closed_pipe_ends_silently() {
    let Some(model) = model("ask_into_a_closed_pipe", STORIES) else { return };
    let mut child = strata()
        .args(["ask", "--prompt", "Once", "--max-tokens", "64", "--model", &model])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}

#[cfg(unix)]
#[test]
fn ask_interrupted_keeps_the_answer_so_far() {
    use std::io::{BufRead, BufReader};
    let Some(model) = model("ask_interrupted", STORIES) else { return };
    let mut child = strata()
        .args(["ask", "--prompt", "Once upon a time", "--max-tokens", "450", "--json", "--temperature", "0", "--model", &model])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines =
        BufReader::new(child.stdout.take().unwrap()).lines().map(|l| serde_json::from_str::<Value>(&l.unwrap()).unwrap());
    let mut text = String::new();
    let first = lines.by_ref().find(|l| l["event"] == "token").unwrap();
    text.push_str(first["text"].as_str().unwrap());
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let rest: Vec<Value> = lines.collect();
    let summary = rest.last().unwrap();
    for line in rest.iter().filter(|l| l["event"] == "token") {
        text.push_str(line["text"].as_str().unwrap());
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!((&summary["event"], &summary["text"]), (&Value::from("summary"), &Value::from(text)));
    // The model may end its answer before the signal arrives; it never runs to the limit.
    assert_ne!(summary["stop"], "length", "{summary}");
}
