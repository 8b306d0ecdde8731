//! Exit codes: 2 for bad usage or bad input, 1 for a failure while running, 0 otherwise; none of these needs a device.

use std::fs::File;
use std::process::Stdio;

use crate::{fixture, path_text, run, scratch, strata};

#[test]
fn bad_usage_and_bad_input_exit_with_2_and_one_sentence() {
    let absent = ["ask", "--doc", "absent.md", "--prompt", "q"];
    for args in [
        &["sing"][..],
        &["--sing"],
        &["ask"],
        &absent,
        &["ask", "--prompt", " "],
        &["ask", "--prompt", "q", "--top-p", "2"],
        &["ask", "--prompt", "q", "--kv-policy", "some"],
        &["ask", "--prompt", "q", "--kv-dtype", "q5"],
        &["ask", "--prompt", "q", "--vram-budget", "much"],
        &["ask", "--prompt", "q", "--max-tokens", "0"],
        &["ask", "--prompt", "q", "--limit", "usb=1GiB"],
        &["eval"],
        &["eval", "kld"],
        &["eval", "needle", "--depths", "0,101"],
        &["library"],
        &["library", "add"],
        &["library", "remove", "no-such-id", "--kv-dir", "/nowhere"],
        &["logits", "--tokens", "1"],
        &["logits", "--tokens", "1,-2", "--out", "x.npy"],
        &["tokenize"],
        &["tokenize", "--text", "absent.txt"],
        &["tokenize", "--doc", "Cargo.toml", "--model", "/no.gguf"],
        &["bench", "-r", "0"],
        &["bench", "-p", "0", "-n", "0"],
        &["bench", "--output", "pdf"],
        &["doctor", "--depth"],
    ] {
        let ran = run(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("strata: ") && ran.err.lines().count() == 1, "{args:?}: {}", ran.err);
    }
}

#[test]
fn damaged_saved_document_makes_verify_exit_with_1() {
    let dir = crate::library::unpacked();
    let store = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap();
    let mut bytes = std::fs::read(store.join("kv-0000.arena")).unwrap();
    bytes[100] ^= 1;
    std::fs::write(store.join("kv-0000.arena"), bytes).unwrap();
    let ran = run(["library", "verify", "--kv-dir", path_text(dir.path())]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
}

#[cfg(target_os = "linux")]
#[test]
fn machine_without_a_device_exits_with_1() {
    let output = strata()
        .args(["ask", "--prompt", "q", "--no-save"])
        .envs(["VK_ICD_FILENAMES", "VK_DRIVER_FILES"].map(|name| (name, "/nowhere.json")))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_exits_with_1() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = strata();
    let command = command.args(["tokenize", "--text"]).arg(fixture("note.md")).stdout(full).stderr(Stdio::piped());
    assert_eq!(command.output().unwrap().status.code(), Some(1));
}

#[test]
fn empty_library_and_version_exit_with_0() {
    let dir = scratch();
    for args in [&["library", "list", "--kv-dir", path_text(dir.path())][..], &["--version"], &["ask", "--help"]] {
        assert_eq!(run(args).code, Some(0), "{args:?}");
    }
}
