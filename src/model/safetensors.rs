//! Hugging Face folder: `config.json`, `tokenizer.json`, and `*.safetensors` in one file or in shards.
//!
//! ```text
//! model.safetensors.index.json ──► shards ──► header of each (JSON) ──► TensorTable: checked ranges in mapped files
//! ```
//! Invariants: 1. The ranges of a header are checked against the length of the file before they are used. 2. Only plain file
//! names in the folder are opened. Limits: headers up to 100 MB, JSON files up to 64 MiB.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::ModelError;
use super::mmap::{Bytes, map_file};
use super::quant::TensorType;
use super::tensors::{TensorEntry, TensorTable};
use crate::base::limits::MAX_FILE_COUNT;

const MAX_JSON_BYTES: u64 = 64 << 20;
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Weights and JSON files of a folder.
pub(crate) struct HfFolder {
    pub config: Value,
    pub tokenizer_config: Option<Value>,
    pub generation_config: Option<Value>,
    pub chat_template: Option<String>,
    pub tensors: TensorTable,
    pub shards: Vec<Bytes>,
    pub file_bytes: u64,
}

impl HfFolder {
    /// Opens a folder.
    ///
    /// # Errors
    /// A file is missing or corrupt, or the folder holds something else.
    pub fn open(dir: &Path) -> Result<HfFolder, ModelError> {
        let Some(config) = read_json(&dir.join("config.json"))? else { return Err(not_a_model(dir)?) };
        if config.get("model_type").is_none() && config.get("architectures").is_none() {
            return Err(ModelError::NotAModel {
                path: dir.display().to_string(),
                found: "its config.json does not describe a language model (no 'model_type')".to_owned(),
            });
        }
        let names = shard_names(dir)?;
        let mut folder = HfFolder {
            config,
            tokenizer_config: read_json(&dir.join("tokenizer_config.json"))?,
            generation_config: read_json(&dir.join("generation_config.json"))?,
            chat_template: read_text(&dir.join("chat_template.jinja"))?,
            tensors: TensorTable::default(),
            shards: Vec::new(),
            file_bytes: 0,
        };
        for (name, expected) in names {
            folder.add_shard(dir, &name, &expected)?;
        }
        Ok(folder)
    }

    fn add_shard(&mut self, dir: &Path, name: &str, expected: &[String]) -> Result<(), ModelError> {
        let path = dir.join(name);
        let bytes = map_file(&path)?;
        let found = parse_safetensors(bytes.get(), self.shards.len(), &path.display().to_string())?;
        if let Some(missing) = expected.iter().find(|tensor| !found.has(tensor)) {
            return Err(folder_error(
                &path,
                format!("the index lists tensor '{missing}' in this file, but the file has no such tensor. Download it again"),
            ));
        }
        for (tensor, entry) in found.iter() {
            if self.tensors.insert(tensor.to_owned(), entry.clone()).is_some() {
                return Err(folder_error(
                    &path,
                    format!("tensor '{tensor}' is in two files. Remove the file that does not belong to the model"),
                ));
            }
        }
        self.file_bytes += bytes.get().len() as u64;
        self.shards.push(bytes);
        Ok(())
    }
}

/// Name of the model at `path`: its last component, or the repository of a revision in huggingface_hub's cache
/// (`models--publisher--name/snapshots/revision`).
pub fn path_name(path: &Path) -> Option<String> {
    let name = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    let snapshots = path.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "snapshots"));
    let repository = snapshots.and_then(Path::parent).and_then(name);
    let own = repository.as_deref().and_then(|name| name.strip_prefix("models--")?.rsplit("--").next());
    own.map(str::to_owned).or_else(|| name(path))
}

fn folder_error(path: &Path, problem: impl Into<String>) -> ModelError {
    ModelError::Folder { path: path.display().to_string(), problem: problem.into() }
}

/// The error for a folder without `config.json`.
fn not_a_model(dir: &Path) -> Result<ModelError, ModelError> {
    let names = file_names(dir)?;
    let ggufs: Vec<_> = names.iter().filter(|name| name.ends_with(".gguf")).take(3).cloned().collect();
    let found = match () {
        () if !ggufs.is_empty() => format!("it is a folder with the GGUF file {}", ggufs.join(", ")),
        () if names.is_empty() => "it is an empty folder".to_owned(),
        () => "it is a folder without config.json".to_owned(),
    };
    Ok(ModelError::NotAModel { path: dir.display().to_string(), found })
}

