//! Help, arguments and unusable files: no model is loaded, and no GPU is opened.

use std::path::{Path, PathBuf};

use crate::{run, strata};

/// A folder with the given files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn help_lists_the_commands_that_work_and_no_others() {
    let help = run(["--help"]);
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""));
    let listed: Vec<&str> = help
        .out
        .lines()
        .skip_while(|l| !l.starts_with("Commands:"))
        .skip(1)
        .take_while(|l| !l.is_empty())
        .filter_map(|l| l.strip_prefix("  ")?.split(' ').next().filter(|w| !w.is_empty()))
        .collect();
    assert_eq!(listed, ["ask", "logits", "tokenize", "bench", "eval", "library", "doctor"]);
}

#[test]
fn help_of_every_command_names_flags_and_their_environment_variables() {
    for (command, flags) in [
        (
            "ask",
            &[
                "--doc",
                "--prompt",
                "--model",
                "--gpu",
                "--kv-dtype",
                "--kv-policy",
                "--vram-budget",
                "--ram-budget",
                "--disk-budget",
                "--kv-dir",
                "--limit",
                "--pipeline",
                "--no-save",
                "--trace",
                "--context",
                "--max-tokens",
                "--temperature",
                "--top-k",
                "--top-p",
                "--min-p",
                "--repeat-penalty",
                "--seed",
                "--json",
                "STRATA_TEMPERATURE",
            ][..],
        ),
        ("logits", &["--text", "--tokens", "--out", "--kv-dtype", "STRATA_KV_DTYPE"]),
        ("tokenize", &["--text", "--doc", "--model", "STRATA_MODEL"]),
        (
            "bench",
            &[
                "-p",
                "-n",
                "-d",
                "-r",
                "-o",
                "--synthetic",
                "--type",
                "--peak",
                "--fill",
                "--kv-policy",
                "--rope-base",
                "STRATA_SYNTHETIC",
            ],
        ),
        ("eval", &["kld", "needle"]),
        ("library", &["list", "add", "remove", "verify"]),
        ("doctor", &["--gpu", "--kv-dir", "--json", "STRATA_GPU", "STRATA_KV_DIR"]),
    ] {
        let help = run([command, "--help"]);
        assert_eq!(help.code, Some(0), "{command}");
        for flag in flags {
            assert!(help.out.contains(flag), "{flag} is not in the help of {command}");
        }
        assert!(!help.out.contains("--recompute"), "--recompute does not work yet, but is in the help of {command}");
    }
}

