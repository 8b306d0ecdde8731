//! Model file: a GGUF file, a Hugging Face folder, the built-in model or a synthetic one, behind one interface.
//!
//! ```text
//! path ─► header (checked) ─► ModelPlan
//!           └ TensorRef ─► tensor_bytes: raw blocks of exactly those rows, borrowed from the mapped file
//! ```
//! Invariants: 1. Everything in [`ModelFile::plan`] can be read: each tensor has the shape and a type that the plan needs.
//! 2. Weights are borrowed, not copied, except transposed and synthetic ones. Any thread may read.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::arch::plan::{Matrix, ModelPlan, PositionPlan, TensorRef};
use super::arch::{self, HParams, PlanOverrides};
use super::fingerprint::Fingerprint;
use super::gguf::Gguf;
use super::gguf_split::{PartName, is_part, open_parts};
use super::metadata::{self, ModelMeta};
use super::mmap::{Bytes, map_file};
use super::quant::{TensorType, dequantize};
use super::safetensors::{HfFolder, HfTokenizerFiles, path_name};
use super::synthetic::Synthetic;
use super::tensors::{TensorEntry, TensorInfo, TensorTable};
use super::{ModelError, safetensors};
use crate::token::GgufVocab;

/// An opened model.
pub struct ModelFile {
    source: Source,
    plan: ModelPlan,
    meta: ModelMeta,
}

enum Source {
    Gguf { gguf: Gguf, shards: Vec<Bytes> },
    Folder { folder: Box<HfFolder>, dir: PathBuf },
    Synthetic(Synthetic),
}

/// Input of a tokenizer.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenizerSource {
    /// the metadata of a GGUF file
    Gguf(Box<GgufVocab>),
    /// files of a Hugging Face folder
    HuggingFace(HfTokenizerFiles),
}