fn file_names(dir: &Path) -> Result<Vec<String>, ModelError> {
    let io = |source| ModelError::Io { path: dir.display().to_string(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io)?.take(100_000) {
        names.push(entry.map_err(io)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Names of the weight files, each with the tensors that the index lists in it (empty without an index).
fn shard_names(dir: &Path) -> Result<BTreeMap<String, Vec<String>>, ModelError> {
    if dir.join("model.safetensors").is_file() {
        return Ok(BTreeMap::from([("model.safetensors".to_owned(), Vec::new())]));
    }
    let index_path = dir.join("model.safetensors.index.json");
    if let Some(index) = read_json(&index_path)? {
        let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
            return Err(folder_error(&index_path, "it has no 'weight_map'. Download the file again"));
        };
        let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tensor, file) in map {
            let name = file.as_str().filter(|name| is_plain_name(name));
            let Some(name) = name else {
                return Err(folder_error(
                    &index_path,
                    format!("the file of tensor '{tensor}' is {file}, not a plain file name. Download the index again"),
                ));
            };
            shards.entry(name.to_owned()).or_default().push(tensor.clone());
        }
        if let Some(missing) = shards.keys().find(|name| !dir.join(name).is_file()) {
            return Err(folder_error(dir, format!("the weight file {missing} is missing. Download it into this folder")));
        }
        return Ok(shards);
    }
    let names = file_names(dir)?;
    let shards: BTreeSet<_> = names.iter().filter(|name| name.ends_with(".safetensors")).cloned().collect();
    if shards.is_empty() {
        let torch = names.iter().any(|name| name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth"));
        let problem = if torch {
            "the weights are PyTorch files, which can run code. Download the *.safetensors files of this model instead"
        } else {
            "this folder has no weights (*.safetensors). Download them into it"
        };
        return Err(folder_error(dir, problem));
    }
    Ok(shards.into_iter().map(|name| (name, Vec::new())).collect())
}

fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) && !name.contains('\\')
}

/// Parses one header and turns its offsets into ranges of the file.
pub(crate) fn parse_safetensors(bytes: &[u8], shard: usize, path: &str) -> Result<TensorTable, ModelError> {
    let invalid = |problem: String| ModelError::Folder {
        path: path.to_owned(),
        problem: format!("not a valid safetensors file ({problem}). Download it again"),
    };
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(invalid(format!("it has {} bytes", bytes.len())));
    };
    let n = u64::from_le_bytes(*length);
    let header = usize::try_from(n).ok().filter(|_| n <= MAX_HEADER_BYTES).and_then(|n| rest.get(..n));
    let Some(header) = header else {
        return Err(invalid(format!("its header has {n} bytes, the file has {}", bytes.len())));
    };
    // The crate checks that tensors are contiguous and that lengths match shapes. Its check of the total can overflow, so
    // only the header is passed to it.
    let metadata: safetensors::tensor::Metadata = serde_json::from_slice(header).map_err(|e| invalid(e.to_string()))?;
    let data = &rest[header.len()..];
    if metadata.data_len() != data.len() {
        return Err(invalid(format!("its header lists {} bytes of weights, the file has {}", metadata.data_len(), data.len())));
    }
    let tensors = metadata.tensors();
    if tensors.len() as u64 > MAX_FILE_COUNT {
        return Err(invalid(format!("it has {} tensors", tensors.len())));
    }
    let start = 8 + header.len();
    let mut table = TensorTable::default();
    for (name, info) in tensors {
        let (from, to) = info.data_offsets;
        let entry =
            TensorEntry { ty: tensor_type(info.dtype), shape: info.shape.clone(), shard, start: start + from, end: start + to };
        if entry.shape.contains(&0) && entry.ty.is_ok() {
            return Err(invalid(format!("tensor '{name}' has the shape {:?}", entry.shape)));
        }
        table.insert(name, entry);
    }
    Ok(table)
}

fn tensor_type(dtype: safetensors::Dtype) -> Result<TensorType, String> {
    match dtype {
        safetensors::Dtype::F32 => Ok(TensorType::F32),
        safetensors::Dtype::F16 => Ok(TensorType::F16),
        safetensors::Dtype::BF16 => Ok(TensorType::BF16),
        other => Err(format!("{other:?}")),
    }
}

pub(crate) fn read_text(path: &Path) -> Result<Option<String>, ModelError> {
    let io = |source| ModelError::Io { path: path.display().to_string(), source };
    if !path.is_file() {
        return Ok(None);
    }
    let n = std::fs::metadata(path).map_err(io)?.len();
    if n > MAX_JSON_BYTES {
        return Err(folder_error(
            path,
            format!("the file has {n} bytes, but it must have at most {MAX_JSON_BYTES}. Download it again"),
        ));
    }
    let bytes = std::fs::read(path).map_err(io)?;
    String::from_utf8(bytes).map(Some).map_err(|_| folder_error(path, "the file is not UTF-8 text. Download it again"))
}

pub(crate) fn read_json(path: &Path) -> Result<Option<Value>, ModelError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    match serde_json::from_str(&text) {
        Ok(value) => Ok(Some(value)),
        Err(e) => Err(folder_error(path, format!("the file is not valid JSON ({e}). Download it again"))),
    }
}

/// Paths of a tokenizer's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HfTokenizerFiles {
    /// `tokenizer.json`
    pub tokenizer: PathBuf,
    /// `tokenizer_config.json`
    pub tokenizer_config: Option<PathBuf>,
    /// `special_tokens_map.json`
    pub special_tokens_map: Option<PathBuf>,
    /// `generation_config.json`
    pub generation_config: Option<PathBuf>,
}

impl HfTokenizerFiles {
    /// Finds the files in a folder.
    ///
    /// # Errors
    /// The folder has no `tokenizer.json`.
    pub fn find(dir: &Path) -> Result<HfTokenizerFiles, ModelError> {
        let present = |name: &str| Some(dir.join(name)).filter(|path| path.is_file());
        let Some(tokenizer) = present("tokenizer.json") else {
            return Err(ModelError::NoTokenizer(format!(
                "{} has no tokenizer.json. Download it into this folder",
                dir.display()
            )));
        };
        Ok(HfTokenizerFiles {
            tokenizer,
            tokenizer_config: present("tokenizer_config.json"),
            special_tokens_map: present("special_tokens_map.json"),
            generation_config: present("generation_config.json"),
        })
    }
}
