//! Circles of files that exist today. The list only shrinks: a circle that has gone or changed must leave it.

/// Files of one folder that use each other, and what ties them together.
pub struct Known {
    pub folder: &'static str,
    /// paths in the folder, sorted, with a space between them
    pub files: &'static str,
    pub reason: &'static str,
}

pub const KNOWN_CIRCLES: [Known; 20] = [
    Known {
        folder: "src/app",
        files: "answer/citations.rs answer/exact_check.rs answer/page_attention.rs panels/chat/page_attention.rs \
                panels/document/document_view.rs panels/mod.rs state/chat.rs state/chat_list.rs state/chat_persistence.rs \
                state/documents.rs state/engine_state.rs state/mod.rs state/model_loading.rs state/preferences.rs \
                state/read_progress.rs state/saved_prefix.rs state/undo.rs",
        reason: "`ViewState` owns its parts, whose methods take it; a chat owns what `answer` derives from chats",
    },
    Known {
        folder: "src/app/dashboard",
        files: "kv_map.rs ledger.rs page_tooltip.rs state.rs timeline/footer.rs timeline/input.rs timeline/mod.rs traces.rs",
        reason: "`DashboardState` owns the state of each tab, and each tab is drawn from `DashboardState`",
    },
    Known { folder: "src/app/panels/chat", files: "mod.rs user_message.rs", reason: "`ChatMemory` is in `mod.rs`" },
    Known {
        folder: "src/app/panels",
        files: "pages/library.rs sidebar/chats.rs sidebar/mod.rs",
        reason: "rows of the sidebar share helpers of its `mod.rs`",
    },
    Known {
        folder: "src/app/window",
        files: "chat_sync.rs launch.rs mod.rs settings_sync.rs",
        reason: "methods of `StrataApp` are divided by subject",
    },
    Known {
        folder: "src/cli/args",
        files: "device.rs eval.rs library.rs mod.rs",
        reason: "parsers of single values are in `mod.rs`, beside the commands that own the arguments",
    },
    Known { folder: "src/cli", files: "ask.rs ask/batch.rs", reason: "both ways to ask print with helpers of `ask.rs`" },
    Known { folder: "src/cli", files: "bench.rs bench/table.rs", reason: "a line of the table is defined in `bench.rs`" },
    Known {
        folder: "src/cli/doctor",
        files: "device.rs storage.rs",
        reason: "one prints the report of the other, which formats rates with the first",
    },
    Known {
        folder: "src/cli/eval",
        files: "kld.rs mod.rs needle.rs needle/report.rs",
        reason: "`Setting` and `Results` are in `mod.rs`, beside the dispatch",
    },
    Known {
        folder: "src/document/extract",
        files: "docx.rs epub.rs html.rs mod.rs pdf.rs zip_archive.rs",
        reason: "`Extracted` and `ExtractError` are in `mod.rs`, beside the dispatch",
    },
    Known {
        folder: "src/document",
        files: "pages.rs text.rs",
        reason: "`PageSpan` is in `text.rs`, which divides text into pages",
    },
    Known {
        folder: "src/engine/api",
        files: "command.rs saved_document.rs",
        reason: "`KvDtype` is in `command.rs`, whose commands name saved documents",
    },
    Known {
        folder: "src/engine",
        files: "context/kv_storage.rs context/open_documents.rs context/page_map.rs memory_fit.rs observe/step_timer.rs \
                runner/bindings.rs runner/gpu_model.rs runner/mod.rs runner/pass.rs runner/sampling.rs \
                scheduler/sequence_tail.rs selection/fetch.rs selection/lookahead.rs selection/mod.rs \
                selection/observation_window.rs selection/page_attention.rs selection/token_scorer.rs",
        reason: "`ModelRunner` and `GpuModel` own the parts of a step, which take them as arguments",
    },
    Known {
        folder: "src/gpu",
        files: "buffer.rs device.rs pipeline.rs",
        reason: "`Gpu` makes and caches buffers and kernels, which hold it",
    },
    Known {
        folder: "src/gpu/kernels/linear",
        files: "bench.rs mod.rs variant.rs",
        reason: "the dispatch in `mod.rs` chooses among variants, which are made of its types",
    },
    Known { folder: "src/gpu/kernels/linear", files: "format.rs repack.rs", reason: "a `WeightFormat` repacks itself" },
    Known {
        folder: "src/gpu",
        files: "recorder.rs timestamps.rs",
        reason: "timestamps are stored with the marks of the recorder",
    },
    Known {
        folder: "src/model/arch",
        files: "gpt2.rs hparams.rs llama.rs mod.rs opt.rs phi3.rs plan_builder.rs qwen2.rs qwen3.rs registry.rs rope.rs",
        reason: "`plan` and its arguments are in `mod.rs`; the registry names every architecture, and `HParams` asks the registry",
    },
    Known {
        folder: "src/model/discovery",
        files: "mod.rs ollama.rs",
        reason: "`Candidate` is in `mod.rs`, which asks every provider",
    },
];
