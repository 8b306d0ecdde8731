//! Terms, exceptions and retired names of the vocabulary rule, as data. Limits only fall.
//!
//! Left out, because code cannot tell the home-made use from the right one: `read`, `row`, `slot`, `seen`, `expected`,
//! `way`, `above`, `opened`, `behind`, `room`, `face`, `known`.

use crate::vocabulary::{Exception, Term};

pub const TERMS: [Term; 36] = [
    Term::names("below lower", "offload tiers, offloaded", "src/engine src/kv/offload src/kv/transfer src/kv/vram", 0),
    Term::names(
        "choose chooser choice chose chosen",
        "select, selector, selection, selected",
        "src/engine src/gpu src/kv src/cli shaders benches tests/engine tests/kernels",
        0,
    ),
    Term::names("followed lookout", "tracked pages, observation window", "src/engine src/kv", 0),
    Term::everywhere("weigh weighed weigher weighing weighs", "attention mass per page", "", 0),
    Term::names(
        "ahead came",
        "lookahead, prefetched, arrived",
        "src/engine src/kv/policy src/kv/transfer src/kv/vram tests/engine",
        0,
    ),
    Term::everywhere("surprise surprises", "unpredicted candidates", "", 0),
    Term::names("excess", "bound slack", "src/engine src/kv", 0),
    Term::names("hide hides hiding", "overlap", "src/engine src/kv src/telemetry tests/compat tests/telemetry", 0),
    Term::everywhere(
        "travel traveled traveling travels carried carries carry",
        "transfer",
        "src/engine src/gpu src/kv src/lib.rs benches tests",
        0,
    ),
    Term::names(
        "opener pack packed packing unpack unpacked",
        "compress, compressed; quantize, dequantize",
        "src/engine src/kv",
        0,
    ),
    Term::everywhere("bring brings brought come_by", "fetch", "src/engine src/kv benches", 0),
    Term::names("held kept", "RAM-resident, retained", "src/engine src/kv", 0),
    Term::names("near", "RAM-resident", "src/engine src/kv/offload src/kv/transfer src/kv/vram", 0),
    Term::everywhere("put_out let_go give_way gives_way", "evict, release", "src/engine src/kv tests/offload tests/store", 0),
    Term::everywhere("written_behind", "write-back", "", 0),
    Term::names("safe", "durable", "src/engine src/kv tests/offload tests/store", 0),
    Term::names(
        "keeper keeping kept",
        "stored, saved, persisted; writer",
        "src/app src/chats src/document benches tests/chats tests/ui",
        0,
    ),
    Term::names("branch branches", "sequence", "src/engine", 0),
    Term::names("turn turns", "request", "src/engine src/cli benches tests/engine tests/cli", 0),
    Term::names("ask asked asking asks", "generate", "src/engine tests/engine", 0),
    Term::names("pick picked picker picks", "sample, candidates", "src/engine src/gpu src/kv shaders tests/engine", 0),
    Term::names("pace paced", "submit pacing", "src/engine", 0),
    Term::names("area areas", "staging buffer, staging pool", "src/engine src/kv", 0),
    Term::everywhere("census", "tier occupancy", "", 0),
    Term::names("spent", "stats, usage", "", 0),
    Term::everywhere("twin twins", "reference, fallback, environment variable", "", 0),
    Term::everywhere("processor", "CPU", "", 0),
    Term::everywhere("knows says tells wants", "returns, reports, records, needs", "", 0),
    Term::everywhere("nobody person somebody whoever", "unused, caller, the user", "", 0),
    Term::everywhere("news", "events", "", 0),
    Term::everywhere("harm harmed spoilt", "corrupt, corrupted, malformed", "", 0),
    Term::everywhere("house rooms", "project, module", "", 0),
    Term::everywhere("laid_by_hand laid_into", "hand-initialized", "", 0),
    Term::names("look looks scene scenes", "snapshots, scenarios", "tests", 0),
    Term::everywhere("none_where", "None if", "", 0),
    Term::everywhere(
        "behaviour* capitalis* catalogue* colour* initialis* licence* neighbour* normalis* quantis* recognis* serialis*",
        "American spelling",
        "",
        0,
    ),
];

/// Names that are right although they have such a word.
pub const EXCEPTIONS: [Exception; 8] = [
    Exception { within: "src/cli/summary.rs", name: "turn", reason: "JSON of `strata ask --json`: the turn of the chat" },
    Exception { within: "src/engine/api/summary.rs", name: "kept", reason: "JSON in `chats.sqlite`" },
    Exception { within: "src tests", name: "kept_ppm", reason: "argument of an event in saved traces: attention mass" },
    Exception { within: "src tests", name: "MassKept", reason: "attention mass of a selection, not pages" },
    Exception { within: "src tests", name: "mass_kept", reason: "attention mass of a selection, not chats" },
    Exception {
        within: "src/app/answer/exact_check.rs src/app/dashboard/fidelity.rs src/app/panels/chat/exact_check.rs \
                 src/app/test_support.rs src/engine/selection/stats.rs src/engine/selection/step.rs \
                 src/kv/policy/fidelity.rs tests/ui/mock_engine.rs",
        name: "kept",
        reason: "attention mass of a selection, not chats or pages",
    },
    Exception { within: "src", name: "read_ahead", reason: "the name of the op in operating systems" },
    Exception { within: "src/token/bpe.rs", name: "processor", reason: "the post-processor of a Hugging Face tokenizer" },
];

/// Names of before, with what has taken their place.
pub const RETIRED: [(&str, &str); 9] = [
    (
        "AskMany ChosenSummary TurnId TurnPolicy TurnStarted TurnSummary Chooser RowPolicy TextSide Picked DeviceModel leave_layer Stops \
         StopWatch LinkPeaks Pace",
        "`engine::api`, `runner`, `selection`",
    ),
    (
        "AheadOps ChosenOps ChosenTables Hiding Lookout Seen SeenBelow Scoring Weigher Weighed Below attend_chosen bring_framed \
         fill_area give_up_disk is_choosing keep_hot leave_document set_aside take_expected",
        "`engine::selection`, `engine::context`, `kv::policy`",
    ),
    (
        "Lower LowerConfig LowerCounts LowerError LowerUse HeldPages NearPages VirtualLink Census kept_pool transit_pool lose_group",
        "`kv::offload`",
    ),
    (
        "KvCache Paged ListTable ChosenStream KeysInRam Opener Packing StreamPlan Mover Outgoing Folded key_scores",
        "`kv::vram`, `kv::transfer`",
    ),
    ("Excess ChosenBlock SelectiveSpec Amount set_packed seal_page", "`kv::policy`, `kv::residency`, `kv::quantize_page`"),
    ("Faulty Lending Lent Flaw", "`kv::store`"),
    (
        "seal_pages open_pages page_lse page_shares matmul_gpu matvec_gpu LISTED_TOKENS ListedToken HostBuffer Stamps Twins KvElement \
         own_eight byte_pairs kv_codes",
        "`gpu::kernels`, shaders",
    ),
    (
        "PlacedModel Placer Spot Searched StreamDecoder Catalogue LeftOut Keeper News Kept",
        "`model`, `token`, `document`, `chats`",
    ),
    ("Keeping MostRead Cited Shelf LetGo GoOnFrom FillWithDock ShowMapped plain_forward Scene Harm", "`app`, tests"),
];
