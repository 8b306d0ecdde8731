//! Circles of files that exist today. The list only shrinks: a circle that has gone or changed must leave it.

/// Files of one folder that use each other, and what ties them together.
pub struct Known {
    pub folder: &'static str,
    /// paths in the folder, sorted, with a space between them
    pub files: &'static str,
    pub reason: &'static str,
}

pub const KNOWN_CIRCLES: [Known; 6] = [
    Known {
        folder: "src/kv",
        files: "layout.rs policy/leoam/abstracts.rs",
        reason: "the size of an abstract is part of `KvSpec`, and abstracts are laid out by `KvSpec`",
    },
    Known {
        folder: "src/kv/offload",
        files: "abstract_rows.rs mod.rs ram_pages.rs read_ahead.rs write_back.rs",
        reason: "methods of `OffloadTiers` are divided by subject",
    },
    Known {
        folder: "src/kv/policy",
        files: "selection.rs spec.rs",
        reason: "`unique` is in `selection.rs`, and a selection follows a `PolicySpec`",
    },
    Known {
        folder: "src/kv/store",
        files: "io.rs linux/registration.rs linux/ring.rs thread_pool.rs",
        reason: "`io.rs` has the `Backend` trait and starts the backends",
    },
    Known {
        folder: "src/kv/transfer",
        files: "mod.rs worker.rs",
        reason: "`Transfer` starts the worker that takes its messages",
    },
    Known { folder: "src/kv/vram", files: "int4_transfer.rs mod.rs", reason: "`StagingPool` is in `mod.rs`" },
];
