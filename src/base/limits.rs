//! Every limit and default in one place, with units in the names.

/// Layers of the deepest model that is accepted.
pub const MAX_LAYERS: usize = 1024;
/// Largest hidden or feed-forward width.
pub const MAX_DIM: usize = 1 << 20;
/// Largest number of attention heads.
pub const MAX_HEADS: usize = 4096;
/// Largest head dimension the attention kernels are built for.
pub const MAX_HEAD_DIM: usize = 256;
/// Largest vocabulary.
pub const MAX_VOCAB: usize = 1 << 21;
/// Largest context window, tokens.
pub const MAX_CONTEXT: usize = 1 << 26;
/// Largest number of metadata entries, tensors or array elements read from a model file.
pub const MAX_FILE_COUNT: u64 = 1 << 24;
/// Largest document, bytes of text.
pub const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// Largest file of a format that holds more than its text (PDF, DOCX, EPUB, HTML).
pub const MAX_FILE_BYTES: u64 = 256 << 20;
/// Largest number of pages, or of parts of a book.
pub const MAX_DOCUMENT_PAGES: usize = 20_000;
/// What is unpacked from one archive at most.
pub const MAX_UNPACKED_BYTES: u64 = 128 << 20;
/// Deepest nesting of elements in a DOCX file.
pub const MAX_XML_DEPTH: usize = 1024;
/// Elements of an HTML page whose main content is looked for; a larger one is read whole.
pub const MAX_ARTICLE_ELEMENTS: usize = 60_000;
/// Memory of the process that reads files of these formats.
pub const READER_MEMORY_BYTES: u64 = 1 << 30;
/// Such a process ends when it makes no progress for this long, seconds.
pub const READER_STALL_SECONDS: u64 = 8;
/// Files taken from a folder that was dropped.
pub const MAX_FOLDER_FILES: usize = 200;
/// How deep folders in it are looked into.
pub const MAX_FOLDER_DEPTH: usize = 8;

/// Tokens per KV block (one layer, one KV head).
pub const KV_BLOCK_TOKENS: usize = 16;
/// Tokens per KV page (one layer, all KV heads): what moves between tiers.
pub const KV_PAGE_TOKENS: usize = 64;
/// Tokens in the first segment of a layer's page pool; each later segment doubles the total.
pub const KV_FIRST_SEGMENT_TOKENS: usize = 2048;
/// Largest number of tokens in one prefill chunk.
pub const MAX_PREFILL_CHUNK: usize = 512;
/// What one GPU submit should take at most, milliseconds, so that the window stays smooth.
pub const SUBMIT_TARGET_MILLIS: f64 = 30.0;
/// Candidates that the device hands to the sampler.
pub const TOP_K_CANDIDATES: usize = 64;
/// Alignment of everything inside a weight arena, bytes (covers every device's storage offset alignment).
pub const ARENA_ALIGN_BYTES: u64 = 256;
/// Answers end here unless the user says otherwise, tokens.
pub const DEFAULT_MAX_TOKENS: usize = 512;
/// Commands and events waiting in a channel at most.
pub const CHANNEL_DEPTH: usize = 1024;
