//! `strata eval` on the built-in model: measurements, printed output and written files.

use serde_json::Value;

use crate::{Ran, run};

fn has_device(test: &str) -> bool {
    crate::common::gpu(test, strata::gpu::FeatureOverrides::default()).is_some()
}

/// Last line of a run with `--json`.
fn summary(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let last = ran.out.lines().last().unwrap();
    let summary: Value = serde_json::from_str(last).unwrap();
    assert_eq!(summary["event"], "summary");
    summary
}

/// A text of a few hundred tokens, in its own folder.
fn text() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text.txt");
    let lines = (0..40).map(|i| format!("On day {i} the ferryman counted {} boats and went home. ", i * 7 % 23));
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn needle_in_a_short_document_is_found_and_reported() {
    if !has_device("needle_in_a_short_document") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/results");
    let args = ["eval", "needle", "--lengths", "512", "--depths", "50", "--questions", "1", "--seeds", "1", "--json", "--out"];
    let ran = run(args.iter().copied().chain([out.to_str().unwrap()]));
    let summary = summary(&ran);
    assert_eq!((&summary["eval"], &summary["policy"], &summary["kv_dtype"]), (&"needle".into(), &"full".into(), &"f16".into()));
    assert_eq!(
        summary["first"]["cells"],
        serde_json::json!([{ "length": 512, "depth": 50, "asked": 1, "hits": 1, "share": 1.0 }])
    );
    assert_eq!((&summary["seeds"], &summary["second"]), (&serde_json::json!([1]), &Value::Null));
    let answer: Value = serde_json::from_str(ran.out.lines().find(|l| l.contains("\"answer\"")).unwrap()).unwrap();
    assert_eq!((&answer["depth"], &answer["seed"], &answer["hit"]), (&50.into(), &1.into(), &true.into()));
    let used = answer["cost"]["context_used"].as_u64().unwrap();
    assert!((400..=512).contains(&used), "{used} tokens of 512");
    let written: Value = serde_json::from_slice(&std::fs::read(out.join("needle.json")).unwrap()).unwrap();
    assert_eq!((&written["first"], &written["answers"][0]), (&summary["first"], &answer));
    let document = &written["documents"][0];
    assert_eq!((&document["length"], &document["seed"]), (&512.into(), &1.into()));
    assert!(document["text"].as_str().unwrap().contains(answer["expected"].as_str().unwrap()));
    let svg = std::fs::read_to_string(out.join("needle.svg")).unwrap();
    assert!(svg.contains(">100 %</text>") && svg.contains("Facts found: 1 of 1"));
}

#[test]
fn needle_second_question_is_asked_in_the_same_conversation() {
    if !has_device("needle_second_question") {
        return;
    }
    let (lengths, depths) = (["--lengths", "512,700"], ["--depths", "100,0"]);
    let args = ["eval", "needle", "--questions", "1", "--seeds", "2", "--two-questions"];
    let ran = run(args.iter().chain(&lengths).chain(&depths));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("seeds 2"), "{}", ran.out);
    let rows: Vec<&str> = ran.out.lines().filter(|l| l.starts_with('|')).collect();
    assert_eq!(rows.iter().filter(|r| r.contains("700 tokens")).count(), 2, "{}", ran.out);
    let widths: std::collections::HashSet<usize> = rows.iter().map(|r| r.chars().count()).collect();
    assert_eq!(widths.len(), 1, "{}", ran.out);
    assert_eq!(ran.out.matches("of 4 found").count(), 2, "{}", ran.out);
}

#[test]
fn kld_of_full_is_exactly_zero_and_of_coarser_keys_is_not() {
    if !has_device("kld_of_full") {
        return;
    }
    let (dir, text) = text();
    let out = dir.path().to_str().unwrap().to_owned();
    let kld = |more: &[&str]| {
        let args = ["eval", "kld", "--text", &text, "--prefix", "256", "--tokens", "40", "--json", "--out", &out];
        summary(&run(args.iter().chain(more)))
    };
    let full = kld(&[]);
    assert_eq!((&full["kld_mean"], &full["kld_max"], &full["top1_agreement"]), (&0.0.into(), &0.0.into(), &1.0.into()));
    assert_eq!(full["perplexity"], full["perplexity_exact"]);
    assert!(full["perplexity"].as_f64().unwrap() > 1.0);
    assert_eq!((&full["prefix_tokens"], &full["scored_tokens"], &full["mass_kept"]), (&256.into(), &40.into(), &Value::Null));
    assert_eq!((&full["cost"]["prompt_tokens"], &full["cost"]["generated_tokens"]), (&256.into(), &40.into()));
    let coarse = kld(&["--kv-dtype", "q4"]);
    let figure = |name: &str| coarse[name].as_f64().unwrap();
    assert!(figure("kld_mean") > 1e-6 && figure("kld_mean") < 1.0, "{coarse}");
    assert!(figure("kld_mean") <= figure("kld_max") && figure("kld_p99") <= figure("kld_max"), "{coarse}");
    assert_eq!(coarse["perplexity_exact"], full["perplexity_exact"]);
    assert_ne!(coarse["perplexity"], full["perplexity"]);
    let written: Value = serde_json::from_slice(&std::fs::read(dir.path().join("kld.json")).unwrap()).unwrap();
    assert_eq!(written["kld"].as_array().unwrap().len(), 40);
    let svg = std::fs::read_to_string(dir.path().join("kld.svg")).unwrap();
    assert_eq!(svg.matches("<rect").count(), 1 + 40);
    assert!(svg.contains(">256</text>") && svg.contains(">288</text>"));
}

#[test]
fn impossible_measurements_are_refused_before_a_model_is_loaded() {
    let (_dir, text) = text();
    for (args, part) in [
        (&["kld", "--text", &text, "--prefix", "5000"][..], "--prefix 5000"),
        (&["kld", "--text", "absent.txt"], "absent.txt"),
        (&["needle", "--lengths", "200"], "longer length"),
        (&["needle", "--lengths", "512", "--questions", "400"], "too many"),
        (&["needle", "--lengths", "512", "--depths", "50", "--questions", "1", "--two-questions"], "second fact"),
        (&["needle", "--lengths", "65536", "--text", &text], "the text ends"),
        (&["needle", "--text", "absent.txt"], "absent.txt"),
        (&["needle", "--lengths", "900", "--out", &format!("{text}/no")], "could not be created"),
    ] {
        run(["eval"].iter().chain(args)).assert_refused(2, part);
    }
}
