//! Ollama models: a manifest names the model and the blob that is its GGUF file.
//!
//! ```text
//! manifests/registry.ollama.ai/library/llama3.2/1b ─► layers: mediaType, digest ─► blobs/sha256-… ─► Candidate
//! ```
//! Manifests are untrusted: digests are validated, so no path leads out of the folder. Limits: [`MAX_MANIFEST_BYTES`].

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::candidate::{BrokenModel, Candidate};
use super::locations::Provider;
use super::scan::{self, Limits};

/// Largest manifest, bytes; real ones have a few hundred.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Media type of the layer that is the GGUF file.
const MODEL_LAYER: &str = "application/vnd.ollama.image.model";
/// Host and owner that Ollama omits from names.
const DEFAULT_HOST: &str = "registry.ollama.ai";
const DEFAULT_OWNER: &str = "library";

/// Models of the manifests in `root`; true if a limit was reached.
pub(super) fn list(root: &Path, limits: &Limits) -> (Vec<Result<Candidate, BrokenModel>>, bool) {
    let manifests = root.join("manifests");
    let (paths, has_more) = scan::files(&manifests, limits, &|_| true);
    (paths.iter().map(|path| model(root, &manifests, path)).collect(), has_more)
}

fn model(root: &Path, manifests: &Path, manifest: &Path) -> Result<Candidate, BrokenModel> {
    let name = model_name(manifest.strip_prefix(manifests).unwrap_or(manifest));
    let candidate =
        |path: PathBuf, bytes| Candidate { provider: Provider::Ollama, path, name: name.clone(), within: String::new(), bytes };
    let broken = |reason: String| BrokenModel(candidate(manifest.to_owned(), 0), reason);
    let again = format!("Fetch it again with 'ollama pull {name}'");
    let json = read(manifest).ok_or_else(|| broken(format!("Its manifest is corrupt. {again}.")))?;
    let layers = json.get("layers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_model = |layer: &&Value| layer.get("mediaType").and_then(Value::as_str) == Some(MODEL_LAYER);
    let layer = layers.iter().find(is_model).ok_or_else(|| broken("Its manifest names no GGUF file.".to_owned()))?;
    let digest = layer.get("digest").and_then(Value::as_str).and_then(hex_digest);
    let digest = digest.ok_or_else(|| broken(format!("Its manifest is corrupt: it has no valid digest. {again}.")))?;
    // Older versions of Ollama used a colon.
    let blobs = ["sha256-", "sha256:"].map(|kind| root.join("blobs").join(format!("{kind}{digest}")));
    let there = blobs.iter().find_map(|path| Some((path, std::fs::metadata(path).ok()?.len())));
    let (path, bytes) = there.ok_or_else(|| broken(format!("Its file is not in Ollama's folder. {again}.")))?;
    Ok(candidate(path.clone(), bytes))
}

/// The 64 hexadecimal digits after `sha256:`.
fn hex_digest(digest: &str) -> Option<&str> {
    digest.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn read(manifest: &Path) -> Option<Value> {
    let mut text = String::new();
    std::fs::File::open(manifest).ok()?.take(MAX_MANIFEST_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// `llama3.2:1b`, `someone/model:tag`, `hf.co/someone/model:tag`: the name in `ollama list`.
fn model_name(below: &Path) -> String {
    let parts: Vec<String> = below
        .components()
        .filter_map(|c| match c {
            Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect();
    let Some((tag, path)) = parts.split_last() else { return String::new() };
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let short = match path.as_slice() {
        [DEFAULT_HOST, DEFAULT_OWNER, rest @ ..] | [DEFAULT_HOST, rest @ ..] => rest,
        rest => rest,
    };
    format!("{}:{tag}", short.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_ollama_list() {
        for (path, name) in [
            ("registry.ollama.ai/library/llama3.2/1b", "llama3.2:1b"),
            ("registry.ollama.ai/ann/story/latest", "ann/story:latest"),
            ("hf.co/bartowski/Qwen2.5-GGUF/Q4_K_M", "hf.co/bartowski/Qwen2.5-GGUF:Q4_K_M"),
        ] {
            assert_eq!(model_name(Path::new(path)), name);
        }
    }

    #[test]
    fn invalid_digests_are_rejected() {
        let good = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(hex_digest(&good), Some("0a".repeat(32).as_str()));
        for wrong in ["sha256:../../../etc/passwd", "sha256:", "md5:00", "", &good[..70], &format!("{good}/..")] {
            assert_eq!(hex_digest(wrong), None, "{wrong}");
        }
    }
}
