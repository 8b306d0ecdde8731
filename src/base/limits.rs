//! Limits and defaults of the whole program, with units in their names.

/// Largest number of layers.
pub const MAX_LAYERS: usize = 1024;
/// Largest hidden or feed-forward width.
pub const MAX_DIM: usize = 1 << 20;
/// Largest number of attention heads.
pub const MAX_HEADS: usize = 4096;
/// Largest head dimension that the attention kernels support.
pub const MAX_HEAD_DIM: usize = 256;
/// Largest vocabulary.
pub const MAX_VOCAB: usize = 1 << 21;
/// Largest context window, tokens.
pub const MAX_CONTEXT: usize = 1 << 26;
/// Largest number of metadata entries, tensors or array elements read from a model file.
pub const MAX_FILE_COUNT: u64 = 1 << 24;
/// Largest document: bytes of text.
pub const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// Largest PDF, DOCX, EPUB or HTML file, bytes.
pub const MAX_FILE_BYTES: u64 = 256 << 20;
/// Largest number of pages of a document, or of parts of a book.
pub const MAX_DOCUMENT_PAGES: usize = 20_000;
/// Largest total of decompressed bytes of one archive.
pub const MAX_UNPACKED_BYTES: u64 = 128 << 20;
/// Deepest nesting of elements in a DOCX file.
pub const MAX_XML_DEPTH: usize = 1024;
/// Largest HTML page, in elements, whose main content is extracted; all text of a larger page is taken.
pub const MAX_ARTICLE_ELEMENTS: usize = 60_000;
/// Memory limit of the sandboxed process that reads PDF, DOCX, EPUB and HTML files.
pub const READER_MEMORY_BYTES: u64 = 1 << 30;
/// The sandboxed process is killed after this many seconds without progress.
pub const READER_STALL_SECONDS: u64 = 8;
/// Largest number of files taken from a dropped folder.
pub const MAX_FOLDER_FILES: usize = 200;
/// Deepest nesting of subfolders that are searched in a dropped folder.
pub const MAX_FOLDER_DEPTH: usize = 8;

/// Tokens per KV block (one layer, one KV head).
pub const KV_BLOCK_TOKENS: usize = 16;
/// Tokens per KV page (one layer, all KV heads), the unit of transfer between tiers.
pub const KV_PAGE_TOKENS: usize = 64;
/// Tokens in the first segment of a layer's page pool; each later segment doubles the total.
pub const KV_FIRST_SEGMENT_TOKENS: usize = 2048;
/// Largest number of tokens in one prefill chunk.
pub const MAX_PREFILL_CHUNK: usize = 512;
/// Target for the longest GPU submit, milliseconds, so that the window stays responsive.
pub const SUBMIT_TARGET_MILLIS: f64 = 30.0;
/// Candidates that the GPU returns to the sampler.
pub const TOP_K_CANDIDATES: usize = 64;
/// Alignment of every allocation in a weight arena, bytes; covers every GPU's storage offset alignment.
pub const ARENA_ALIGN_BYTES: u64 = 256;
/// Default limit on the length of an answer, tokens.
pub const DEFAULT_MAX_TOKENS: usize = 512;
/// Capacity of a channel of commands or events.
pub const CHANNEL_DEPTH: usize = 1024;
