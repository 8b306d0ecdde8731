//! Model locations: folders in which other programs store models, by their own rules.
//!
//! Sources, from each program's documentation: `HF_HUB_CACHE`, `HF_HOME` and `XDG_CACHE_HOME` of huggingface_hub; the models
//! folder of LM Studio, before and after 0.3; `OLLAMA_MODELS` and the folder of Ollama's service; the data folder of Jan,
//! before and after 0.6.

use std::path::{Path, PathBuf};

/// A program that stores models, or the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    /// the user's own folder
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
    /// Name to show.
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

/// A folder to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPath {
    /// owner of the folder
    pub provider: Provider,
    /// its path
    pub folder: PathBuf,
}

/// Existing model folders of all providers, for the user with this home. `var` reads environment variables.
pub fn search_paths(home: Option<&Path>, var: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<SearchPath> {
    let at_home = |path: &str| home.map(|home| home.join(path));
    let in_var = |name: &str, path: &str| var(name).map(|folder| folder.join(path));
    // The first setting that is present wins, as in each program.
    let hugging_face = var("HF_HUB_CACHE")
        .or_else(|| in_var("HF_HOME", "hub"))
        .or_else(|| in_var("XDG_CACHE_HOME", "huggingface/hub"))
        .or_else(|| at_home(".cache/huggingface/hub"));
    let ollama = var("OLLAMA_MODELS").or_else(|| at_home(".ollama/models"));
    // Ollama's service runs as another user with its own home.
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
    let existing =
        |(provider, folder): (Provider, Option<PathBuf>)| Some(SearchPath { provider, folder: folder.filter(|f| f.is_dir())? });
    all.into_iter().filter_map(existing).collect()
}
