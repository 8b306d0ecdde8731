//! Crates of a build without the window.

use std::process::Command;

/// Crates that only the window needs.
const WINDOW_CRATES: [&str; 5] = ["egui", "eframe", "egui_commonmark", "rfd", "winit"];

/// Complaints about the crates that `cargo tree --prefix none` lists.
pub fn complaints(tree: &str) -> Vec<String> {
    let named = |name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    let found = WINDOW_CRATES.into_iter().filter(|name| named(name));
    let mut complaints: Vec<String> = found.map(|name| format!("{name} is compiled without the feature `window`")).collect();
    if !named("wgpu") {
        complaints.push(format!("wgpu is not among the crates: {tree}"));
    }
    complaints
}

/// Crates of the program without its default features.
pub fn tree() -> String {
    let args = ["tree", "--locked", "--offline", "--no-default-features", "--edges", "normal", "--prefix", "none"];
    let output = Command::new(env!("CARGO")).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn crates_of_the_window_are_found_by_their_whole_name() {
    assert_eq!(complaints("strata v0.1.0\nwgpu v30.0.0\nwinit-not v1\n"), Vec::<String>::new());
    assert_eq!(complaints("wgpu v30.0.0\nwinit v0.30.0\n").len(), 1);
    assert_eq!(complaints("").len(), 1);
}