impl ModelFile {
    /// Opens a GGUF file or a Hugging Face folder.
    ///
    /// # Errors
    /// The file or folder cannot be used; the message has the reason and the remedy.
    pub fn open(path: &Path) -> Result<ModelFile, ModelError> {
        let io = |source| ModelError::Io { path: path.display().to_string(), source };
        let kind = std::fs::metadata(path).map_err(io)?;
        if kind.is_dir() {
            return Self::from_folder(path);
        }
        if !kind.is_file() {
            return Err(not_a_model(path, "it is neither a file nor a folder"));
        }
        let bytes = map_file(path)?;
        if !Gguf::is_gguf(bytes.get()) {
            return Err(not_a_model(path, describe_other_file(path, bytes.get())));
        }
        if let Some(part) = PartName::of(path) {
            // The metadata decides, as in llama.cpp: a whole model may have the name of a part.
            if is_part(bytes.get(), &part) {
                let (gguf, shards) = open_parts(path, &part)?;
                return Self::from_gguf(gguf, shards, &part.stem);
            }
            return Self::from_one_gguf(bytes, &part.stem);
        }
        let name = path.file_stem().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned());
        Self::from_one_gguf(bytes, &name)
    }

    /// Opens a GGUF file that is part of the binary.
    ///
    /// # Errors
    /// The bytes are not a valid model.
    pub fn from_static(bytes: &'static [u8]) -> Result<ModelFile, ModelError> {
        Self::from_one_gguf(Bytes::Static(bytes), "built-in")
    }

    /// A model of one of [`super::SHAPES`] with random weights, generated on demand and reproducible for the same arguments.
    ///
    /// # Errors
    /// Unknown name or weight type; the message lists the known ones.
    pub fn synthetic(name: &str, weight_type: &str, seed: u64) -> Result<ModelFile, ModelError> {
        let synthetic = Synthetic::new(name, weight_type, seed)?;
        let source = Source::Synthetic(synthetic);
        let plan = make_plan(&source, PlanOverrides::default())?;
        let tensors = source.tensors();
        let stored = |(_, entry): (&str, &TensorEntry)| entry.ty.as_ref().map_or(0, |ty| stored_bytes(*ty, &entry.shape));
        let meta = ModelMeta {
            name: format!("random {name} {weight_type}"),
            architecture: source.architecture()?.to_owned(),
            quantization: metadata::dominant_type(&plan, tensors).to_owned(),
            n_params: metadata::n_params(&plan, tensors),
            file_bytes: tensors.iter().map(stored).sum(),
            ..ModelMeta::default()
        };
        Ok(ModelFile { source, plan, meta })
    }

    fn from_one_gguf(bytes: Bytes, name: &str) -> Result<ModelFile, ModelError> {
        let gguf = Gguf::parse(bytes.get())?;
        if let Some(parts @ 2..) = gguf.uint("split.count")? {
            return Err(ModelError::Unsupported(format!(
                "this file is one of {parts} parts of a model, but its name has no part number. Restore the names of the parts, \
                 such as model-00001-of-{parts:05}.gguf"
            )));
        }
        Self::from_gguf(gguf, vec![bytes], name)
    }

    fn from_gguf(gguf: Gguf, shards: Vec<Bytes>, name: &str) -> Result<ModelFile, ModelError> {
        let file_bytes = shards.iter().map(|s| s.get().len() as u64).sum();
        let source = Source::Gguf { gguf, shards };
        let plan = make_plan(&source, PlanOverrides::default())?;
        let arch = source.architecture()?;
        let meta = match &source {
            Source::Gguf { gguf, shards } => metadata::of_gguf(gguf, first(shards), file_bytes, &plan, arch, name)?,
            _ => ModelMeta::default(),
        };
        Ok(ModelFile { plan, meta, source })
    }

    fn from_folder(dir: &Path) -> Result<ModelFile, ModelError> {
        let folder = HfFolder::open(dir)?;
        let name = dir.canonicalize().ok().and_then(|dir| path_name(&dir));
        let source = Source::Folder { folder: Box::new(folder), dir: dir.to_owned() };
        let plan = make_plan(&source, PlanOverrides::default())?;
        let arch = source.architecture()?;
        let meta = match &source {
            Source::Folder { folder, .. } => metadata::of_folder(folder, &plan, arch, name.as_deref().unwrap_or("model")),
            _ => ModelMeta::default(),
        };
        Ok(ModelFile { plan, meta, source })
    }

    /// Plan to run the model with.
    pub fn plan(&self) -> &ModelPlan {
        &self.plan
    }

    /// Makes the plan again for a context size, before any weight is loaded: LongRoPE models (Phi-3) have other factors for
    /// contexts up to the one they were first trained for. `rope_base` replaces the model's own base. The dims do not change.
    ///
    /// # Errors
    /// `rope_base` is given, but the model has no rotary embedding.
    pub fn adapt(&mut self, context: Option<usize>, rope_base: Option<f64>) -> Result<(), ModelError> {
        let plan = make_plan(&self.source, PlanOverrides { context, rope_base })?;
        if rope_base.is_some() && !matches!(plan.position, PositionPlan::Rope(_)) {
            return Err(ModelError::Unsupported(
                "this model has no rotary embedding, so its base cannot be set. Leave out --rope-base".to_owned(),
            ));
        }
        self.plan = plan;
        Ok(())
    }

    /// Metadata of the model.
    pub fn info(&self) -> &ModelMeta {
        &self.meta
    }

    /// Type and size of a tensor; None if it is missing or has no decoder.
    pub fn tensor(&self, name: &str) -> Option<TensorInfo> {
        self.source.tensors().get(name)?.info(name).ok()
    }

    /// Element type of a part of a matrix.
    ///
    /// # Errors
    /// The tensor is missing.
    pub fn tensor_type(&self, part: &TensorRef) -> Result<TensorType, ModelError> {
        Ok(self.source.tensors().require(&part.name)?.1.ty)
    }

    /// Raw blocks of exactly the rows of `part`, in row order (elements, for a vector). A transposed part is returned
    /// transposed: `n_rows` rows of as many elements as the file has rows.
    ///
    /// # Errors
    /// The tensor is missing, or has too few rows.
    pub fn tensor_bytes(&self, part: &TensorRef) -> Result<Cow<'_, [u8]>, ModelError> {
        let (entry, info) = self.source.tensors().require(&part.name)?;
        let have = if part.transposed { info.cols } else { info.rows };
        let end = part.first_row.checked_add(part.n_rows).filter(|end| *end <= have);
        let sizes = |expected: String| ModelError::Sizes { op: "tensor_bytes", got: format!("{part:?}"), expected };
        let end = end.ok_or_else(|| sizes(format!("at most {have} rows")))?;
        let blocks = || sizes(format!("whole blocks of {}", info.ty));
        let row_bytes = info.ty.row_bytes(info.cols).ok_or_else(blocks)?;
        let whole = match &self.source {
            Source::Synthetic(synthetic) if part.transposed => {
                Cow::Owned(synthetic.rows(&part.name, info.ty, info.cols, 0, info.rows)?)
            }
            Source::Synthetic(synthetic) => {
                let rows = synthetic.rows(&part.name, info.ty, info.cols, part.first_row, part.n_rows)?;
                return Ok(Cow::Owned(rows));
            }
            Source::Gguf { shards, .. } => Cow::Borrowed(range(shards, entry)?),
            Source::Folder { folder, .. } => Cow::Borrowed(range(&folder.shards, entry)?),
        };
        if part.transposed {
            if !info.ty.is_float() {
                return Err(sizes("a float type to transpose".to_owned()));
            }
            return Ok(Cow::Owned(transpose(&whole, info, part.first_row..end)));
        }
        let cut = part.first_row * row_bytes..end * row_bytes;
        match whole {
            Cow::Borrowed(bytes) => bytes.get(cut).map(Cow::Borrowed).ok_or_else(blocks),
            Cow::Owned(bytes) => bytes.get(cut).map(|b| Cow::Owned(b.to_vec())).ok_or_else(blocks),
        }
    }

    /// Lets the system read the rows of `part` now, before they are used.
    pub fn read_ahead(&self, part: &TensorRef) {
        let shards = match &self.source {
            Source::Gguf { shards, .. } => shards,
            Source::Folder { folder, .. } => &folder.shards,
            Source::Synthetic(_) => return,
        };
        // What cannot be found is an error when it is used. A transposed part is read whole, by its first piece.
        let Ok((entry, info)) = self.source.tensors().require(&part.name) else { return };
        let (Some(shard), Some(row_bytes)) = (shards.get(entry.shard), info.ty.row_bytes(info.cols)) else { return };
        if !part.transposed {
            shard.read_ahead(entry.start + part.first_row * row_bytes, part.n_rows * row_bytes);
        }
    }

    /// A whole tensor as floats (norm weights, biases).
    ///
    /// # Errors
    /// The tensor is missing.
    pub fn vector(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let (entry, info) = self.source.tensors().require(name)?;
        let mut out = vec![0f32; entry.n_elements()];
        match &self.source {
            Source::Synthetic(s) => dequantize(info.ty, &s.rows(name, info.ty, info.cols, 0, info.rows)?, &mut out)?,
            Source::Gguf { shards, .. } => dequantize(info.ty, range(shards, entry)?, &mut out)?,
            Source::Folder { folder, .. } => dequantize(info.ty, range(&folder.shards, entry)?, &mut out)?,
        }
        Ok(out)
    }

    /// Bias `[rows]` of a matrix in the order of its rows (interleaved like them); None if it has no bias.
    ///
    /// # Errors
    /// A tensor cannot be read.
    pub fn bias(&self, matrix: &Matrix) -> Result<Option<Vec<f32>>, ModelError> {
        if matrix.bias.is_empty() {
            return Ok(None);
        }
        let parts = matrix.bias.iter().map(|part| self.decode(part, 1)).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(stack(&parts, 1, matrix.interleave_halves)))
    }

    /// A matrix `[rows, cols]` as floats, in the order of its rows. For tests and conversions: four bytes per weight.
    ///
    /// # Errors
    /// A tensor cannot be read.
    pub fn matrix_f32(&self, matrix: &Matrix) -> Result<Vec<f32>, ModelError> {
        let parts = matrix.parts.iter().map(|part| self.decode(part, matrix.cols)).collect::<Result<Vec<_>, _>>()?;
        Ok(stack(&parts, matrix.cols, matrix.interleave_halves))
    }

    fn decode(&self, part: &TensorRef, cols: usize) -> Result<Vec<f32>, ModelError> {
        let ty = self.tensor_type(part)?;
        let mut out = vec![0f32; part.n_rows * cols];
        dequantize(ty, &self.tensor_bytes(part)?, &mut out)?;
        Ok(out)
    }

    /// Fingerprint of the model: header, tensors and samples of their data. The context size does not change it.
    ///
    /// # Errors
    /// None that opening the model would not have reported.
    pub fn fingerprint(&self) -> Result<[u8; 32], ModelError> {
        let hash = match &self.source {
            Source::Gguf { .. } => Fingerprint::new("gguf").with(self.source.gguf_header()),
            Source::Folder { folder, .. } => Fingerprint::new("folder").with(folder.config.to_string().as_bytes()),
            Source::Synthetic(s) => {
                Fingerprint::new("synthetic").with(s.config.to_string().as_bytes()).with(&s.seed.to_le_bytes())
            }
        };
        let hash = self.source.tensors().iter().try_fold(hash, |hash, (name, entry)| {
            let hash = hash.with_tensor(name, entry);
            match self.source.stored(entry) {
                Some(data) => Ok::<_, ModelError>(hash.with_samples(data?)),
                None => Ok(hash),
            }
        })?;
        Ok(hash.finish())
    }

    /// Fingerprint of the tokenizer. A GGUF file has it in its header, which is hashed as a whole.
    ///
    /// # Errors
    /// A file of the folder cannot be read.
    pub fn tokenizer_fingerprint(&self) -> Result<[u8; 32], ModelError> {
        let hash = Fingerprint::new("tokenizer");
        let hash = match &self.source {
            Source::Gguf { .. } => hash.with(self.source.gguf_header()),
            Source::Folder { dir, .. } => {
                let files = HfTokenizerFiles::find(dir)?;
                let paths = [Some(files.tokenizer), files.tokenizer_config, files.special_tokens_map];
                paths.into_iter().try_fold(hash, |hash, path| match path {
                    Some(path) => Ok(hash.with(map_file(&path)?.get())),
                    None => Ok::<_, ModelError>(hash.with(&[])),
                })?
            }
            Source::Synthetic(_) => hash,
        };
        Ok(hash.finish())
    }

    /// Input of the model's tokenizer.
    ///
    /// # Errors
    /// The model has no tokenizer.
    pub fn tokenizer(&self) -> Result<TokenizerSource, ModelError> {
        match &self.source {
            Source::Gguf { gguf, shards } => match metadata::gguf_vocab(gguf, first(shards))? {
                Some(vocab) => Ok(TokenizerSource::Gguf(Box::new(vocab))),
                None => Err(ModelError::NoTokenizer(
                    "its metadata lacks 'tokenizer.ggml.model' or 'tokenizer.ggml.tokens'. Choose a complete GGUF file"
                        .to_owned(),
                )),
            },
            Source::Folder { dir, .. } => Ok(TokenizerSource::HuggingFace(HfTokenizerFiles::find(dir)?)),
            Source::Synthetic(_) => {
                Err(ModelError::NoTokenizer("it is synthetic, for speed tests only. Choose another model".to_owned()))
            }
        }
    }
}