#[test]
fn version_is_printed() {
    assert_eq!(run(["--version"]).out, format!("strata {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn bad_usage_is_one_sentence_and_exit_2() {
    for (args, part) in [
        (&["sing"][..], "sing"),
        (&["--sing"], "--sing"),
        (&["ask"], "--prompt"),
        (&["ask", "--prompt", "q", "--temperature", "warm"], "--temperature"),
        (&["ask", "--prompt", "q", "--top-p", "2"], "from 0 to 1"),
        (&["ask", "--prompt", "q", "--vram-budget", "much"], "64MiB"),
        (&["ask", "--prompt", "q", "--kv-dtype", "q5"], "f16"),
        (&["ask", "--prompt", "q", "--kv-policy", "some"], "full"),
        (&["ask", "--prompt", "q", "--limit", "usb=1GiB"], "pcie=2GiB,nvme=500MiB"),
        (&["ask", "--prompt", "q", "--pipeline", "fast"], "off"),
        (&["eval"], "needle"),
        (&["eval", "kld"], "--text"),
        (&["eval", "needle", "--depths", "0,101"], "--depths"),
        (&["eval", "needle", "--lengths", "0"], "from 1"),
        (&["library"], "list"),
        (&["library", "add"], "FILE"),
        (&["library", "remove"], "ID"),
        (&["ask", "--prompt", "q", "--max-tokens", "0"], "from 1"),
        (&["logits", "--out", "x.npy"], "--text"),
        (&["logits", "--out", "x.npy", "--tokens", "1,-2"], "--tokens"),
        (&["logits", "--tokens", "1"], "--out"),
        (&["tokenize"], "--text"),
        (&["bench", "-r", "0"], "from 1"),
        (&["bench", "-p", "0", "-n", "0"], "nothing to measure"),
        (&["bench", "-o", "pdf"], "csv"),
    ] {
        run(args).assert_refused(2, part);
    }
}

#[test]
fn sizes_are_parsed_with_their_usual_units() {
    let dir = folder(&[]);
    let absent = text(&dir.path().join("absent.txt"));
    for size in ["64MiB", "2GiB", "1.5GB", "1000"] {
        // The size is accepted, so the document is rejected.
        run(["ask", "--doc", &absent, "--prompt", "q", "--vram-budget", size]).assert_refused(2, "absent.txt");
    }
}

#[test]
fn environment_variable_sets_a_flag_and_the_flag_overrides_it() {
    let refused = strata().args(["ask", "--prompt", "q"]).env("STRATA_TOP_P", "7").output().unwrap();
    crate::Ran::from(refused).assert_refused(2, "--top-p");
    let dir = folder(&[]);
    let absent = text(&dir.path().join("absent.txt"));
    let overruled =
        strata().args(["ask", "--prompt", "q", "--top-p", "0.5", "--doc", &absent]).env("STRATA_TOP_P", "7").output().unwrap();
    crate::Ran::from(overruled).assert_refused(2, "absent.txt");
}

#[test]
fn window_settings_in_the_environment_are_checked_before_it_opens() {
    let refused = strata().env("STRATA_VRAM_BUDGET", "lots").output().unwrap();
    crate::Ran::from(refused).assert_refused(2, "--vram-budget");
}

#[test]
fn invalid_documents_are_one_sentence_and_exit_2() {
    let dir = folder(&[
        ("empty.txt", b""),
        ("blank.md", b" \n\n\t\n"),
        ("picture.txt", b"\x89PNG\r\n\x1a\n"),
        ("binary.txt", b"\x7fELF\0\0\0\x01\x02\x03"),
    ]);
    let files = ["absent.txt", "empty.txt", "blank.md", "picture.txt", "binary.txt"];
    let mut paths: Vec<PathBuf> = files.iter().map(|name| dir.path().join(name)).collect();
    paths.push(dir.path().to_owned());
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        run(["ask", "--prompt", "q", "--doc", &text(&path)]).assert_refused(2, name);
    }
}

#[test]
fn unwritable_outputs_are_refused_before_a_model_is_loaded() {
    let dir = folder(&[]);
    run(["logits", "--tokens", "1", "--out", &text(dir.path())]).assert_refused(2, "folder");
    run(["logits", "--tokens", "1", "--out", &text(&dir.path().join("no/x.npy"))]).assert_refused(2, "Create it first");
}

#[test]
fn help_into_a_closed_pipe_is_silent() {
    use std::process::Stdio;
    let mut child = strata().arg("--help").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ran = crate::Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}

#[test]
fn web_page_is_tokenized_as_its_visible_text() {
    let page = b"<!doctype html><html><body><nav hidden>Home</nav><p>The harbour was <b>built</b>\n in stone.</p></body></html>";
    let dir = folder(&[("page.html", page), ("page.txt", b"The harbour was built in stone.")]);
    let ids = |name: &str| {
        let ran = run(["tokenize", "--doc", &text(&dir.path().join(name))]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{name}");
        ran.out
    };
    assert_eq!(ids("page.html"), ids("page.txt"));
}

#[test]
fn malformed_document_is_one_sentence_and_exit_2() {
    let dir = folder(&[("cut.docx", b"PK\x03\x04 word/document.xml"), ("page.pdf", b"%PDF-1.7\n1 0 obj\n")]);
    for name in ["cut.docx", "page.pdf"] {
        run(["tokenize", "--doc", &text(&dir.path().join(name))]).assert_refused(2, "is corrupt");
    }
}
