//! Norms and matrix products of one layer, bound.

use super::bindings::{LinearOp, NormOp};

pub(in crate::engine) struct LayerOps {
    pub(in crate::engine) attn_norm: NormOp,
    pub(in crate::engine) qkv: LinearOp,
    pub(in crate::engine) attn_output: LinearOp,
    pub(in crate::engine) ffn_norm: NormOp,
    pub(in crate::engine) ffn_up: LinearOp,
    pub(in crate::engine) ffn_down: LinearOp,
}