/// Vocabulary of a GGUF file, which may have no weights.
///
/// # Errors
/// The file is not a valid GGUF file, or has no vocabulary.
pub fn read_vocab(path: &Path) -> Result<GgufVocab, ModelError> {
    let bytes = map_file(path)?;
    let gguf = Gguf::parse(bytes.get())?;
    let none = || ModelError::NoTokenizer(format!("{} has no vocabulary. Choose another file", path.display()));
    metadata::gguf_vocab(&gguf, bytes.get())?.ok_or_else(none)
}

impl Source {
    fn tensors(&self) -> &TensorTable {
        match self {
            Source::Gguf { gguf, .. } => gguf.tensors(),
            Source::Folder { folder, .. } => &folder.tensors,
            Source::Synthetic(synthetic) => &synthetic.tensors,
        }
    }

    /// All bytes before the weights.
    fn gguf_header(&self) -> &[u8] {
        let Source::Gguf { gguf, shards } = self else { return &[] };
        let end = gguf.tensors().iter().filter(|(_, entry)| entry.shard == 0).map(|(_, entry)| entry.start).min();
        first(shards).get(..end.unwrap_or(usize::MAX)).unwrap_or(first(shards))
    }

    /// Bytes of a tensor in its file; None if they are generated on demand.
    fn stored(&self, entry: &TensorEntry) -> Option<Result<&[u8], ModelError>> {
        match self {
            Source::Gguf { shards, .. } => Some(range(shards, entry)),
            Source::Folder { folder, .. } => Some(range(&folder.shards, entry)),
            Source::Synthetic(_) => None,
        }
    }

