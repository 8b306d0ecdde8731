//! Where other programs keep models, by their own rules.
//!
//! Source: the documentation of each: `HF_HUB_CACHE`, `HF_HOME` and `XDG_CACHE_HOME` of huggingface_hub; the models folder
//! of LM Studio, before and after 0.3; `OLLAMA_MODELS` and the folder of Ollama's service; the data folder of Jan, before
//! and after 0.6.

use std::path::{Path, PathBuf};

/// A program that keeps models, or the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    /// a folder of the user's own
    Own,
    /// the cache of huggingface_hub
    HuggingFace,
    /// LM Studio
    LmStudio,
    /// Ollama
    Ollama,
    /// Jan
    Jan,
}

impl Provider {
    /// For the eye.
    pub fn name(self) -> &'static str {
        match self {
            Provider::Own => "Your folders",
            Provider::HuggingFace => "Hugging Face cache",
            Provider::LmStudio => "LM Studio",
            Provider::Ollama => "Ollama",
            Provider::Jan => "Jan",
        }
    }
}

/// A folder to look through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPath {
    /// whose it is
    pub store: Provider,
    /// where it is
    pub folder: PathBuf,
}

/// Folders of the known programs for the user with this home, where they are there. `var` reads the environment.
pub fn places(home: Option<&Path>, var: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<SearchPath> {
    let at_home = |below: &str| home.map(|home| home.join(below));
    let below = |name: &str, below: &str| var(name).map(|folder| folder.join(below));
    // Each program takes the first that is set.
    let hugging_face = var("HF_HUB_CACHE")
        .or_else(|| below("HF_HOME", "hub"))
        .or_else(|| below("XDG_CACHE_HOME", "huggingface/hub"))
        .or_else(|| at_home(".cache/huggingface/hub"));
    let ollama = var("OLLAMA_MODELS").or_else(|| at_home(".ollama/models"));
    // As a service it is another user, with its own home.
    let service = Some(PathBuf::from("/usr/share/ollama/.ollama/models"));
    let data = var("XDG_DATA_HOME").or_else(|| at_home(".local/share"));
    let all = [
        (Provider::HuggingFace, hugging_face),
        (Provider::LmStudio, at_home(".lmstudio/models")),
        (Provider::LmStudio, at_home(".cache/lm-studio/models")),
        (Provider::Ollama, ollama),
        (Provider::Ollama, service),
        (Provider::Jan, data.map(|data| data.join("Jan/data"))),
        (Provider::Jan, at_home("Library/Application Support/Jan/data")),
        (Provider::Jan, at_home("AppData/Roaming/Jan/data")),
        (Provider::Jan, at_home("jan/models")),
    ];
    let there = |(store, folder): (Provider, Option<PathBuf>)| Some(SearchPath { store, folder: folder.filter(|f| f.is_dir())? });
    all.into_iter().filter_map(there).collect()
}
