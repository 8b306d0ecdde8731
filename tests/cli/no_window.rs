//! The program without the feature `window`: every command works, and there is no window.

use crate::{run, strata};

#[test]
fn program_without_a_window_asks_for_a_command() {
    for args in [&[][..], &["README.md"]] {
        run(args).assert_refused(2, "built without a window: name a command");
    }
}

#[test]
fn commands_need_no_window() {
    let text = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(text.path(), "Rents rose.").unwrap();
    let counted = run(["tokenize", "--text", text.path().to_str().unwrap()]);
    assert!(counted.code == Some(0) && !counted.out.is_empty(), "{} {}", counted.out, counted.err);
    let help = strata().arg("--help").output().unwrap();
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("library"));
}