    fn hparams(&self) -> Result<HParams<'_>, ModelError> {
        match self {
            Source::Gguf { gguf, shards } => HParams::from_gguf(gguf, first(shards)),
            Source::Folder { folder, .. } => arch::hparams_of_config(&folder.config),
            Source::Synthetic(synthetic) => arch::hparams_of_config(&synthetic.config),
        }
    }

    fn architecture(&self) -> Result<&str, ModelError> {
        Ok(self.hparams()?.architecture())
    }
}

fn make_plan(source: &Source, overrides: PlanOverrides) -> Result<ModelPlan, ModelError> {
    // Only GGUF files store rope factors in tensors.
    let read = |name: &str| -> Result<Vec<f32>, ModelError> {
        let (entry, info) = source.tensors().require(name)?;
        let mut out = vec![0f32; entry.n_elements()];
        if let Source::Gguf { shards, .. } = source {
            dequantize(info.ty, range(shards, entry)?, &mut out)?;
        }
        Ok(out)
    };
    arch::plan(&source.hparams()?, source.tensors(), &read, overrides)
}

/// Bytes of the file with the metadata.
fn first(shards: &[Bytes]) -> &[u8] {
    shards.first().map_or(&[], Bytes::get)
}

fn range<'a>(shards: &'a [Bytes], entry: &TensorEntry) -> Result<&'a [u8], ModelError> {
    let outside = || ModelError::corrupt("a tensor", format!("at bytes {}..{}", entry.start, entry.end), "inside its file");
    shards.get(entry.shard).and_then(|shard| shard.get().get(entry.start..entry.end)).ok_or_else(outside)
}

