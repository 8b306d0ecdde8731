//! Where test data lies.

use std::path::PathBuf;

/// A file under STRATA_DATA (default `../shared/data` beside the repository), or None with a line that says so.
pub fn data(test: &str, path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("STRATA_DATA")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data"), PathBuf::from);
    let path = root.join(path);
    if !path.exists() {
        eprintln!("skipped: {test}: no STRATA_DATA");
        return None;
    }
    Some(path)
}
