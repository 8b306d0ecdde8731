//! Package test: all files of `cargo deb` exist, and the desktop files agree with each other and with the program.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use strata::app::APP_ID;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn desktop_file(kind: &str) -> PathBuf {
    root().join(format!("assets/desktop/{APP_ID}.{kind}"))
}

fn package() -> Value {
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let told = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&told.stdout).unwrap();
    metadata["packages"][0].clone()
}

#[test]
fn package_lists_existing_files() {
    let package = package();
    let assets = package["metadata"]["deb"]["assets"].as_array().unwrap().clone();
    let sources: Vec<&str> = assets.iter().map(|asset| asset[0].as_str().unwrap()).collect();
    for source in &sources {
        assert!(source.starts_with("target/release/") || root().join(source).is_file(), "{source}");
    }
    assert!(sources.contains(&"target/release/strata"));
    for kind in ["desktop", "svg", "metainfo.xml"] {
        let file = desktop_file(kind);
        assert!(sources.iter().any(|source| root().join(source) == file), "{} is in the package", file.display());
    }
}

#[test]
fn changelog_of_the_package_begins_with_this_version_and_its_maintainer() {
    let package = package();
    let deb = &package["metadata"]["deb"];
    let changelog = std::fs::read_to_string(root().join(deb["changelog"].as_str().unwrap())).unwrap();
    let first = format!("strata ({}-1) ", package["version"].as_str().unwrap());
    assert!(changelog.starts_with(&first), "{changelog}");
    assert!(changelog.contains(&format!("\n -- {}  ", deb["maintainer"].as_str().unwrap())), "{changelog}");
}

#[test]
fn desktop_entry_has_the_program_its_icon_and_its_file_types() {
    let entry = std::fs::read_to_string(desktop_file("desktop")).unwrap();
    let value = |key: &str| entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    assert_eq!(value("Exec"), Some("strata %F"), "several documents at once");
    assert_eq!(value("Icon"), Some(APP_ID));
    assert_eq!(value("StartupWMClass"), Some(APP_ID));
    for kind in ["text/plain", "application/pdf", "application/epub+zip"] {
        assert!(value("MimeType").is_some_and(|kinds| kinds.split(';').any(|k| k == kind)), "{kind}");
    }
    validate("desktop-file-validate", &[], "desktop");
}

#[test]
fn software_center_metadata_has_this_version_and_entry() {
    let text = std::fs::read_to_string(desktop_file("metainfo.xml")).unwrap();
    let package = package();
    let version = package["version"].as_str().unwrap();
    for part in [
        format!("<id>{APP_ID}</id>"),
        format!("{APP_ID}.desktop</launchable>"),
        format!("<release version=\"{version}\""),
        format!("<project_license>{}</project_license>", package["license"].as_str().unwrap()),
    ] {
        assert!(text.contains(&part), "{part}");
    }
    validate("appstreamcli", &["validate", "--no-net"], "metainfo.xml");
}

/// Runs the desktop's own validator, if it is installed.
fn validate(program: &str, arguments: &[&str], kind: &str) {
    match Command::new(program).args(arguments).arg(desktop_file(kind)).output() {
        Ok(said) => assert!(said.status.success(), "{program}: {}", String::from_utf8_lossy(&said.stdout)),
        Err(error) => eprintln!("skipped: {program}: {error}"),
    }
}