/// Rows `columns` of the transposed matrix: stored `[rows, cols]`, out `[columns.len(), rows]`.
fn transpose(bytes: &[u8], info: TensorInfo, columns: std::ops::Range<usize>) -> Vec<u8> {
    let width = info.ty.block_bytes();
    let mut out = vec![0u8; columns.len() * info.rows * width];
    let row_bytes = info.cols * width;
    for (r, row) in bytes.chunks_exact(row_bytes).enumerate() {
        for (c, value) in row[columns.start * width..columns.end * width].chunks_exact(width).enumerate() {
            let at = (c * info.rows + r) * width;
            out[at..at + width].copy_from_slice(value);
        }
    }
    out
}

/// Concatenates parts, or interleaves the rows of two.
fn stack(parts: &[Vec<f32>], cols: usize, interleave: bool) -> Vec<f32> {
    match parts {
        [first, second] if interleave => {
            let pairs = first.chunks_exact(cols).zip(second.chunks_exact(cols));
            pairs.flat_map(|(a, b)| [a, b]).flatten().copied().collect()
        }
        _ => parts.concat(),
    }
}

fn stored_bytes(ty: TensorType, shape: &[usize]) -> u64 {
    let (rows, cols) = match shape {
        [outer @ .., cols] => (outer.iter().product::<usize>(), *cols),
        [] => (1, 1),
    };
    ty.row_bytes(cols).map_or(0, |row| (row * rows) as u64)
}

fn not_a_model(path: &Path, found: impl Into<String>) -> ModelError {
    ModelError::NotAModel { path: path.display().to_string(), found: found.into() }
}

/// Describes a file that is not GGUF, for the error message.
fn describe_other_file(path: &Path, bytes: &[u8]) -> String {
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    match bytes {
        [] => "the file is empty".to_owned(),
        [b'P', b'K', 3, 4, ..] => "it is a zip or PyTorch archive".to_owned(),
        [b'l', b'm' | b'g' | b'l', b'g', b'g', ..] | [b't', b'j', b'g', b'g', ..] => {
            "it is a GGML file from before GGUF, which has replaced that format".to_owned()
        }
        _ if extension == "safetensors" && safetensors::parse_safetensors(bytes, 0, "").is_ok() => {
            "it is one safetensors file of a folder".to_owned()
        }
        [b'<', b'!' | b'h', ..] => "it is a web page, perhaps a download that needed a login".to_owned(),
        _ if bytes.starts_with(b"version https://git-lfs") => "it is a Git LFS pointer instead of the file itself".to_owned(),
        _ => "it does not begin like a GGUF file".to_owned(),
    }
}
