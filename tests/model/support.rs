//! Location of the test data.

use std::path::PathBuf;

/// A file under STRATA_DATA (default `../shared/data` beside the repository); None with a message if it is missing.
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
